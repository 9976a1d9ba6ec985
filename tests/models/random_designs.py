"""Random designs, their ordered resources, and pairs of which one has no less of any: for tests of the contract."""

import numpy as np

from models.hardware.design import DESIGN_FIELDS, reference_design, replace, take

RESOURCES = (
    "arrays_per_core", "n_cores", "clock_hz", "vector_lanes_per_core", "scratchpad_bytes_per_core", "l2_bytes",
    "noc_bytes_per_cycle_per_core", "memory_bandwidth_bytes_per_s", "memory_capacity_bytes", "scale_up_bytes_per_s",
    "scale_out_bytes_per_s",
)  # fmt: skip
"""More of any of these is never slower, and never smaller or cheaper."""

MEMORY = ("memory_stacks", "memory_bandwidth_bytes_per_s", "memory_capacity_bytes")
"""One resource to a buyer: stacks bring bandwidth and capacity."""


def random_designs(seed, n_designs, **fixed):
    """Designs across three orders of magnitude, with every mixture of native formats."""
    rng = np.random.default_rng(seed)
    stacks = rng.integers(1, 9, n_designs)
    columns = {
        "array_m": 2.0 ** rng.integers(2, 8, n_designs),
        "array_n": 2.0 ** rng.integers(2, 8, n_designs),
        "array_k": 2.0 ** rng.integers(0, 5, n_designs),
        "array_groups": rng.choice([1, 2, 4], n_designs),
        "stationarity": rng.integers(0, 3, n_designs),
        "arrays_per_core": rng.integers(1, 9, n_designs),
        "n_cores": rng.integers(1, 257, n_designs),
        "clock_hz": rng.uniform(0.6e9, 2.2e9, n_designs),
        "vector_lanes_per_core": 2.0 ** rng.integers(4, 10, n_designs),
        "scratchpad_bytes_per_core": 2.0 ** rng.integers(16, 25, n_designs),
        "l2_bytes": rng.choice([0.0, 8.0, 48.0, 192.0], n_designs) * 2**20,
        "noc_bytes_per_cycle_per_core": 2.0 ** rng.integers(5, 9, n_designs),
        "memory_stacks": stacks,
        "memory_bandwidth_bytes_per_s": stacks * 8e11,
        "memory_capacity_bytes": stacks * 24.0 * 2**30,
        "scale_up_bytes_per_s": rng.choice([0.0, 5e10, 4.5e11], n_designs),
        "scale_out_bytes_per_s": rng.choice([0.0, 2.5e10, 1e11], n_designs),
        "int8_rate_ratio": rng.choice([0.0, 2.0], n_designs),
        "fp8_rate_ratio": rng.choice([0.0, 2.0], n_designs),
        "fp4_rate_ratio": rng.choice([0.0, 4.0], n_designs),
    }
    return replace(take(reference_design(), np.zeros(n_designs, dtype=int)), **(columns | fixed))


def with_more(designs, seed, resources=RESOURCES):
    """The same designs with up to four times as much of every resource in `resources`, some left as they are."""
    rng = np.random.default_rng(seed)
    raised = {}
    for name in resources:
        factor = np.where(rng.random(designs.n_designs) < 0.3, 1.0, rng.uniform(1.0, 4.0, designs.n_designs))
        values = (
            getattr(designs, name) * factor + (designs.l2_bytes == 0) * (factor - 1.0) * (name == "l2_bytes") * 2**22
        )
        raised[name] = np.ceil(values) if name in ("arrays_per_core", "n_cores", "vector_lanes_per_core") else values
    return replace(designs, **raised)


def between(low, high, seed):
    """One random design inside each box of `low` and `high`: every field somewhere between."""
    rng = np.random.default_rng(seed)
    columns = {}
    for name in DESIGN_FIELDS:
        a, b = getattr(low, name), getattr(high, name)
        values = a + (b - a) * rng.choice([0.0, 0.5, 1.0, rng.random()], low.n_designs)
        whole = ("arrays_per_core", "n_cores", "vector_lanes_per_core", "memory_stacks")
        columns[name] = np.floor(values) if name in whole else values
    return replace(low, **columns)
