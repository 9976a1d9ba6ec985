"""Small fixed pieces of work that compile and evaluate in a blink."""

import numpy as np

from models.architectures import load_network, lower
from models.architectures.convnet import load_convnet
from models.architectures.gemm_list import gemm_list
from models.architectures.training_memory import TrainingPlan
from models.evaluate import evaluate
from models.operators.factor_tables import FactorTables
from models.precision.mix import RECIPES
from models.serving.scenario import System
from models.throughput.fixed import compile_fixed_work
from models.throughput.gemms import FOLLOWS_MIX
from models.throughput.scenario import ConvnetScenario, GemmListScenario, TrainingScenario

TABLES = FactorTables()
BF16, INT8, TRAINING = RECIPES["bf16"], RECIPES["w8a8_kv8"], RECIPES["deepseek_v3_training"]


def convnet(name="resnet-50", batch=4, mixes=(BF16, INT8), n_chips=1):
    """A convolution network on chips that each take batches of their own."""
    return compile_fixed_work(ConvnetScenario("vision", load_convnet(name), batch, mixes, System(n_chips, n_chips)))


def gemms(rows, mixes=(BF16, INT8), n_chips=1):
    """A list of GEMMs; rows without a format follow the mixes."""
    shapes = gemm_list(rows, default_format=FOLLOWS_MIX)
    return compile_fixed_work(GemmListScenario("list", shapes, mixes, System(n_chips, n_chips)))


def training(network="llama-3.1-8b", plans=None, mix=TRAINING, sequence=2048, sequences=64, n_chips=16, per_node=8):
    """A training step; by default tensor parallel 1 and 8 on two nodes."""
    plans = plans or tuple(
        TrainingPlan(tensor_parallel=t, data_parallel=n_chips // t, zero_stage=z) for t, z in ((1, 3), (8, 1))
    )
    lowered = lower(load_network(network)) if isinstance(network, str) else network
    system = System(n_chips, per_node)
    return compile_fixed_work(TrainingScenario("pretraining", lowered, plans, mix, sequence, sequences, system))


def judged(work, designs, cost=None, **options):
    """Evaluation of one piece of work."""
    return evaluate(designs, designs if cost is None else cost, [work], TABLES, **options)[0]


def term_macs(work, alternative):
    """Multiply-accumulates of all GEMMs of one run of the program, padding left out [MAC]."""
    total = 0.0
    for each in work.program.terms:
        if each.kind == "gemm":
            c = {name: values[each.index[alternative]] for name, values in each.columns.items()}
            total += c["m"] * c["n"] * c["k"] * c["instances"] * c["useful_fraction"] * each.count[alternative]
    return float(np.asarray(total))
