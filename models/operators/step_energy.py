"""Energy of a step, and the time it takes once the clock has settled under the power cap."""

from __future__ import annotations

from dataclasses import dataclass

from models.checks import FloatArray
from models.hardware.energy import EnergyPerAccess
from models.hardware.power import sustained_slowdown, switching_energy_ratio
from models.operators.step import StepActivity


@dataclass(frozen=True)
class SettledStep:
    """A step at the sustained clock, shape (n_designs, n_alternatives) each."""

    time_s: FloatArray
    energy_j: FloatArray
    """Of one chip, static power included."""
    slowdown: FloatArray


def dynamic_energy_j(activity: StepActivity, access: EnergyPerAccess) -> FloatArray:
    """
    Return the switching energy of one step on one chip at the highest clock: sum of activity x energy per unit.

    Parameters
    ----------
    activity : StepActivity
        Of the performance batch, arrays of shape (n_designs, n_alternatives).
    access : EnergyPerAccess
        Of the cost batch, arrays of shape (n_designs,).

    Returns
    -------
    array of shape (n_designs, n_alternatives)
        [J]
    """
    energy = activity.dram_bytes * access.dram_j_per_byte[:, None]
    energy += activity.vector_ops * access.vector_j_per_op[:, None]
    energy += activity.l2_bytes * access.l2_j_per_byte[:, None]
    energy += activity.link_bytes * access.link_j_per_byte[:, None]
    for name, macs in activity.macs.items():
        energy += macs * access.mac_j[name][:, None]
    return energy


def settle(activity: StepActivity, access: EnergyPerAccess, tdp_w: FloatArray) -> SettledStep:
    """
    Return the step at the clock it settles to under the cap.

    The clock falls with the power of the work really issued; voltage follows, so switching energy falls with the
    square of the slowdown. Time and energy rise with the static power, so that of the cost batch bounds both.

    Parameters
    ----------
    activity : StepActivity
        At the highest clock.
    access : EnergyPerAccess
        Of the cost batch.
    tdp_w : array of shape (n_designs,)
        Cap. [W]
    """
    dynamic_j = dynamic_energy_j(activity, access)
    slowdown = sustained_slowdown(dynamic_j, activity.time_s, access.static_w[:, None], tdp_w[:, None])
    time_s = activity.time_s * slowdown
    energy_j = dynamic_j * switching_energy_ratio(slowdown) + access.static_w[:, None] * time_s
    return SettledStep(time_s, energy_j, slowdown)
