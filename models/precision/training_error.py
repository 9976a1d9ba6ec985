"""What the formats of a training recipe do to gradients, weights and moments: noise that averages, rules otherwise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.checks import require_positive
from models.precision.formats import Format, number_format
from models.precision.mix import PrecisionMix, TrainingFormats
from models.tables import constants

_WIDE_CODE_BITS = 16

_GRADIENT_EXPONENT_BITS = 5
"""Exponent of E5M2, whose range holds the gradients of a tensor under one scale (arXiv 2209.05433)."""


@dataclass(frozen=True)
class StateRule:
    """One stored quantity of training: the smallest change its format keeps against the change that must survive."""

    module: str
    number: Format
    smallest_kept_ratio: float
    """Change over value below which rounding to nearest leaves the value as it was."""
    needed_ratio: float

    @property
    def margin_ratio(self) -> float:
        """How often the needed change is what the format keeps; below 1 it is swallowed."""
        return self.needed_ratio / self.smallest_kept_ratio


def weight_gradient_error(mix: PrecisionMix, module: str, *, reductions: float = 1.0) -> float:
    """
    Return the relative error of the weight gradient of one module from rounding.

    dW = dY^T X sums products of two operands that are rounded independently, so their relative errors add in
    quadrature whatever the length of the sum; each addition to the stored gradient rounds once more. The error is
    unbiased noise in every step and averages out over steps: it is compared between recipes and has no share in the
    KL budget, which is the error of the trained network at its output.

    Parameters
    ----------
    mix : PrecisionMix
        With formats of training.
    module : str
        One of `GEMM_MODULES`.
    reductions : float
        Roundings of the stored gradient in a step: microbatches, and chips of a ring where it sums in that format.

    Returns
    -------
    float
        Of a gradient without rounding. [1]

    Raises
    ------
    ValueError
        If the mix states no formats of training.

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, section 3.3: all three GEMMs of a linear in
       fp8 tiles, relative error of the loss below 0.25 %.

    Examples
    --------
    >>> from models.precision.mix import recipe
    >>> f"{weight_gradient_error(recipe('deepseek_v3_training'), 'ffn_up'):.3f}"
    '0.036'
    """
    require_positive("reductions", reductions, "1")
    formats = _training(mix)
    moving = number_format(mix.activation_format[module])
    gradient = moving if moving.code_bits >= _WIDE_CODE_BITS else number_format(formats.gradient)
    stored = number_format(formats.gradient_storage).gaussian_eps
    return float(np.sqrt(moving.gaussian_eps**2 + gradient.gaussian_eps**2 + reductions * stored**2))


def state_rules(formats: TrainingFormats) -> tuple[StateRule, ...]:
    """
    Return what must survive rounding in the stored state, quantity by quantity.

    A weight takes steps of the learning rate over its size; a moment moves by 1 - beta of the new gradient. A value
    with m stored mantissa bits loses changes below 2^-(m + 2) of it. Stochastic rounding is not assumed.
    """
    known = constants("training")
    needed = {
        "master_weight": (formats.master_weight, known["smallest_update_ratio"]),
        "first_moment": (formats.first_moment, 1.0 - known["first_moment_decay_fraction"]),
        "second_moment": (formats.second_moment, 1.0 - known["second_moment_decay_fraction"]),
    }
    return tuple(
        StateRule(module, number_format(name), _smallest_kept_ratio(number_format(name)), ratio)
        for module, (name, ratio) in needed.items()
    )


def require_trainable(mix: PrecisionMix) -> None:
    """
    Refuse formats that no budget describes, because what they lose does not average out.

    Raises
    ------
    ValueError
        If master weights or moments swallow their updates, or a narrow gradient has one scale for a whole tensor.
    """
    formats = _training(mix)
    for rule in state_rules(formats):
        if rule.margin_ratio < 1.0:
            raise ValueError(
                f"{rule.module} format must keep changes of {rule.needed_ratio:.3g}, {rule.number.name} loses those "
                f"below {rule.smallest_kept_ratio:.3g} in mix '{mix.name}'"
            )
    gradient = number_format(formats.gradient)
    narrow = gradient.code_bits < _WIDE_CODE_BITS and gradient.exponent_bits < _GRADIENT_EXPONENT_BITS
    if narrow and gradient.block <= 0:  # arXiv 2412.19437 appendix B.2: coarse scales of E4M3 gradients diverge
        raise ValueError(
            f"gradient format below 16 bits and 5 exponent bits must have a scale for each block of a row, "
            f"got {gradient.name} in mix '{mix.name}'"
        )


def _training(mix: PrecisionMix) -> TrainingFormats:
    if mix.training is None:
        raise ValueError(f"precision mix '{mix.name}' must state formats of gradients and moments to train with")
    return mix.training


def _smallest_kept_ratio(number: Format) -> float:
    """Change over value that rounding to nearest may lose [1]."""
    bits = number.mantissa_bits if number.kind == "float" else number.code_bits - 1
    return float(2.0 ** -(bits + 2))
