"""Scenarios of a study document -> scenarios of the model, with every fault pointed at its field."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from explorer.document import (
    QualityDocument,
    RequestsDocument,
    ServingDocument,
    SloDocument,
    SpeculationDocument,
    StudyDocument,
    StudyError,
    SystemDocument,
)
from explorer.inputs import Inputs, named_network, named_trace
from explorer.space import Space, read_space
from models.architectures import LoweredNetwork, lower
from models.architectures.plans import ParallelPlan
from models.hardware.memory import memory_capacity_bytes, memory_kind, second_tier, second_tier_column
from models.operators.topology import Interconnect, ScaleOut, ScaleUp
from models.precision.budget import MixSelection, budget_nats, mixes_of_space, recipes_under_budget
from models.precision.error import known_kappa, mix_kl_nats
from models.precision.mix import RECIPES, PrecisionMix
from models.precision.prices import Load, representative_loads
from models.serving.scenario import BATCH_GRID, ServingScenario, Slo, Speculation, System
from models.serving.steady import require_served
from models.tables import constants
from models.workload.distribution import (
    RequestDistribution,
    observed_distribution,
    request_distribution,
    request_moments,
    with_prefix_hits,
)
from models.workload.parametric import LengthFormula, RequestFormula, formula_distribution
from models.workload.presets import preset
from models.workload.requests import Requests
from models.workload.sessions import Sessions, multi_turn

SEARCHED_RECIPES = ("bf16", "deepseek_v3", "fp8_kv8", "w8a8_kv8", "w4a16", "w4a16_kv8", "q4_k_m", "nvfp4")
"""Recipes that compete with the mixes found for a space; those beyond the budget are left out."""

MIX_BATCHES = 80
"""Mixes times batch sizes that are tried on each plan: an exact search takes twice as long with twice as many."""

FEWEST_MIXES, MOST_MIXES = 4, 8
"""Bounds on the mixes that compete inside a design."""

DEFAULT_RECIPES = ("bf16", "deepseek_v3", "w4a16")
"""Without a quality budget: 16-bit, 8-bit and 4-bit weights as they are served today."""


@dataclass(frozen=True)
class Quality:
    """The error budget of one scenario and the mixes that keep it."""

    budget_nats: float
    mixes: tuple[PrecisionMix, ...]
    kl_nats: tuple[float, ...]
    least_kl_nats: float
    """What bf16 everywhere costs, to say by how much an impossible budget is missed."""
    kappa: float = 1.0
    """KL of this network over that of the profile's in the same mix."""
    selection: MixSelection | None = None
    """How the mixes were chosen where they were searched for."""


@contextmanager
def pointing_at(pointer: str) -> Iterator[None]:
    """Turn a fault of the model into a StudyError at `pointer`."""
    try:
        yield
    except StudyError:
        raise
    except (ValueError, LookupError) as error:
        raise StudyError([{"pointer": pointer, "detail": str(error)}]) from None


def read_network_of(document: str | dict[str, Any], pointer: str, inputs: Inputs = None) -> LoweredNetwork:
    """The network a scenario names or carries."""
    with pointing_at(pointer):
        return lower(named_network(document, inputs))


def read_requests(
    document: RequestsDocument, pointer: str, prefix_hit_fraction: float | None, inputs: Inputs
) -> RequestDistribution:
    """The request lengths a scenario states, prefix hits included."""
    with pointing_at(f"{pointer}/{_source_of(document)}"):
        distribution = _as_distribution(request_source(document, inputs))
        return distribution if prefix_hit_fraction is None else with_prefix_hits(distribution, prefix_hit_fraction)


def _source_of(document: RequestsDocument) -> str:
    given = [name for name in ("preset", "trace", "histogram") if getattr(document, name) is not None]
    return given[0] if given else "input"


def request_source(document: RequestsDocument, inputs: Inputs) -> Requests | RequestFormula | RequestDistribution:
    """The trace, formula or table of sizes that a scenario names, its conversations unrolled."""
    source = _lengths(document, inputs)
    return source if document.sessions is None else multi_turn(_as_distribution(source), _sessions(document))


def _sessions(document: RequestsDocument) -> Sessions:
    assert document.sessions is not None
    return Sessions(document.sessions.turns, document.sessions.hit_fraction)


def _lengths(document: RequestsDocument, inputs: Inputs) -> Requests | RequestFormula | RequestDistribution:
    if document.preset is not None:
        return preset(document.preset)
    if document.trace is not None:
        return named_trace(document.trace, inputs, document.zero_token_rows)
    if document.histogram is not None:
        bins = document.histogram
        return request_distribution([b.input for b in bins], [b.output for b in bins], weight=[b.weight for b in bins])
    assert document.input is not None and document.output is not None  # the document's own rule
    sides = [LengthFormula(side.mean, side.std, side.distribution) for side in (document.input, document.output)]
    return RequestFormula(sides[0], sides[1], document.correlation)


def as_weighted(source: Requests | RequestFormula | RequestDistribution) -> Requests | RequestDistribution:
    """The requests as observed, or the weighted lengths of a formula."""
    return formula_distribution(source) if isinstance(source, RequestFormula) else source


def _as_distribution(source: Requests | RequestFormula | RequestDistribution) -> RequestDistribution:
    weighted = as_weighted(source)
    return observed_distribution(weighted) if isinstance(weighted, Requests) else weighted


def read_quality(
    document: QualityDocument | None,
    network: LoweredNetwork,
    native_sets: Iterable[Collection[str]],
    loads: tuple[Load, ...] | None = None,
    n_batches: int = 1,
) -> Quality:
    """
    The mixes a study allows: named recipes, and what arrays of `native_sets` run best within the budget.

    A budget that even bf16 cannot keep is no fault of the document but a study without a feasible design.
    """
    kappa = known_kappa(network.name)
    least = mix_kl_nats(RECIPES["bf16"], network, kappa=kappa)
    if document is None:
        return _quality(float("inf"), tuple(RECIPES[name] for name in DEFAULT_RECIPES), network, kappa)
    asked = document.max_kl_nats
    if asked is not None and asked < least:
        return Quality(asked, (), (), least, kappa)
    with pointing_at("/quality"):
        budget = budget_nats(network, max_kl_nats=asked, no_worse_than=document.no_worse_than, kappa=kappa)
        sets = tuple(tuple(each) for each in native_sets)
        limit = int(np.clip(MIX_BATCHES // n_batches, FEWEST_MIXES, MOST_MIXES))
        found = _competing_mixes(budget, document.no_worse_than, network, sets, kappa, loads, limit)
    return dataclasses.replace(_quality(budget, found.mixes, network, kappa), selection=found)


@functools.lru_cache(maxsize=64)
def _competing_mixes(
    budget: float,
    named: str | None,
    network: LoweredNetwork,
    native_sets: tuple[tuple[str, ...], ...],
    kappa: float,
    loads: tuple[Load, ...] | None,
    limit: int,
) -> MixSelection:
    """bf16, the recipe that sets the budget, and what costs least beside them: other recipes or mixes found."""
    recipes = recipes_under_budget(budget, network, names=SEARCHED_RECIPES, kappa=kappa)
    kept = [mix for mix in recipes if mix.name in ("bf16", named)]
    return mixes_of_space(
        budget, network, native_sets, always=kept, candidates=recipes, loads=loads, kappa=kappa, limit=limit
    )


def _quality(budget: float, mixes: tuple[PrecisionMix, ...], network: LoweredNetwork, kappa: float) -> Quality:
    kl_nats = tuple(mix_kl_nats(mix, network, kappa=kappa) for mix in mixes)
    return Quality(budget, mixes, kl_nats, mix_kl_nats(RECIPES["bf16"], network, kappa=kappa), kappa)


def native_sets(space: Space) -> list[tuple[str, ...]]:
    """Sets of native classes that designs of a space have."""
    return [tuple(value) for p in space.parameters if p.name == "native_formats" for value in p.values]


def read_system(document: SystemDocument) -> System:
    """Chips and how many share a node; one node where nothing is said."""
    node = document.n_chips_per_node or document.n_chips
    return System(
        document.n_chips, node, document.host_sharing_exponent, document.host_bandwidth, read_interconnect(document)
    )


def read_interconnect(document: SystemDocument) -> Interconnect:
    """Topologies of the links of a system."""
    up, out = document.scale_up, document.scale_out
    sides = (document.n_chips_per_node or document.n_chips,) if up.topology == "ring" else tuple(up.dimensions or ())
    network = None
    if out is not None:
        network = ScaleOut(out.nodes_per_leaf, out.oversubscription, out.latency or 0.0, out.bandwidth)
    return Interconnect(ScaleUp(up.topology, sides, up.latency or 0.0), network, document.overlap_fraction)


def require_links(document: SystemDocument, scale_up_bytes_per_s: float, pointer: str) -> None:
    """
    Refuse chips without links where the links of a node form a ring, mesh or torus.

    Raises
    ------
    StudyError
        With `pointer` to what states the links.
    """
    topology, node = document.scale_up.topology, document.n_chips_per_node or document.n_chips
    if topology != "switched" and node > 1 and scale_up_bytes_per_s <= 0:
        detail = f"needs scale-up links above 0 B/s, since the chips of a node form a {topology}"
        raise StudyError([{"pointer": pointer, "detail": detail}])


def _read_slo(document: SloDocument) -> Slo:
    """The tightest stated percentile: the closed form is a lower bound of all of them."""
    ttft = [v for v in (document.ttft_p50, document.ttft_p95, document.ttft_p99) if v is not None]
    tpot = [v for v in (document.tpot_p50, document.tpot_p95, document.tpot_p99) if v is not None]
    return Slo(min(ttft, default=float("inf")), min(tpot, default=float("inf")))


def _read_speculation(document: SpeculationDocument | None, pointer: str, inputs: Inputs) -> Speculation | None:
    """Speculative decoding as a scenario states it."""
    if document is None:
        return None
    draft = None
    if document.draft_network is not None:
        draft = read_network_of(document.draft_network, f"{pointer}/draft_network", inputs)
        with pointing_at(f"{pointer}/draft_network"):
            require_served(draft)
    return Speculation(document.draft_tokens, document.acceptance, draft)


def read_serving(
    document: ServingDocument, study: StudyDocument, pointer: str, inputs: Inputs
) -> tuple[ServingScenario, Quality]:
    """A serving scenario with the mixes its quality budget allows (none where it allows none)."""
    network = read_network_of(document.network, f"{pointer}/network", inputs)
    with pointing_at(f"{pointer}/network"):
        require_served(network)
    requests = read_requests(document.requests, f"{pointer}/requests", document.prefix_hit_fraction, inputs)
    with pointing_at(f"{pointer}/requests"):
        _require_context(requests, network)
    space = read_space(study.space)
    moments = request_moments(requests)
    largest = document.batching.max_batch
    loads = representative_loads((moments.context_tokens,), moments.prompt_tokens, largest)
    n_batches = sum(batch <= largest for batch in BATCH_GRID)
    quality = read_quality(study.quality, network, native_sets(space), loads, n_batches)
    scenario = ServingScenario(
        name=document.name,
        network=network,
        requests=moments,
        slo=_read_slo(document.slo),
        scheduling=document.scheduling,
        system=read_system(study.system),
        mixes=quality.mixes or (RECIPES["bf16"],),
        max_batch=document.batching.max_batch,
        step_overhead_s=document.step_overhead or constants("launch")["step_overhead_s"],
        routing_skew=document.routing_skew,
        speculation=_read_speculation(document.speculation, f"{pointer}/speculation", inputs),
        largest_memory_bytes=_largest_memory_bytes(space, study),
        offload=study.system.offload,
        turns_per_session=_turns_per_session(document.requests, inputs),
        plan=None if document.plan is None else ParallelPlan(**document.plan.model_dump()),
    )
    return scenario, quality


def _turns_per_session(document: RequestsDocument, inputs: Inputs) -> float:
    """Requests of a conversation: as stated, as a trace numbers them, or one."""
    if document.sessions is not None:
        return float(document.sessions.turns)
    trace = None if document.trace is None else named_trace(document.trace, inputs, document.zero_token_rows)
    if trace is None or trace.session_id is None:
        return 1.0
    return trace.n / len(np.unique(trace.session_id))


def _largest_memory_bytes(space: Space, study: StudyDocument) -> float:
    """Memory that no design of the space and budget exceeds, the second tier only where it is used [B]."""
    values = {p.name: p.values for p in space.parameters}
    allowed = study.budget.memory_stacks or np.inf
    stacks = [each for each in values["memory_stacks"] if each <= allowed] or [min(values["memory_stacks"])]
    kinds = [float(memory_kind(each)) for each in values["memory_kind"]]
    main = float(memory_capacity_bytes(np.array(kinds), np.full(len(kinds), max(stacks))).max())
    if not study.system.offload:
        return main
    tiers = [float(second_tier(name)) for name in values["second_tier"]]
    return main + float(second_tier_column("capacity_bytes", tiers).max())


def _require_context(requests: RequestDistribution, network: LoweredNetwork) -> None:
    longest = float((requests.input_tokens + requests.output_tokens).max())
    if longest > network.max_context_tokens:
        raise ValueError(
            f"input and output tokens must be at most {network.max_context_tokens:g}, the context of {network.name}, "
            f"got {longest:g}"
        )
