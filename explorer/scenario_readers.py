"""Kind of a scenario -> the reader of its document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from explorer.fixed_work import read_convnet, read_gemms, read_training
from explorer.workload import read_serving

ScenarioReader = Callable[..., tuple[Any, Any]]
"""Document, study, pointer and inputs -> scenario of the model and its quality budget."""

SCENARIO_READERS: Mapping[str, ScenarioReader] = {
    "llm_serving": read_serving,
    "convnet": read_convnet,
    "gemm_list": read_gemms,
    "training": read_training,
}
