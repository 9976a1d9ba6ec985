"""Predicted against measured: every reader of a measured table, by the names of the files it reads."""

from __future__ import annotations

from collections.abc import Mapping

from models.fidelity import (
    area,
    attention,
    collective,
    elementwise,
    gemm,
    layers,
    mlperf,
    moe,
    power,
    quality,
    reference,
    serving,
    training_steps,
    transformer_layer,
    vllm_requests,
)
from models.fidelity.report import TableReader

FAMILIES: Mapping[str, tuple[Mapping[str, TableReader], ...]] = {
    "gemm": (gemm.TABLES,),
    "attention": (attention.TABLES,),
    "elementwise": (elementwise.TABLES,),
    "experts": (moe.TABLES,),
    "collectives": (collective.TABLES,),
    "layers": (layers.TABLES,),
    "area": (area.TABLES,),
    "power": (power.TABLES,),
    "serving": (
        serving.TABLES,
        mlperf.TABLES,
        vllm_requests.TTFT_TABLES,
        vllm_requests.TPOT_TABLES,
        vllm_requests.END_TO_END_TABLES,
        transformer_layer.TABLES,
    ),
    "training": (training_steps.TABLES,),
    "quality": (quality.TABLES,),
    "systolic": (reference.TABLES,),
}
"""Family of operators or figures -> glob of file names -> reader; a file may have several readers."""
