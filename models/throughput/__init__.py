"""Fixed pieces of work (images, lists of GEMMs, training steps) as programs, and their rate on many designs."""

from models.throughput.fixed import compile_fixed_work, fixed_work
from models.throughput.work import CompiledWork

__all__ = ["CompiledWork", "compile_fixed_work", "fixed_work"]
