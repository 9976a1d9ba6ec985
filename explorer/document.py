"""The study document: what a planner sends as YAML or JSON, checked and with its units read."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from explorer.quantities import Area, Bandwidth, Duration, Money, Power, Rate
from models.fidelity.profiles import profile_document, profile_from_document, shipped_profile
from models.operators.calibration import UNCALIBRATED, Calibration
from models.technology import Technology, default_technology, technology_with

MAX_TOKENS = 10_000_000


class StudyError(ValueError):
    """A document that cannot be run; `errors` holds one {pointer, detail} for each fault."""

    def __init__(self, errors: list[dict[str, str]]) -> None:
        self.errors = errors
        super().__init__("; ".join(f"{_dotted(e['pointer'])}: {e['detail']}" for e in errors))


def _dotted(pointer: str) -> str:
    return pointer.lstrip("/").replace("/", ".") or "document"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LengthDistribution(_Strict):
    """Mean and spread of a token count."""

    mean: float = Field(gt=0, le=MAX_TOKENS, description="mean [tokens]")
    std: float = Field(0.0, ge=0, le=MAX_TOKENS, description="standard deviation [tokens]")
    distribution: Literal["normal", "lognormal", "gamma"] = Field("normal", description="shape, cut at 1 token")


class HistogramBin(_Strict):
    """Requests of one size."""

    input: float = Field(gt=0, le=MAX_TOKENS, description="input tokens [tokens]")
    output: float = Field(gt=0, le=MAX_TOKENS, description="output tokens [tokens]")
    weight: float = Field(gt=0, description="relative frequency [1]")


class SessionsDocument(_Strict):
    """Conversations of several turns: each turn carries the earlier ones, found in the prefix cache or not."""

    turns: int = Field(ge=1, le=1000, description="turns of a conversation")
    hit_fraction: float = Field(1.0, ge=0, le=1, description="share of the earlier turns found in the prefix cache [1]")


class RequestsDocument(_Strict):
    """Exactly one source of request lengths: a preset, a trace, a histogram, or two parametric lengths."""

    preset: str | None = Field(None, description="named request distribution, such as llmperf-550-150")
    trace: str | None = Field(
        None, description="shipped trace, a file beside the study, or the id of an uploaded workload"
    )
    input: LengthDistribution | None = Field(None, description="input tokens")
    output: LengthDistribution | None = Field(None, description="output tokens")
    correlation: float = Field(0.0, ge=-1, le=1, description="rank correlation of input and output [1]")
    histogram: list[HistogramBin] | None = Field(None, min_length=1, max_length=10_000, description="sizes and weights")
    zero_token_rows: Literal["refuse", "drop"] | None = Field(
        None, description="rows of a trace without tokens, as failed requests are logged; refused where left out"
    )
    sessions: SessionsDocument | None = Field(None, description="conversations whose single turns have these lengths")

    @model_validator(mode="after")
    def _one_source(self) -> RequestsDocument:
        parametric = (self.input is None) + (self.output is None)
        sources = [self.preset is not None, self.trace is not None, self.histogram is not None, parametric < 2]
        if sum(sources) != 1 or parametric == 1:
            raise ValueError("must hold exactly one of preset, trace, histogram, or input with output")
        if self.trace is None and self.zero_token_rows is not None:
            raise ValueError("zero_token_rows needs a trace")
        if self.trace is not None and self.sessions is not None:
            raise ValueError("sessions needs lengths of single turns; a trace holds its conversations already")
        return self


class ArrivalsDocument(_Strict):
    """When requests come."""

    load: float | None = Field(None, gt=0, lt=1, description="rate over the design's sustainable rate [1]")
    rate: Rate | None = Field(None, description="requests of the whole system per second")
    cv: float = Field(1.0, gt=0, le=100, description="coefficient of variation of the time between requests [1]")
    dispersion_60_s: float | None = Field(
        None, gt=0, le=1e6, description="variance over mean of the requests in windows of 60 s, at least cv squared [1]"
    )
    source: Literal["drawn", "trace"] = Field("drawn", alias="from", description="drawn, or the trace's own times")

    @model_validator(mode="after")
    def _drift_beyond_bursts(self) -> ArrivalsDocument:
        if self.dispersion_60_s is not None and self.dispersion_60_s < self.cv**2:
            raise ValueError(f"dispersion_60_s must be at least cv squared, {self.cv**2:g}")
        return self


class SloDocument(_Strict):
    """Latency limits; a percentile left out is not limited."""

    ttft_p50: Duration | None = Field(None, description="limit of the median of the time to the first token")
    ttft_p95: Duration | None = Field(None, description="limit of the 95th percentile of the time to the first token")
    ttft_p99: Duration | None = Field(None, description="limit of the 99th percentile of the time to the first token")
    tpot_p50: Duration | None = Field(None, description="limit of the median of the time per output token")
    tpot_p95: Duration | None = Field(None, description="limit of the 95th percentile of the time per output token")
    tpot_p99: Duration | None = Field(None, description="limit of the 99th percentile of the time per output token")


class BatchingDocument(_Strict):
    """Limits of the batch."""

    max_batch: int = Field(1024, ge=1, le=1024, description="sequences that run at once on one group of chips")


class SpeculationDocument(_Strict):
    """Speculative decoding: guesses that one step verifies together."""

    draft_tokens: int = Field(ge=1, le=32, description="guesses of a step [tokens]")
    acceptance: float = Field(gt=0, lt=1, description="chance that a guess is right where those before it are [1]")
    draft_network: str | dict[str, Any] | None = Field(
        None, description="network that guesses; without one guesses cost nothing"
    )


class _Scenario(_Strict):
    name: str = Field(min_length=1, max_length=100, description="name of the scenario")
    weight: float = Field(1.0, ge=0, description="share of time on the reference chip; 0 counts in a regret alone [1]")
    reference_chip: str = Field("a100_sxm", description="chip that a relative rate refers to")


class ServingPlanDocument(_Strict):
    """How the network is dealt to the chips of an engine; the other chips run as many engines beside it."""

    tensor_parallel: int = Field(1, ge=1, le=4096, description="chips that share each layer")
    attention_data_parallel: int = Field(
        1, ge=1, le=4096, description="such groups with tokens of their own that share the routed experts"
    )
    pipeline_parallel: int = Field(1, ge=1, le=4096, description="stages that hold the layers")


class ServingDocument(_Scenario):
    """Requests to a language model."""

    kind: Literal["llm_serving"] = Field(description="requests to a language model")
    network: str | dict[str, Any] = Field(
        description="name of the catalogue or of an uploaded network, or a Hugging Face config.json"
    )
    requests: RequestsDocument
    arrivals: ArrivalsDocument = Field(default_factory=ArrivalsDocument)
    slo: SloDocument = Field(default_factory=SloDocument)
    scheduling: Literal["chunked", "whole_prompt", "disaggregated"] = Field(
        "chunked", description="prompts share steps with decoding, run alone, or on engines of their own"
    )
    speculation: SpeculationDocument | None = Field(None, description="speculative decoding")
    batching: BatchingDocument = Field(default_factory=BatchingDocument)
    prefix_hit_fraction: float | None = Field(
        None, ge=0, lt=1, description="share of the input tokens found in the prefix cache [1]"
    )
    routing_skew: float = Field(0.0, ge=0, le=4, description="Zipf exponent of expert popularity [1]")
    step_overhead: Duration | None = Field(None, description="host time of every step; the model's where left out")
    plan: ServingPlanDocument | None = Field(None, description="split over the chips; the best where left out")

    @model_validator(mode="after")
    def _hits_said_once(self) -> ServingDocument:
        if self.prefix_hit_fraction is not None and self.requests.sessions is not None:
            raise ValueError("must hold at most one of prefix_hit_fraction and requests.sessions")
        return self


class ConvnetDocument(_Scenario):
    """Images through a convolutional network."""

    kind: Literal["convnet"] = Field(description="images through a convolutional network")
    network: str = Field(
        description="name of the catalogue, or a layer table (CSV): a file beside the study or an uploaded workload"
    )
    batch: int = Field(1, ge=1, le=65_536, description="images in one pass")
    lowering: Literal["direct", "im2col"] | None = Field(None, description="the faster one where left out")


class GemmRow(_Strict):
    """One matrix product and how often it occurs."""

    m: int = Field(ge=1, le=10**9, description="rows of the product")
    n: int = Field(ge=1, le=10**9, description="columns of the product")
    k: int = Field(ge=1, le=10**9, description="length of each sum")
    batch: int = Field(1, ge=1, le=10**9, description="equal products in one call")
    count: int = Field(1, ge=1, le=10**9, description="calls")
    format: str | None = Field(None, description="number format of both operands; the precision mix's where left out")


class GemmListDocument(_Scenario):
    """A list of matrix products, written out or in a file (m, n, k, batch, count, format)."""

    kind: Literal["gemm_list"] = Field(description="a list of matrix products")
    rows: list[GemmRow] | None = Field(None, min_length=1, max_length=100_000, description="the products")
    file: str | None = Field(None, description="CSV or YAML: a file beside the study or an uploaded workload")

    @model_validator(mode="after")
    def _one_source(self) -> GemmListDocument:
        if (self.rows is None) == (self.file is None):
            raise ValueError("must hold exactly one of rows and file")
        return self


class TrainingPlanDocument(_Strict):
    """How training is spread over the chips."""

    tensor_parallel: int = Field(1, ge=1, le=4096, description="chips that share each layer")
    pipeline_parallel: int = Field(1, ge=1, le=4096, description="stages of layers; the rest is data parallel")
    microbatch_sequences: int = Field(1, ge=1, le=65_536, description="sequences of one pass")
    interleave: int = Field(1, ge=1, le=64, description="groups of layers each stage holds")
    zero_stage: Literal[0, 1, 2, 3] = Field(1, description="1 shards optimizer state, 2 gradients too, 3 weights too")
    sequence_parallel: bool = Field(True, description="norms and residuals are split by tokens")


class TrainingDocument(_Scenario):
    """One pre-training step of a decoder."""

    kind: Literal["training"] = Field(description="one pre-training step of a decoder")
    network: str | dict[str, Any] = Field(
        description="name of the catalogue or of an uploaded network, or a Hugging Face config.json"
    )
    sequence_tokens: int = Field(ge=1, le=MAX_TOKENS, description="length of a sequence [tokens]")
    global_batch_sequences: int = Field(ge=1, le=10**7, description="sequences of one step over all chips")
    precision: str = Field("bf16_training", description="recipe with the formats of gradients and optimizer state")
    recompute: Literal["none", "selective", "full"] = Field(
        "selective", description="activations that the backward pass computes again instead of keeping them"
    )
    plan: TrainingPlanDocument | None = Field(None, description="split over the chips; the fastest where left out")


ScenarioDocument = Annotated[
    ServingDocument | ConvnetDocument | GemmListDocument | TrainingDocument, Field(discriminator="kind")
]


class WorkloadDocument(_Strict):
    """Scenarios that share the accelerator."""

    scenarios: list[ScenarioDocument] = Field(min_length=1, max_length=16, description="what the chips do, by weight")

    @model_validator(mode="after")
    def _distinct_names(self) -> WorkloadDocument:
        names = [each.name for each in self.scenarios]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"scenarios must have names of their own, got '{repeated[0]}' more than once")
        if not any(each.weight for each in self.scenarios):
            raise ValueError("scenarios must have a weight above 0 somewhere, got only 0")
        return self


def _refuse_name(value: Any) -> Any:
    """A workload that was named and found has been written out before."""
    if isinstance(value, str):
        raise ValueError(f"unknown workload '{value}': neither uploaded nor a file beside the study")
    return value


NamedWorkload = Annotated[
    WorkloadDocument, BeforeValidator(_refuse_name, json_schema_input_type=WorkloadDocument | str)
]


class BudgetDocument(_Strict):
    """Limits of one chip."""

    area: Area = Field(description="compute die area of one chip")
    tdp: Power = Field(description="power cap under which the clock settles")
    memory_stacks: int | None = Field(None, ge=1, description="memory stacks of one chip")
    unit_cost: Money | None = Field(None, description="cost of one packaged chip")


class OverlayRow(_Strict):
    """A private value in place of a shipped one, in the form of technology.csv and cost.csv."""

    quantity: str = Field(min_length=1, max_length=100, description="quantity or constant of the model")
    node_nm: float | None = Field(None, gt=0, description="process node of a quantity by node [nm]")
    variant: str | None = Field(None, max_length=100, description="kind of memory of a quantity by kind")
    value: float = Field(gt=0, description="value [as `unit` says]")
    unit: str = Field(min_length=1, max_length=40, description="unit, that of the shipped value")
    source: str = Field(min_length=1, max_length=500, description="where the value comes from")


def _known_rows(rows: list[OverlayRow]) -> list[OverlayRow]:
    try:
        technology_with([overlay_text(row) for row in rows])
    except LookupError as error:
        raise ValueError(str(error)) from None
    return rows


def overlay_text(row: OverlayRow) -> dict[str, str]:
    """A row as a file would hold it."""
    return {name: "" if value is None else str(value) for name, value in row}


class TechnologyDocument(_Strict):
    """Process of the compute die, and private values in place of shipped ones."""

    node_nm: float = Field(5.0, ge=2, le=130, description="process node [nm]")
    overlay: Annotated[list[OverlayRow], Field(max_length=1000), AfterValidator(_known_rows)] = Field(
        default_factory=list, description="rows in place of shipped ones; on the command line also the name of a file"
    )

    @model_validator(mode="after")
    def _node_inside_tables(self) -> TechnologyDocument:
        technology = self.technology
        for quantity in technology.curves:
            technology.at_node(quantity, self.node_nm)
        return self

    @property
    def technology(self) -> Technology:
        """Shipped values with the overlay before them."""
        return technology_with([overlay_text(row) for row in self.overlay]) if self.overlay else default_technology()


class ScaleUpDocument(_Strict):
    """Links between the chips of one node."""

    topology: Literal["switched", "ring", "mesh", "torus"] = Field(
        "switched", description="chips on a switch, or joined to their neighbours in a grid"
    )
    dimensions: list[int] | None = Field(
        None, min_length=1, max_length=4, description="sides of a mesh or torus, in chips; their product is the node"
    )
    latency: Duration | None = Field(None, description="added for every hop; what measured switches take if left out")

    @model_validator(mode="after")
    def _sides_of_a_grid(self) -> ScaleUpDocument:
        grid = self.topology in ("mesh", "torus")
        if grid != (self.dimensions is not None):
            rule = "needs" if grid else "has no"
            raise ValueError(f"topology '{self.topology}' {rule} dimensions")
        if self.dimensions is not None and min(self.dimensions) < 2:
            raise ValueError(f"dimensions must be at least 2 each, got {min(self.dimensions)}")
        return self


class ScaleOutDocument(_Strict):
    """The network between nodes: a fat tree whose leaf switches join some nodes each."""

    bandwidth: Bandwidth | None = Field(
        None, description="most that the network takes from one chip; the design's own link limits it if left out"
    )
    nodes_per_leaf: int | None = Field(
        None, ge=1, le=65_536, description="nodes under one leaf switch; all if left out"
    )
    oversubscription: float = Field(
        1.0, ge=1, le=1000, description="rate from the nodes of a leaf over the rate of its links upwards [1]"
    )
    latency: Duration | None = Field(None, description="added for every message to what measured switches take")

    @model_validator(mode="after")
    def _leaves_to_oversubscribe(self) -> ScaleOutDocument:
        if self.oversubscription > 1 and self.nodes_per_leaf is None:
            raise ValueError(f"oversubscription needs nodes_per_leaf, got {self.oversubscription:g} without")
        return self


class SystemDocument(_Strict):
    """Chips that work together."""

    n_chips: int = Field(1, ge=1, le=65_536, description="chips of the system")
    n_chips_per_node: int | None = Field(
        None, ge=1, le=65_536, description="chips that the scale-up links join; all of them where left out"
    )
    offload: bool = Field(
        False, description="weights, experts and cache that find no room in main memory lie in the second tier"
    )
    host_sharing_exponent: float | None = Field(
        None, ge=0, le=4, description="x of the host's link rate, (n/2)^-x where n chips share it [1]"
    )
    host_bandwidth: Bandwidth | None = Field(
        None, description="host's link to a chip of a pair that exchange through it; the design's where left out"
    )

    scale_up: ScaleUpDocument = Field(default_factory=ScaleUpDocument)
    scale_out: ScaleOutDocument | None = Field(
        None, description="network between nodes; one switch, and rings over it, if left out"
    )
    overlap_fraction: float = Field(
        0.0, ge=0, le=1, description="share of the collectives of a step that other work covers, where there is any [1]"
    )

    @model_validator(mode="after")
    def _whole_nodes(self) -> SystemDocument:
        if self.n_chips_per_node is not None and self.n_chips % self.n_chips_per_node:
            raise ValueError(
                f"n_chips must be a multiple of n_chips_per_node, got {self.n_chips} and {self.n_chips_per_node}"
            )
        node, sides = self.n_chips_per_node or self.n_chips, self.scale_up.dimensions
        if sides is not None and math.prod(sides) != node:
            raise ValueError(
                f"the product of scale_up.dimensions must be {node}, the chips of a node, got {math.prod(sides)}"
            )
        return self


class QualityDocument(_Strict):
    """Error budget of the precision mix: one of the two."""

    max_kl_nats: float | None = Field(None, gt=0, description="KL divergence at the output [nats/token]")
    no_worse_than: str | None = Field(None, description="named precision recipe")

    @model_validator(mode="after")
    def _one_limit(self) -> QualityDocument:
        if (self.max_kl_nats is None) == (self.no_worse_than is None):
            raise ValueError("must hold exactly one of max_kl_nats and no_worse_than")
        return self


class ObjectiveDocument(_Strict):
    """A metric and the better direction."""

    metric: str = Field(description="name of a metric of the scenario's kind, with its unit")
    direction: Literal["minimize", "maximize"] = Field(description="the better direction")


class WarmStartDocument(_Strict):
    """Which past studies a search begins with."""

    studies: list[str] | None = Field(
        None, min_length=1, max_length=20, description="ids; the most similar if left out"
    )
    designs: int = Field(20, ge=1, le=200, description="most designs taken from them")


class SearchDocument(_Strict):
    """How to search."""

    sampler: str = Field("auto", description="how designs are chosen; auto takes the exact search where it can")
    trials: int = Field(200, ge=1, le=100_000, description="most designs that are judged and recorded")
    seed: int = Field(0, ge=0, lt=2**32, description="seed of everything random")
    certify: bool = Field(False, description="prove how far the result is from the best of the space")
    target_gap: float = Field(0.01, ge=0, lt=1, description="relative gap at which a proof ends [1]")
    timeout: Duration = Field(60.0, description="search time after which a study ends with what it has")
    shards: int = Field(
        1, ge=1, le=64, description="parts of a proof that workers share, each with the whole search time; 1: no parts"
    )
    stall_trials: int | None = Field(
        None, ge=1, le=100_000,
        description="trials without a better design or larger hypervolume after which a sampler ends (no proof does)",
    )  # fmt: skip
    warm_start: bool | WarmStartDocument = Field(False, description="begin with the best designs of past studies")


class RobustnessDocument(_Strict):
    """An alternative scenario against which regret is reported."""

    name: str = Field(min_length=1, max_length=100, description="name of the alternative")
    network: str | dict[str, Any] | None = Field(None, description="in place of the scenario's, if given")
    requests: RequestsDocument | None = Field(None, description="in place of the scenario's, if given")
    slo: SloDocument | None = Field(None, description="in place of the scenario's, if given")


def _whole_profile(stated: str | dict[str, Any]) -> dict[str, Any]:
    """A calibration profile as plain data, so that documents echo and hash what it holds and not its name."""
    try:
        profile = shipped_profile(stated) if isinstance(stated, str) else profile_from_document(stated)
    except (LookupError, TypeError) as error:
        raise ValueError(str(error)) from None
    return profile_document(profile)


ProfileDocument = Annotated[str | dict[str, Any], AfterValidator(_whole_profile)]
"""Name of a shipped profile, or a profile as plain data."""


class StudyDocument(_Strict):
    """The whole request."""

    name: str = Field(min_length=1, max_length=200, description="name of the study")
    workload: NamedWorkload = Field(description="scenarios, or the id of an uploaded workload")
    budget: BudgetDocument
    technology: TechnologyDocument = Field(default_factory=TechnologyDocument)
    system: SystemDocument = Field(default_factory=SystemDocument)
    space: Literal["full"] | dict[str, Any] = Field(
        "full", description="free design parameters with their values, and fixed ones; or the whole space"
    )
    quality: QualityDocument | None = Field(None, description="error budget of the precision mix")
    objectives: list[ObjectiveDocument] = Field(
        min_length=1, max_length=4, description="what is best; several give a front"
    )
    search: SearchDocument = Field(default_factory=SearchDocument)
    robustness: list[RobustnessDocument] = Field(
        default_factory=list, max_length=16, description="other workloads against which regret is reported"
    )
    profile: ProfileDocument | None = Field(
        None, description="calibration profile: name of a shipped one, or {name, device, constants}"
    )

    @property
    def calibration(self) -> Calibration:
        """Constants of the operator model: those of the profile, or the global ones."""
        return UNCALIBRATED if self.profile is None else profile_from_document(self.profile).calibration


def read_document(raw: Any, model: type[BaseModel] = StudyDocument) -> Any:
    """
    Return the checked document.

    Raises
    ------
    StudyError
        With a pointer to every field that breaks its rule.
    """
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise StudyError([_fault(raw, each) for each in error.errors(include_url=False)]) from None


def _fault(raw: Any, each: Any) -> dict[str, str]:
    """One fault as {pointer, detail}; parts of a location that are no key of the document name a union's branch."""
    parts: list[str] = []
    node = raw
    for part in each["loc"]:
        if (isinstance(node, dict) and part in node) or (
            isinstance(node, list) and isinstance(part, int) and part < len(node)
        ):
            node = node[part]
        elif each["type"] != "missing" or part != each["loc"][-1]:
            continue
        parts.append(str(part).replace("~", "~0").replace("/", "~1"))
    detail = str(each["msg"]).removeprefix("Value error, ")
    if each["type"] == "extra_forbidden":
        detail = "is no known field"
    elif isinstance(each["input"], str | int | float | bool) and ", got " not in detail:
        detail = f"{detail}, got {each['input']!r}"[:300]
    return {"pointer": "".join(f"/{part}" for part in parts), "detail": detail}
