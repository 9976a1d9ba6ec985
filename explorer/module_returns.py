"""What each module of the network returns when only it gets more of a resource."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from explorer.inner_optimum import Operation
from models.hardware.design import DesignBatch
from models.hardware.rates import RATE_CLASSES
from models.operators.factor_tables import FactorTables
from models.operators.step import StepActivity, run_step
from models.precision.mix import PrecisionMix
from models.serving.steady import CompiledServing, compile_serving

MORE_FRACTION = 0.1
"""By how much more of a resource a module gets."""


def _raised(*fields: str) -> Callable[[DesignBatch], DesignBatch]:
    def raised(designs: DesignBatch) -> DesignBatch:
        more = {field: getattr(designs, field) * (1.0 + MORE_FRACTION) for field in fields}
        return dataclasses.replace(designs, **more)

    return raised


RESOURCES: Mapping[str, Callable[[DesignBatch], DesignBatch]] = {
    "matrix_rate": _raised(*[f"{name}_rate_ratio" for name in RATE_CLASSES]),
    "vector_lanes": _raised("vector_lanes_per_core"),
    "operand_bandwidth": _raised("noc_bytes_per_cycle_per_core"),
    "shared_buffer": _raised("l2_bytes"),
    "memory_bandwidth": _raised("memory_bandwidth_bytes_per_s"),
    "chip_links": _raised("scale_up_bytes_per_s", "scale_out_bytes_per_s"),
}
"""Resource -> the design with more of it."""

RESOURCES_OF = {
    "query": ("matrix_rate", "operand_bandwidth"),
    "probabilities": ("matrix_rate", "operand_bandwidth"),
    "scores": ("vector_lanes",),
}
"""What the operands of attention that never leave the chip can use; the traffic is that of keys and values."""

_VECTOR_MODULES = {"norm": "norm", "residual": "residual", "activation": "ffn_hidden"}
_EXPERT_SHARES = {"gated": 2.0 / 3.0, "plain": 0.5}


def module_resource_return(operation: Operation, mix: PrecisionMix) -> dict[str, dict[str, float]]:
    """
    Return the relative gain in step rate per relative gain of each resource, when only one module gets it.

    The design is evaluated again with `MORE_FRACTION` more of the resource; of that step only the module's own
    operators are taken, the rest stays as it was. At the highest clock: the power cap is left out.

    Returns
    -------
    dict
        Module -> resource -> return [1]. Modules that share an operator (both products of attention, both matrices
        of experts) have their share of its work; what belongs to no module of the mix is called by its operator.
    """
    scenario = dataclasses.replace(operation.scenario, mixes=(mix,), max_batch=operation.batch)
    compiled = compile_serving(scenario, [operation.plan])
    tables = FactorTables()
    base = _step(compiled, operation.designs, tables)
    owners = _owners(compiled)
    returns: dict[str, dict[str, float]] = {}
    for resource, raised in RESOURCES.items():
        better = _step(compiled, raised(operation.designs), tables)
        for name, shares in owners.items():
            saved_s = _last(base.terms[name].time_s) - _last(better.terms[name].time_s)
            gain = saved_s / (_last(base.time_s) - saved_s) / MORE_FRACTION
            for module, share in shares.items():
                row = returns.setdefault(module, dict.fromkeys(RESOURCES, 0.0))
                if resource in RESOURCES_OF.get(module, RESOURCES):
                    row[resource] += share * gain
    return returns


def _step(compiled: CompiledServing, designs: DesignBatch, tables: FactorTables) -> StepActivity:
    return run_step(compiled.step, designs, tables, keep_terms=True)


def _last(values: np.ndarray) -> float:
    """Value at the largest batch, which is the operation's."""
    return float(values[0, -1])


def _owners(compiled: CompiledServing) -> dict[str, dict[str, float]]:
    """Term -> modules that its time belongs to, with shares that add to one but for operands of one product."""
    owners: dict[str, dict[str, float]] = {}
    for term in compiled.step.terms:
        if term.kind in ("decode", "prefill"):
            scores = float(term.columns["head_dim_qk"][0])
            share = scores / (scores + float(term.columns["head_dim_v"][0]))
            products = {"key": share, "query": share, "value": 1.0 - share, "probabilities": 1.0 - share}
            owners[term.name] = products | {"scores": 1.0}
        elif term.kind == "experts":
            share = _EXPERT_SHARES[term.op]
            owners[term.name] = {term.name: share, term.name.replace("_up", "_down"): 1.0 - share}
        elif term.kind in ("vector", "fused"):
            owners[term.name] = {_VECTOR_MODULES.get(term.op, term.op): 1.0}
        else:
            owners[term.name] = {term.name: 1.0}
    return owners
