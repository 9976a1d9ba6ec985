"""Operator times: GEMM, attention, vector work, collectives, experts, and the steps made of them."""
