"""Networks with recurrent layers, for tests."""

from models.architectures import lower, read_network

MAMBA2 = {
    "model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 8, "num_heads": 80, "head_dim": 64,
    "vocab_size": 50288, "state_size": 128, "n_groups": 1, "conv_kernel": 4, "expand": 2,
}  # fmt: skip

HYBRID = {
    "model_type": "nemotron_h", "hidden_size": 1024, "num_hidden_layers": 4, "hybrid_override_pattern": "M-M*",
    "mamba_num_heads": 32, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "num_attention_heads": 16,
    "num_key_value_heads": 4, "attention_head_dim": 64, "intermediate_size": 4096, "vocab_size": 32000,
    "max_position_embeddings": 8192,
}  # fmt: skip


def recurrent():
    """Mamba-2 layers only."""
    return lower(read_network(MAMBA2, "recurrent"))


def hybrid():
    """Mamba-2, attention and feed-forward layers."""
    return lower(read_network(HYBRID, "hybrid"))
