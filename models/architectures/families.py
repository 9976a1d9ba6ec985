"""Every known `model_type` and the function that reads its configuration."""

from __future__ import annotations

import functools
from collections.abc import Callable

from models.architectures.checkpoint import Checkpoint
from models.architectures.classic import read_falcon, read_gpt2, read_gpt_neox, read_gptj, read_opt, read_phi
from models.architectures.decoder import TRAITS, read_gated_decoder
from models.architectures.encoders import read_bert, read_t5, read_vit
from models.architectures.fields import Fields
from models.architectures.hybrid import read_mamba2, read_nemotron_h, read_qwen3_next
from models.architectures.latent import read_latent_decoder
from models.architectures.network import Network

Reader = Callable[[Fields, str, Checkpoint], Network]

ARCHITECTURES: dict[str, Reader] = {
    **{name: functools.partial(read_gated_decoder, traits=traits) for name, traits in TRAITS.items()},
    "bert": read_bert,
    "deepseek_v2": read_latent_decoder,
    "deepseek_v3": read_latent_decoder,
    "falcon": read_falcon,
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
    "t5": read_t5,
    "vit": read_vit,
}
