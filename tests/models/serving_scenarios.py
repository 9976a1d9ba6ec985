"""Small serving scenarios that compile and evaluate in a blink."""

import dataclasses

import numpy as np

from models.architectures import load_network, lower
from models.precision.mix import RECIPES
from models.serving.scenario import ServingScenario, Slo, System
from models.serving.steady import compile_serving
from models.workload.distribution import request_distribution, request_moments


def scenario(network="llama-3.1-8b", *, mixes=("bf16", "w4a16", "fp8_kv8"), n_chips=2, per_node=None, **changes):
    """A chat on two chips in three precision mixes and batches up to eight."""
    requests = request_distribution([200.0, 600.0, 1500.0], [100.0, 200.0, 150.0], weight=[1, 2, 1])
    built = ServingScenario(
        name="chat",
        network=lower(load_network(network)),
        requests=request_moments(requests),
        slo=Slo(),
        scheduling="chunked",
        system=System(n_chips, per_node or n_chips),
        mixes=tuple(RECIPES[name] for name in mixes),
        max_batch=8,
        step_overhead_s=1e-3,
    )
    return dataclasses.replace(built, **changes)


def compiled(*args, plans=None, **changes):
    """The programs of `scenario`."""
    return compile_serving(scenario(*args, **changes), plans)


def same(first, second, relative=1e-12):
    """Whether two evaluations or activities hold the same numbers in every array."""
    for field in dataclasses.fields(first):
        a, b = getattr(first, field.name), getattr(second, field.name)
        if isinstance(a, np.ndarray):
            np.testing.assert_allclose(a, b, rtol=relative, err_msg=field.name)
        elif field.name in ("macs", "violations", "choices"):
            assert a.keys() == b.keys()
            for key in a:
                np.testing.assert_allclose(a[key], b[key], rtol=relative, atol=1e-12, err_msg=key)
    return True
