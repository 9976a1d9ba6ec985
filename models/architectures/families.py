"""Every known `model_type` and the function that reads its configuration."""

from __future__ import annotations

import functools
from collections.abc import Callable

from models.architectures.checkpoint import Checkpoint
from models.architectures.classic import (
    read_bloom,
    read_falcon,
    read_gpt2,
    read_gpt_neox,
    read_gptj,
    read_opt,
    read_phi,
    read_starcoder2,
)
from models.architectures.decoder import TRAITS, Traits, full_only, read_gated_decoder
from models.architectures.encoders import read_bert, read_t5, read_vit
from models.architectures.fields import Fields
from models.architectures.hybrid import read_mamba2, read_nemotron_h, read_qwen3_next
from models.architectures.latent import first_dense_then_experts, read_latent_decoder
from models.architectures.network import Network

Reader = Callable[[Fields, str, Checkpoint], Network]

GLM4_MOE = Traits(full_only, first_dense_then_experts, output_bias="never", qk_norm="head")

ARCHITECTURES: dict[str, Reader] = {
    **{name: functools.partial(read_gated_decoder, traits=traits) for name, traits in TRAITS.items()},
    "bert": read_bert,
    "bloom": read_bloom,
    "deepseek_v2": read_latent_decoder,
    "deepseek_v3": read_latent_decoder,
    "falcon": read_falcon,
    "glm4_moe": functools.partial(read_gated_decoder, traits=GLM4_MOE),
    "gpt2": read_gpt2,
    "gpt_neox": read_gpt_neox,
    "gptj": read_gptj,
    "kimi_k2": read_latent_decoder,
    "mamba2": read_mamba2,
    "nemotron_h": read_nemotron_h,
    "opt": read_opt,
    "phi": read_phi,
    "qwen3_next": read_qwen3_next,
    "qwen3_5_moe_text": read_qwen3_next,
    "qwen3_5_text": read_qwen3_next,
    "roberta": read_bert,
    "starcoder2": read_starcoder2,
    "t5": read_t5,
    "vit": read_vit,
    "xlm-roberta": read_bert,
}
