"""What a fixed piece of work asks of a design, before any design is known."""

from __future__ import annotations

from dataclasses import dataclass

from models.architectures.convnet import ConvLayers, Lowering
from models.architectures.gemm_list import GemmShapes
from models.architectures.lowered import LoweredNetwork
from models.architectures.training_memory import TrainingPlan
from models.operators.calibration import UNCALIBRATED, Calibration
from models.precision.mix import PrecisionMix
from models.serving.scenario import System


@dataclass(frozen=True)
class ConvnetScenario:
    """Batches of images through a convolution network, one batch at a time on every chip."""

    name: str
    layers: ConvLayers
    batch: int
    mixes: tuple[PrecisionMix, ...]
    system: System
    lowering: Lowering | None = None
    """How convolutions become GEMMs; None leaves the faster way to each design."""
    calibration: Calibration = UNCALIBRATED


@dataclass(frozen=True)
class GemmListScenario:
    """Passes over a list of GEMMs, one at a time on every chip; rows without a format follow the mix."""

    name: str
    gemms: GemmShapes
    mixes: tuple[PrecisionMix, ...]
    system: System
    calibration: Calibration = UNCALIBRATED


@dataclass(frozen=True)
class TrainingScenario:
    """One optimizer step of a decoder over all chips, under the best of some plans."""

    name: str
    network: LoweredNetwork
    plans: tuple[TrainingPlan, ...]
    mix: PrecisionMix
    sequence_tokens: int
    global_batch_sequences: int
    system: System
    calibration: Calibration = UNCALIBRATED


FixedWork = ConvnetScenario | GemmListScenario | TrainingScenario
