"""When requests arrive: rate, burstiness and slow drift, observed and drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.checks import FloatArray, require_non_negative, require_positive

SHORT_WINDOW_S, LONG_WINDOW_S = 10.0, 60.0
"""Windows in which the dispersion of counts is reported; bursts show in the first, drift in the second."""


@dataclass(frozen=True)
class ArrivalStatistics:
    """
    Rate and burstiness of observed arrivals; None where there are too few arrivals to tell.

    `interarrival_cv` is 1 for Poisson arrivals. A dispersion is the variance over the mean of the counts in windows
    of that length, again 1 for Poisson; one well above the squared coefficient of variation is a drifting rate.
    """

    duration_s: float
    rate_per_s: float | None
    interarrival_cv: float | None
    dispersion_10_s: float | None
    dispersion_60_s: float | None


@dataclass(frozen=True)
class Arrivals:
    """
    Arrivals asked for by a scenario.

    Either `rate_per_s` or `load`, the share of the sustainable rate, or neither: all requests at once, offline.
    `from_trace` takes the trace's own times, scaled to the rate or load where one is given; else times are drawn
    with coefficient of variation `cv` and, where given, dispersion in windows of 60 s.
    """

    rate_per_s: float | None = None
    load: float | None = None
    cv: float = 1.0
    dispersion_60_s: float | None = None
    from_trace: bool = False

    def __post_init__(self) -> None:
        if self.rate_per_s is not None and self.load is not None:
            raise ValueError("arrivals must give a rate or a load, got both")
        for name, value, unit in (("rate", self.rate_per_s, "requests/s"), ("load", self.load, "1")):
            if value is not None:
                require_positive(f"arrivals {name}", value, unit)
        require_non_negative("arrivals cv", self.cv, "1")
        if self.dispersion_60_s is not None:
            require_positive("arrivals dispersion", self.dispersion_60_s, "1")


def arrival_statistics(arrival_s: FloatArray) -> ArrivalStatistics:
    """
    Return rate and burstiness of observed arrivals.

    Parameters
    ----------
    arrival_s : array of shape (n,)
        Not decreasing. [s]

    Examples
    --------
    >>> arrival_statistics(np.arange(11.0)).rate_per_s
    1.0
    """
    gaps_s = np.diff(arrival_s)
    duration_s = float(gaps_s.sum())
    several = duration_s > 0
    return ArrivalStatistics(
        duration_s=duration_s,
        rate_per_s=len(gaps_s) / duration_s if several else None,
        interarrival_cv=float(gaps_s.std() / gaps_s.mean()) if several and len(gaps_s) > 1 else None,
        dispersion_10_s=dispersion(arrival_s, SHORT_WINDOW_S),
        dispersion_60_s=dispersion(arrival_s, LONG_WINDOW_S),
    )


def dispersion(arrival_s: FloatArray, window_s: float) -> float | None:
    """
    Return variance over mean of the number of arrivals in whole windows, None with fewer than two windows.

    Parameters
    ----------
    arrival_s : array of shape (n,)
        Not decreasing. [s]
    window_s : float
        Length of a window. [s]

    Examples
    --------
    >>> dispersion(np.arange(0.0, 100.0, 0.5), 10.0)
    0.0
    """
    require_positive("window", window_s, "s")
    elapsed_s = arrival_s - arrival_s[0]
    n_windows = int(elapsed_s[-1] // window_s)
    if n_windows < 2:
        return None
    edges_s = window_s * np.arange(n_windows + 1) if n_windows <= len(arrival_s) else None
    if edges_s is None:
        return _sparse_dispersion(elapsed_s, window_s, n_windows)
    counts = np.diff(np.searchsorted(elapsed_s, edges_s))
    return float(counts.var() / counts.mean()) if counts.any() else None


def _sparse_dispersion(elapsed_s: FloatArray, window_s: float, n_windows: int) -> float | None:
    """The same with more windows than arrivals: empty windows are counted, not stored."""
    windows = elapsed_s // window_s
    _, counts = np.unique(windows[windows < n_windows], return_counts=True)
    mean = counts.sum() / n_windows
    return float((np.sum(counts.astype(np.float64) ** 2) / n_windows - mean**2) / mean) if mean > 0 else None


def draw_arrivals(
    rate_per_s: float, cv: float, n: int, seed: int, *, dispersion_60_s: float | None = None
) -> FloatArray:
    """
    Draw arrivals with Gamma distributed gaps, on top of a slowly drifting rate where a dispersion is given.

    A renewal process alone has the dispersion cv^2 in long windows. What is asked beyond that becomes a rate that
    is constant for 60 s at a time and Gamma distributed from one minute to the next.

    Parameters
    ----------
    rate_per_s : float
        Mean rate. [requests/s]
    cv : float
        Coefficient of variation of the gaps before any drift: 1 is Poisson, 0 evenly spaced.
    n : int
        Number of arrivals.
    seed : int
        The same seed gives the same arrivals, scaled by 1 / rate where there is no drift.
    dispersion_60_s : float, optional
        Variance over mean of the counts per minute, at least cv^2.

    Returns
    -------
    array of shape (n,)
        Arrivals, the first at 0, not decreasing. [s]

    Examples
    --------
    >>> draw_arrivals(2.0, 0.0, 3, seed=0)
    array([0. , 0.5, 1. ])
    """
    require_positive("rate", rate_per_s, "requests/s")
    require_non_negative("cv", cv, "1")
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    rng = np.random.default_rng(seed)
    gaps = np.ones(n - 1) if cv == 0 else rng.gamma(1.0 / cv**2, cv**2, n - 1)
    work = np.append(0.0, np.cumsum(gaps))
    excess = 0.0 if dispersion_60_s is None else dispersion_60_s - cv**2
    if excess < 0:
        raise ValueError(f"dispersion_60_s must be at least cv^2 = {cv**2:g}, got {dispersion_60_s:g}")
    if excess == 0:
        return np.asarray(work / rate_per_s, dtype=np.float64)
    variance = excess / (rate_per_s * LONG_WINDOW_S)
    return _drifting(work, rate_per_s, variance, rng)


def _drifting(work: FloatArray, rate_per_s: float, variance: float, rng: np.random.Generator) -> FloatArray:
    """Times at which the integral of a rate, redrawn each minute with relative variance `variance`, meets `work`."""
    minute_work = rate_per_s * LONG_WINDOW_S
    factors: FloatArray = np.empty(0)
    while factors.sum() * minute_work < work[-1]:
        factors = np.append(factors, rng.gamma(1.0 / variance, variance, 64 + int(work[-1] / minute_work)))
    done = minute_work * np.append(0.0, np.cumsum(factors))
    return np.asarray(np.interp(work, done, LONG_WINDOW_S * np.arange(len(done))), dtype=np.float64)


def follow_profile(arrival_s: FloatArray, profile_s: FloatArray, profile_rate_per_s: FloatArray) -> FloatArray:
    """
    Return arrivals of rate 1 bent to a rate that changes over time.

    Parameters
    ----------
    arrival_s : array of shape (n,)
        Arrivals drawn with a mean rate of 1 per second. [s]
    profile_s : array of shape (n_points,)
        Increasing times, the first 0; the last rate holds from there on. [s]
    profile_rate_per_s : array of shape (n_points,)
        Rate from each time to the next. [requests/s]

    Returns
    -------
    array of shape (n,)
        Arrivals in real time. [s]

    Examples
    --------
    >>> follow_profile(np.arange(4.0), np.array([0.0, 2.0]), np.array([1.0, 4.0]))
    array([0.  , 1.  , 2.  , 2.25])
    """
    require_positive("profile rate", profile_rate_per_s, "requests/s")
    if len(profile_s) != len(profile_rate_per_s) or profile_s[0] != 0 or (np.diff(profile_s) <= 0).any():
        raise ValueError("profile times must begin at 0, increase, and be as many as the rates")
    done = np.append(0.0, np.cumsum(np.diff(profile_s) * profile_rate_per_s[:-1]))
    piece = np.searchsorted(done, arrival_s, side="right") - 1
    bent: FloatArray = profile_s[piece] + (arrival_s - done[piece]) / profile_rate_per_s[piece]
    return bent


def scaled_to_rate(arrival_s: FloatArray, rate_per_s: float) -> FloatArray:
    """
    Return arrivals stretched evenly so that their mean rate is the one given, the first at 0.

    Raises
    ------
    ValueError
        If all arrivals fall together, which no stretching spreads.

    Examples
    --------
    >>> scaled_to_rate(np.array([0.0, 1.0, 4.0]), 1.0)
    array([0. , 0.5, 2. ])
    """
    require_positive("rate", rate_per_s, "requests/s")
    duration_s = float(arrival_s[-1] - arrival_s[0])
    if duration_s == 0:
        raise ValueError("arrivals must not all fall together where a rate or load is asked")
    stretched: FloatArray = (arrival_s - arrival_s[0]) * ((len(arrival_s) - 1) / (rate_per_s * duration_s))
    return stretched
