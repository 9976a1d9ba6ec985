"""Convnet, GEMM list and training scenarios of a study document -> scenarios of the model."""

from __future__ import annotations

from explorer.document import ConvnetDocument, GemmListDocument, QualityDocument, StudyDocument, TrainingDocument
from explorer.inputs import InputFile, Inputs, open_input, read_plain_document, required_input
from explorer.workload import SEARCHED_RECIPES, Quality, pointing_at, read_network_of, read_system
from models.architectures import LoweredNetwork
from models.architectures.convnet import CONVNETS, ConvLayers, load_convnet, read_layer_table
from models.architectures.gemm_list import GemmShapes, gemm_list, read_gemm_list
from models.architectures.training import training_step
from models.architectures.training_memory import TrainingPlan
from models.precision.budget import budget_nats, recipes_under_budget
from models.precision.error import known_kappa, mix_kl_nats
from models.precision.mix import RECIPES, PrecisionMix, recipe
from models.precision.training_error import require_trainable
from models.serving.scenario import System
from models.throughput.gemms import FOLLOWS_MIX
from models.throughput.scenario import ConvnetScenario, GemmListScenario, TrainingScenario
from models.throughput.training import training_plans


def read_convnet(
    document: ConvnetDocument, study: StudyDocument, pointer: str, inputs: Inputs
) -> tuple[ConvnetScenario, Quality]:
    """A convolution network of the catalogue, or a layer table."""
    with pointing_at(f"{pointer}/network"):
        layers = _layers(document.network, inputs)
    quality = _plain_quality(study.quality, len(layers.names))
    mixes = quality.mixes or (RECIPES["bf16"],)
    system = read_system(study.system)
    return ConvnetScenario(document.name, layers, document.batch, mixes, system, document.lowering), quality


def _layers(name: str, inputs: Inputs) -> ConvLayers:
    file = None if name in CONVNETS else open_input(name, inputs)
    return load_convnet(name) if file is None else read_layer_table(file.content, file.name)


def read_gemms(
    document: GemmListDocument, study: StudyDocument, pointer: str, inputs: Inputs
) -> tuple[GemmListScenario, Quality]:
    """A list of GEMMs from the document, or from a file."""
    if document.rows is not None:
        with pointing_at(f"{pointer}/rows"):
            rows = [row.model_dump(exclude_none=True) for row in document.rows]
            gemms = gemm_list(rows, "rows", default_format=FOLLOWS_MIX)
    else:
        with pointing_at(f"{pointer}/file"):
            gemms = read_gemm_file(required_input(str(document.file), inputs))
    quality = _plain_quality(study.quality, 1)
    mixes = quality.mixes or (RECIPES["bf16"],)
    return GemmListScenario(document.name, gemms, mixes, read_system(study.system)), quality


def read_gemm_file(file: InputFile) -> GemmShapes:
    """The GEMMs of a CSV table, or of a list of rows in YAML or JSON; rows without a format follow the mix."""
    if not file.name.lower().endswith((".yaml", ".yml", ".json")):
        return read_gemm_list(file.content, FOLLOWS_MIX, file.name)
    rows = read_plain_document(file)
    rows = rows.get("rows") if isinstance(rows, dict) else rows
    if not isinstance(rows, list):
        raise ValueError(f"{file.name} must hold a list of rows with m, n and k")
    return gemm_list(rows, file.name, default_format=FOLLOWS_MIX)


def _plain_quality(document: QualityDocument | None, n_layers: int) -> Quality:
    """
    The mixes of a network that the error model was not measured on: judged as a plain decoder of as many layers.

    Without a quality budget everything stays in bf16.
    """
    least = mix_kl_nats(RECIPES["bf16"], n_layers)
    if document is None:
        return Quality(float("inf"), (RECIPES["bf16"],), (least,), least)
    with pointing_at("/quality"):
        asked = document.max_kl_nats
        budget = asked if asked is not None and asked < least else budget_nats(n_layers, **document.model_dump())
        mixes = recipes_under_budget(budget, n_layers, names=SEARCHED_RECIPES)
    return Quality(budget, mixes, tuple(mix_kl_nats(mix, n_layers) for mix in mixes), least)


def read_training(
    document: TrainingDocument, study: StudyDocument, pointer: str, inputs: Inputs
) -> tuple[TrainingScenario, Quality]:
    """One training step: the plan of the document, or the default ones."""
    network = read_network_of(document.network, f"{pointer}/network", inputs)
    system = read_system(study.system)
    with pointing_at(f"{pointer}/precision"):
        mix = recipe(document.precision)
        require_trainable(mix)
    with pointing_at(pointer if document.plan is None else f"{pointer}/plan"):
        plans = _plans(document, network, system)
        for plan in plans:
            training_step(network, plan, mix, document.sequence_tokens, document.global_batch_sequences)
    scenario = TrainingScenario(
        document.name, network, plans, mix, document.sequence_tokens, document.global_batch_sequences, system
    )
    return scenario, _training_quality(study.quality, mix, network)


def _training_quality(document: QualityDocument | None, mix: PrecisionMix, network: LoweredNetwork) -> Quality:
    """
    The recipe a scenario states, if the error of its forward formats at the output is within the study's budget.

    Gradients and optimizer state have no share in it: `models.precision.training_error` says what they do instead.
    """
    kappa = known_kappa(network.name)
    own = mix_kl_nats(mix, network, kappa=kappa)
    if document is None:
        return Quality(float("inf"), (mix,), (own,), own, kappa)
    budget = document.max_kl_nats
    with pointing_at("/quality"):
        if budget is None:
            budget = budget_nats(network, no_worse_than=document.no_worse_than, kappa=kappa)
    fits = own <= budget * (1.0 + 1e-12)
    return Quality(budget, (mix,) if fits else (), (own,) if fits else (), own, kappa)


def _plans(document: TrainingDocument, network: LoweredNetwork, system: System) -> tuple[TrainingPlan, ...]:
    if document.plan is None:
        return training_plans(
            network, system, document.sequence_tokens, document.global_batch_sequences, document.recompute
        )
    stated = document.plan.model_dump()
    chips = stated["tensor_parallel"] * stated["pipeline_parallel"]
    if system.n_chips % chips:
        raise ValueError(f"tensor_parallel x pipeline_parallel must divide {system.n_chips} chips, got {chips}")
    return (TrainingPlan(**stated, data_parallel=system.n_chips // chips, recompute=document.recompute),)
