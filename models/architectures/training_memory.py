"""Plan of a training step, and the memory one chip needs for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from models.architectures.lowered import LoweredNetwork, weight_elements_per_module
from models.checks import require_known
from models.precision.formats import number_format
from models.precision.mix import PrecisionMix, TrainingFormats

Recompute = Literal["none", "selective", "full"]

LOGIT_BYTES = 4.0
"""The loss reads its logits in fp32."""

PLAIN_BITS = 16.0
"""Norms, biases and modules that no mix names stay in 16 bit."""

UNFUSED_SCORE_BYTES = 4.0
"""An unfused attention keeps the softmax and its input, in 16 bit each [B per score]."""

OPERATORS_WITH_SHARED_INPUT = frozenset({"attention_qkv", "attention_kv_a", "state_in", "ffn_up", "moe_gate"})
"""First linears of a block: their input is the output of a norm, the same on every chip of a group."""

OPERATORS_WITHOUT_OWN_INPUT = frozenset({"attention_q_a", "shared_expert_up"})
"""Linears that read what another of the block has already kept."""


@dataclass(frozen=True)
class TrainingPlan:
    """How one step is spread over chips; chips = tensor x pipeline x data."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    microbatch_sequences: int = 1
    interleave: int = 1
    """Groups of layers each pipeline stage holds (virtual stages)."""
    sequence_parallel: bool = True
    """Norms and residuals are split by tokens within the tensor-parallel group."""
    zero_stage: int = 1
    """What is sharded over the data-parallel group: 1 optimizer state, 2 gradients too, 3 weights too."""
    recompute: Recompute = "selective"
    fused_attention: bool = True
    """Scores stay on the chip; the backward pass makes them again."""

    def __post_init__(self) -> None:
        """Refuse degrees that are no whole number of at least 1, and unknown choices."""
        degrees = ("tensor_parallel", "pipeline_parallel", "data_parallel", "microbatch_sequences", "interleave")
        for name in degrees:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.zero_stage not in (0, 1, 2, 3):
            raise ValueError(f"zero_stage must be 0, 1, 2 or 3, got {self.zero_stage!r}")
        require_known("recompute", self.recompute, ("none", "selective", "full"))

    @property
    def n_chips(self) -> int:
        """Chips of the whole plan."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel


@dataclass(frozen=True)
class TrainingMemory:
    """What the fullest chip keeps during a step [B]."""

    weight_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    activation_bytes: float

    @property
    def total_bytes(self) -> float:
        """Sum of all parts [B]."""
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes + self.activation_bytes


def training_formats(mix: PrecisionMix) -> TrainingFormats:
    """Return the formats of the optimizer state, refusing a mix that is for serving only."""
    if mix.training is None:
        raise ValueError(f"precision mix '{mix.name}' must state formats of gradients and moments to train with")
    return mix.training


def weight_bytes(stage: LoweredNetwork, mix: PrecisionMix) -> float:
    """Bytes of the weights that the GEMMs of one chip read; norms and modules the mix does not know take 16 bit [B]."""
    elements = weight_elements_per_module(stage)
    bits = {module: mix.weight_bits(module) if module in mix.weight_format else PLAIN_BITS for module in elements}
    return sum(count * bits[module] for module, count in elements.items()) / 8.0


def stored_bits(format_name: str) -> float:
    """Bits of one stored element of a format, scales included [bit]."""
    return number_format(format_name).weight_bits


def training_memory(
    stage: LoweredNetwork, plan: TrainingPlan, mix: PrecisionMix, sequence_tokens: int, n_microbatches: int
) -> TrainingMemory:
    """
    Return what the fullest chip keeps, from the operators of its pipeline stage.

    The first stage holds activations of most microbatches, the last one the logits; the larger of the two counts,
    with the weights of a stage that has a table. Dropout masks are left out.

    Parameters
    ----------
    stage : LoweredNetwork
        What one chip of one stage executes.
    n_microbatches : int
        Microbatches of one pipeline in one step.

    References
    ----------
    .. [1] V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022,
       arXiv:2205.05198, eqs. 1-5 and appendix C; its 34 s b h bytes a layer are 32 without dropout masks.
    """
    formats, shards = training_formats(mix), plan.data_parallel
    sharded = [shards if plan.zero_stage >= stage_of_zero else 1 for stage_of_zero in (3, 2, 1)]
    optimizer_bits = sum(map(stored_bits, (formats.master_weight, formats.first_moment, formats.second_moment)))
    return TrainingMemory(
        weight_bytes=weight_bytes(stage, mix) / sharded[0],
        gradient_bytes=stage.n_parameters * stored_bits(formats.gradient_storage) / 8.0 / sharded[1],
        optimizer_bytes=stage.n_parameters * optimizer_bits / 8.0 / sharded[2],
        activation_bytes=_activation_bytes(stage, plan, mix, sequence_tokens, n_microbatches),
    )


def _activation_bytes(
    stage: LoweredNetwork, plan: TrainingPlan, mix: PrecisionMix, sequence_tokens: int, n_microbatches: int
) -> float:
    tokens = float(plan.microbatch_sequences) * sequence_tokens
    working = tokens * stored_bytes_per_token(stage, plan, mix)
    kept, in_work = working, 0.0
    if plan.recompute == "full":
        split_tokens = plan.tensor_parallel if plan.sequence_parallel else 1
        kept = tokens * residual_bytes(mix) * stage.hidden_size * stage.n_layers / split_tokens
        in_work = working / stage.n_layers
    scores = UNFUSED_SCORE_BYTES * tokens * sequence_tokens * sum(a.n_heads * a.count for a in stage.attentions)
    if not plan.fused_attention:
        kept += scores if plan.recompute == "none" else 0.0
        in_work += 0.0 if plan.recompute == "none" else scores / stage.n_layers
    logits = LOGIT_BYTES * tokens * sum(each.n_out for each in stage.linears if each.module == "output_head")
    first = kept * in_flight_microbatches(plan, n_microbatches) + in_work
    last = kept + in_work + logits
    return first + logits if plan.pipeline_parallel == 1 else max(first, last)


def in_flight_microbatches(plan: TrainingPlan, n_microbatches: int) -> float:
    """Microbatches whose activations the first stage holds at once, one forward one backward in turn [1]."""
    stages = plan.pipeline_parallel
    more = 1.0 + (stages - 1) / (stages * plan.interleave) if plan.interleave > 1 else 1.0
    return min(float(stages), float(n_microbatches)) * more


def residual_bytes(mix: PrecisionMix) -> float:
    """Bytes of one element of the residual stream, as chips exchange it [B]."""
    return mix.vector_bits("residual") / 8.0


def stored_bytes_per_token(stage: LoweredNetwork, plan: TrainingPlan, mix: PrecisionMix) -> float:
    """
    Return what the layers of a stage keep of one token for the backward pass, without recomputation.

    Kept are the input of every norm, and of every linear the input in its own format and the output, except the
    output of those that add to the residual stream. What every chip of the tensor-parallel group would keep is
    divided under sequence parallelism. [B]
    """
    plain = residual_bytes(mix)
    whole = plain * sum(v.elements_per_token * v.count for v in stage.vectors if v.module == "layer_norm")
    divided = 0.0
    for linear in stage.linears:
        if linear.module == "output_head":
            continue
        known = linear.module in mix.activation_format
        input_bytes = mix.activation_bits(linear.module) / 8.0 if known else plain
        rows = linear.count * (linear.top_k if linear.rows == "routed" else 1.0)
        if linear.module in OPERATORS_WITH_SHARED_INPUT:
            whole += input_bytes * linear.n_in * linear.count
        elif linear.module not in OPERATORS_WITHOUT_OWN_INPUT:
            divided += input_bytes * linear.n_in * rows
        if linear.shard != "row" and linear.module != "expert_down":
            divided += plain * linear.n_out * rows
    return whole / (plan.tensor_parallel if plan.sequence_parallel else 1) + divided
