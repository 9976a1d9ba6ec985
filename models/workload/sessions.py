"""Conversations of several turns over a prefix cache, and speculative decoding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.checks import require_at_least, require_fraction
from models.workload.distribution import RequestDistribution


@dataclass(frozen=True)
class Sessions:
    """
    Conversations whose every turn carries what was said before.

    Parameters
    ----------
    turns_per_session : int
        Turns of a conversation, at least 1.
    hit_fraction : float
        Share of the earlier turns found in the prefix cache when the next turn arrives, 0..1.
    """

    turns_per_session: int = 1
    hit_fraction: float = 1.0

    def __post_init__(self) -> None:
        require_at_least("turns_per_session", self.turns_per_session, 1.0)
        require_fraction("hit_fraction", self.hit_fraction)
        if self.turns_per_session != int(self.turns_per_session):
            raise ValueError(f"turns_per_session must be a whole number, got {self.turns_per_session:g}")


def multi_turn(distribution: RequestDistribution, sessions: Sessions) -> RequestDistribution:
    """
    Return the requests of conversations whose single turns have the given lengths.

    `distribution` says how long what a user adds in a turn and the answer to it are. Turn j carries the j - 1 earlier
    turns, taken to be of the same size within a conversation, of which `hit_fraction` is cached. A prefix that was
    cached before the first turn (a system prompt) stays cached once.

    Parameters
    ----------
    distribution : RequestDistribution
        Of n_atoms single turns.
    sessions : Sessions

    Returns
    -------
    RequestDistribution
        Of n_atoms * turns_per_session requests.

    Examples
    --------
    >>> from models.workload.distribution import request_distribution
    >>> turns = multi_turn(request_distribution(100.0, 50.0), Sessions(turns_per_session=3))
    >>> turns.input_tokens, turns.cached_prefix_tokens
    (array([100., 250., 400.]), array([  0., 150., 300.]))
    """
    n = int(sessions.turns_per_session)
    turn = np.arange(n, dtype=np.float64)[:, None]
    fresh = distribution.input_tokens - distribution.cached_prefix_tokens
    history = turn * (fresh + distribution.output_tokens)
    cached = distribution.cached_prefix_tokens + sessions.hit_fraction * history
    return RequestDistribution(
        weight=np.tile(distribution.weight / n, n),
        input_tokens=(distribution.input_tokens + history).ravel(),
        output_tokens=np.tile(distribution.output_tokens, n),
        cached_prefix_tokens=cached.ravel(),
    )


@dataclass(frozen=True)
class SpeculativeDecoding:
    """
    A draft of `draft_tokens` tokens per step, each accepted with probability `acceptance` while all before it were.

    No draft (0 tokens) is plain decoding. `draft_cost_fraction` is the time of one draft token over that of one step
    of the network itself.
    """

    draft_tokens: int = 0
    acceptance: float = 0.0
    draft_cost_fraction: float = 0.0

    def __post_init__(self) -> None:
        require_at_least("draft_tokens", self.draft_tokens, 0.0, "tokens")
        require_fraction("acceptance", self.acceptance)
        require_at_least("draft_cost_fraction", self.draft_cost_fraction, 0.0)


def accepted_tokens_per_step(speculation: SpeculativeDecoding) -> float:
    """
    Return the expected number of tokens a sequence gains in one step.

    (1 - a^(k + 1)) / (1 - a) for k draft tokens accepted with probability a, eq. 1 of [1]_: the accepted prefix of
    the draft and the one token the network itself adds.

    References
    ----------
    .. [1] Y. Leviathan, M. Kalman, Y. Matias, "Fast inference from transformers via speculative decoding",
       ICML 2023, arXiv:2211.17192.

    Examples
    --------
    >>> accepted_tokens_per_step(SpeculativeDecoding(draft_tokens=3, acceptance=0.5))
    1.875
    """
    return float(np.sum(speculation.acceptance ** np.arange(speculation.draft_tokens + 1)))


def verified_tokens_per_step(speculation: SpeculativeDecoding) -> int:
    """
    Return how many tokens of each sequence the network computes in one step: the draft and one more.

    Examples
    --------
    >>> verified_tokens_per_step(SpeculativeDecoding(draft_tokens=3, acceptance=0.5))
    4
    """
    return int(speculation.draft_tokens) + 1
