"""How a published checkpoint stores each matrix: `torch_dtype` and `quantization_config`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from models.architectures.fields import Fields, shown
from models.architectures.module_patterns import is_named, require_patterns, unmatched
from models.checks import require_known

DTYPE_BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "float8_e4m3fn": 8, "float8_e5m2": 8}

SCALE_BITS = {"fp16": 16, "fp32": 32, "fp8": 8, "e8m0": 8}


@dataclass(frozen=True)
class StoredFormat:
    """A format with the bits one element takes, scales and zero points included [bits]."""

    name: str
    bits_per_element: float
    targets: tuple[str, ...] = ("Linear",)


@dataclass(frozen=True)
class Checkpoint:
    """Formats of the stored matrices; a module that no pattern of `excluded` names takes the first that targets it."""

    dtype: str = "bfloat16"
    method: str = "none"
    formats: tuple[StoredFormat, ...] = ()
    excluded: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    """Module kinds that this method quantises at all (empty: every linear but head and router)."""


NAMES_IN_CHECKPOINT: dict[str, tuple[str, ...]] = {
    "attention_qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.qkv_proj"),
    "attention_output": ("self_attn.o_proj",),
    "attention_q_a": ("self_attn.q_a_proj",),
    "attention_q_b": ("self_attn.q_b_proj", "self_attn.q_proj"),
    "attention_kv_a": ("self_attn.kv_a_proj_with_mqa",),
    "attention_kv_b": ("self_attn.kv_b_proj",),
    "ffn_up": ("mlp.gate_proj", "mlp.up_proj", "mlp.gate_up_proj", "feed_forward.gate_proj", "feed_forward.up_proj"),
    "ffn_down": ("mlp.down_proj", "feed_forward.down_proj"),
    "expert_up": (
        "mlp.experts.0.gate_proj", "mlp.experts.0.up_proj", "mlp.experts.gate_up_proj",
        "block_sparse_moe.experts.0.w1", "block_sparse_moe.experts.0.w3", "feed_forward.experts.gate_up_proj",
    ),
    "expert_down": (
        "mlp.experts.0.down_proj", "mlp.experts.down_proj", "block_sparse_moe.experts.0.w2",
        "feed_forward.experts.down_proj",
    ),
    "shared_expert_up": (
        "mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj", "mlp.shared_expert.gate_proj",
        "mlp.shared_expert.up_proj", "feed_forward.shared_expert.gate_proj", "feed_forward.shared_expert.up_proj",
    ),
    "shared_expert_down": (
        "mlp.shared_experts.down_proj", "mlp.shared_expert.down_proj", "feed_forward.shared_expert.down_proj",
    ),
    "moe_gate": ("mlp.gate", "mlp.router", "block_sparse_moe.gate", "feed_forward.router"),
    "output_head": ("lm_head",),
    "state_in": ("linear_attn.in_proj_qkvz", "linear_attn.in_proj_ba", "mixer.in_proj", "mamba.in_proj"),
    "state_out": ("linear_attn.out_proj", "mixer.out_proj", "mamba.out_proj"),
}  # fmt: skip
"""Where each module lies in a published checkpoint, below `model.layers.<i>.` (the head below nothing)."""

NEVER_BY_DEFAULT = frozenset({"output_head", "moe_gate", "patch_embedding", "embedding"})
"""Modules that quantisers leave alone unless a target names them."""


def read_checkpoint(fields: Fields, dtype: str) -> Checkpoint:
    """
    Return the storage of a checkpoint from its `quantization_config` (`fields` holds its content).

    Raises
    ------
    UnknownNameError
        If the method is none of `METHODS`.
    ValueError
        If a key is missing, out of bounds or not understood.
    """
    default = "modelopt" if fields.has("quant_algo") else None
    method = require_known(f"{fields.path}.quant_method", fields.text("quant_method", default=default), METHODS)
    formats, only = METHODS[method](fields)
    excluded = _excluded(fields)
    fields.require_all_understood()
    return Checkpoint(dtype, method, formats, excluded, only)


def read_dtype(fields: Fields) -> str:
    """Return the type of the tensors that are not quantised."""
    key = fields.first("torch_dtype", "dtype")
    dtype = fields.text(key, default="bfloat16").removeprefix("torch.")
    return require_known(f"{fields.path}.{key}", dtype, DTYPE_BITS)


def bits_per_element(checkpoint: Checkpoint, module: str, n_layers: int) -> float:
    """
    Return the mean stored bits of one element of a module over the layers, scales included [bits].

    Exclusion patterns may name single layers; the mean then weighs each layer alike.
    """
    plain = float(DTYPE_BITS[checkpoint.dtype])
    names = NAMES_IN_CHECKPOINT.get(module, ())
    if not checkpoint.formats or not names or (checkpoint.only and module not in checkpoint.only):
        return plain
    if module == "output_head":
        return _bits_of_names(checkpoint, module, names, plain)
    layers = [
        _bits_of_names(checkpoint, module, [f"model.layers.{layer}.{name}" for name in names], plain)
        for layer in range(max(n_layers, 1))
    ]
    return sum(layers) / len(layers)


def format_name(checkpoint: Checkpoint, bits: float) -> str:
    """Name of the format that takes `bits`, `mixed` where layers differ."""
    names = {float(DTYPE_BITS[checkpoint.dtype]): checkpoint.dtype}
    names |= {stored.bits_per_element: stored.name for stored in checkpoint.formats}
    return names.get(bits, "mixed")


def unmatched_exclusions(checkpoint: Checkpoint, n_layers: int) -> tuple[str, ...]:
    """Return the exclusion patterns that name no module this project knows, tables and norms aside."""
    names = [
        name if module == "output_head" else f"model.layers.{layer}.{name}"
        for module, known in NAMES_IN_CHECKPOINT.items()
        for name in known
        for layer in range(max(n_layers, 1))
    ]
    patterns = tuple(pattern for pattern in checkpoint.excluded if "embed" not in pattern and "norm" not in pattern)
    return unmatched(patterns, names)


def _bits_of_names(checkpoint: Checkpoint, module: str, names: Sequence[str], plain: float) -> float:
    if any(is_named(checkpoint.excluded, name) for name in names):
        return plain
    for stored in checkpoint.formats:
        by_name = any(is_named(stored.targets, name) for name in names)
        if by_name or ("Linear" in stored.targets and module not in NEVER_BY_DEFAULT):
            return stored.bits_per_element
    return plain


def _excluded(fields: Fields) -> tuple[str, ...]:
    keys = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "llm_int8_skip_modules")
    return require_patterns((pattern for key in keys for pattern in fields.items(key)), fields.path)


Formats = tuple[tuple[StoredFormat, ...], tuple[str, ...]]


def _fp8(fields: Fields) -> Formats:
    fields.text("fmt", default="e4m3")
    fields.text("activation_scheme", default="dynamic")
    if not fields.items("weight_block_size"):
        return (StoredFormat("fp8", 8.0),), ()
    return (StoredFormat("fp8", 8.0 + SCALE_BITS["fp32"] / _block_elements(fields, "weight_block_size")),), ()


def _awq(fields: Fields) -> Formats:
    bits, group = fields.size("bits", "w_bit", maximum=16), _group_size(fields, "group_size", "q_group_size")
    zero_bits = bits if fields.flag("zero_point", True) else 0
    fields.text("version", default="gemm")
    return (StoredFormat(f"int{bits}", bits + _overhead(SCALE_BITS["fp16"] + zero_bits, group)),), ()


def _gptq(fields: Fields) -> Formats:
    bits, group = fields.size("bits", maximum=16), _group_size(fields, "group_size")
    fields.flag("sym", True)
    fields.flag("desc_act", False)
    lm_head = ("Linear", "lm_head") if fields.flag("lm_head", False) else ("Linear",)
    # Zero points are stored packed even where they are symmetric.
    return (StoredFormat(f"int{bits}", bits + _overhead(SCALE_BITS["fp16"] + bits, group), lm_head),), ()


def _mxfp4(fields: Fields) -> Formats:
    # One e8m0 scale for 32 elements; only the experts are converted.
    return (StoredFormat("mxfp4", 4 + SCALE_BITS["e8m0"] / 32),), ("expert_up", "expert_down")


def _compressed_tensors(fields: Fields) -> Formats:
    groups = fields.object("config_groups")
    formats = tuple(_compressed_group(groups.object(key)) for key in groups.config)
    if not formats:
        raise ValueError(f"{groups.path} must name at least one group")
    sparsity = fields.object("sparsity_config") if fields.has("sparsity_config") else None
    if sparsity is not None and sparsity.config:
        require_known(f"{sparsity.path}.format", sparsity.text("format", default="dense"), ("dense",))
    return formats, ()


def _compressed_group(fields: Fields) -> StoredFormat:
    targets = require_patterns(fields.items("targets"), f"{fields.path}.targets") or ("Linear",)
    fields.raw("input_activations"), fields.raw("output_activations"), fields.raw("format")
    weights = fields.object("weights")
    fields.require_all_understood()
    bits, kind = weights.size("num_bits", maximum=16), weights.text("type", default="int")
    require_known(f"{weights.path}.type", kind, ("int", "float"))
    strategy = weights.text("strategy", default="tensor")
    require_known(f"{weights.path}.strategy", strategy, ("tensor", "channel", "group", "block", "tensor_group"))
    scale = SCALE_BITS["fp8"] if strategy == "tensor_group" else SCALE_BITS["fp16"]
    zero_bits = 0 if weights.flag("symmetric", True) else bits
    overhead = 0.0
    if strategy in ("group", "tensor_group"):
        overhead = _overhead(scale + zero_bits, _group_size(weights, "group_size"))
    elif strategy == "block":
        overhead = scale / _block_elements(weights, "block_structure")
    for key in ("group_size", "block_structure", "scale_dtype", "zp_dtype"):
        weights.raw(key)
    weights.require_all_understood()
    return StoredFormat(f"{'fp' if kind == 'float' else 'int'}{bits}", bits + overhead, targets)


def _bitsandbytes(fields: Fields) -> Formats:
    if fields.flag("load_in_8bit", False):
        return (StoredFormat("int8", 8.0),), ()
    if not fields.flag("load_in_4bit", False):
        raise ValueError(f"{fields.path} must set load_in_4bit or load_in_8bit")
    kind = fields.text("bnb_4bit_quant_type", default="fp4")
    double = fields.flag("bnb_4bit_use_double_quant", False)
    # Blocks of 64 with an fp32 scale, or an 8-bit scale and one fp32 for 256 of them.
    overhead = (8 + SCALE_BITS["fp32"] / 256) / 64 if double else SCALE_BITS["fp32"] / 64
    return (StoredFormat(kind, 4 + overhead),), ()


def _modelopt(fields: Fields) -> Formats:
    algorithm = fields.text("quant_algo")
    require_known(f"{fields.path}.quant_algo", algorithm, ("FP8", "NVFP4", "W4A16_AWQ"))
    group = _group_size(fields, "group_size")
    fields.raw("config_groups")  # says again what the algorithm fixes
    if algorithm == "FP8":
        return (StoredFormat("fp8", 8.0),), ()
    if algorithm == "NVFP4":
        return (StoredFormat("nvfp4", 4 + SCALE_BITS["fp8"] / (group or 16)),), ()
    return (StoredFormat("int4", 4 + SCALE_BITS["fp16"] / (group or 128)),), ()


def _block_elements(fields: Fields, key: str) -> int:
    block = fields.items(key)
    if len(block) != 2 or any(isinstance(side, bool) or not isinstance(side, int) or side < 1 for side in block):
        raise ValueError(f"{fields.path}.{key} must be two positive whole numbers, got {shown(block)}")
    return int(block[0] * block[1])


def _group_size(fields: Fields, *keys: str) -> int:
    """Elements that share a scale; -1 is one scale for a whole column, returned as 0."""
    size = fields.size(*keys, default=-1, minimum=-1)
    if size == 0:
        raise ValueError(f"{fields.path}.{keys[0]} must be positive, or -1 for one group per column, got 0")
    return max(size, 0)


def _overhead(bits_per_group: float, group_size: int) -> float:
    """Bits that scales and zero points add to one element; those of a whole column are neglected."""
    return bits_per_group / group_size if group_size else 0.0


METHODS: dict[str, Callable[[Fields], Formats]] = {
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "gptq": _gptq,
    "modelopt": _modelopt,
    "mxfp4": _mxfp4,
}
