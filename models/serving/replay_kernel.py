"""The loop of the replay: one pass per step of the engine, whose work does not depend on the batch."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

FINISHED, AT_MAX_STEPS, AT_MAX_TIME = 0, 1, 2
"""How a replay ends."""
N_GAP_BINS = 2048
GAP_BINS_PER_E = 100.0
"""Bins of the gaps between tokens: 1 % wide, from `SHORTEST_GAP_S` on."""
SHORTEST_GAP_S = 1e-6
TIME, DECODES, WAITING, KV_TOKENS, OUTPUT_TOKENS = range(5)
"""Columns of the timeline."""


def replay_steps(
    arrival_s: Any,
    prompt_tokens: Any,
    cached_tokens: Any,
    decode_steps: Any,
    reserved_tokens: Any,
    linear_time_s: Any,
    sampled_time_s: Any,
    coefficients: Any,
    token_budget: int,
    max_sequences: int,
    kv_capacity_tokens: float,
    tokens_per_step: float,
    verified_tokens: int,
    whole_prompt: bool,
    ahead: bool,
    max_steps: int,
    max_time_s: float,
    first_token_s: Any,
    end_s: Any,
    admitted_s: Any,
    gap_weight: Any,
    timeline: Any,
) -> tuple[int, int, int, float]:
    """
    Replay continuous batching and fill the last five arrays in place.

    All running sequences advance together, so a calendar of the step in which each ends replaces the list of them:
    a ring of linked lists, one slot per step. Prompts are taken in order of arrival; at most one is unfinished.

    Parameters
    ----------
    arrival_s : array of shape (n,)
        Not decreasing. [s]
    prompt_tokens, cached_tokens : integer arrays of shape (n,)
        Prompt left to compute (0: it joins the decodes at once) and keys already cached. [tokens]
    decode_steps : integer array of shape (n,)
        Steps after the one that gives the first token.
    reserved_tokens : array of shape (n,)
        KV held from admission to the end. [tokens]
    linear_time_s, sampled_time_s : arrays of shape (n_tokens,)
        Time of everything but attention for 0, 1, 2, ... tokens of a step, and of the output head for as many
        sampled rows; beyond the last entry the last slope goes on. [s]
    coefficients : array of shape (5,)
        Decode attention per step, per sequence, per token of context; prefill attention per query-key pair; host. [s]
    first_token_s, end_s, admitted_s : arrays of shape (n,), filled
        Moments of each request; they keep their value where the replay stops before. [s]
    gap_weight : array of shape (N_GAP_BINS,), filled
        Tokens by the logarithm of the gap before them.
    timeline : array of shape (n_points, 5), filled
        Every so many steps: clock [s], decodes, waiting requests, reserved KV [tokens], tokens so far.

    Returns
    -------
    tuple
        How it ended, steps, points of the timeline, clock [s].
    """
    n = len(arrival_s)
    longest = 0
    for request in range(n):
        longest = max(longest, decode_steps[request])
    slots = min(longest, max_steps) + 1  # what would end later than the last step never ends
    slot_head = np.full(slots, -1, dtype=np.int64)
    slot_next = np.full(n, -1, dtype=np.int64)
    n_table, n_points = len(linear_time_s), len(timeline)
    clock, stall, context, reserved, emitted = arrival_s[0], 0.0, 0.0, 0.0, 0.0
    queue, arrived, decodes, sequences, left, past = 0, 0, 0, 0, 0, 0
    steps, cycle, points, stride = 0, 0, 0, 1
    scheduled_at = clock

    while queue < n or sequences > 0:
        if steps >= max_steps:
            return AT_MAX_STEPS, steps, points, clock
        if clock - arrival_s[0] > max_time_s:
            return AT_MAX_TIME, steps, points, clock
        if sequences == 0:
            clock = max(clock, arrival_s[queue])
            scheduled_at = clock
        known_until = scheduled_at if ahead else clock
        scheduled_at = clock

        # prompts: the unfinished one, then new ones while tokens, sequences and KV allow
        room = token_budget - decodes * verified_tokens
        if whole_prompt:
            room = token_budget
        tokens, pairs, joined, joined_context = 0, 0.0, 0, 0.0
        done_from = queue
        if left > 0:
            done_from = queue - 1
            take = min(left, max(room, 0))
            pairs += take * (past + 0.5 * take)
            past, left, room, tokens = past + take, left - take, room - take, tokens + take
        while left == 0 and queue < n and arrival_s[queue] <= known_until and sequences < max_sequences:
            prompt = prompt_tokens[queue]
            if reserved + reserved_tokens[queue] > kv_capacity_tokens and sequences > 0:
                break
            if prompt == 0:
                if room < verified_tokens:
                    break
                joined, joined_context, room = joined + 1, joined_context + cached_tokens[queue], room - verified_tokens
                take = 0
            else:
                if room <= 0 or (whole_prompt and tokens > 0 and prompt > room):
                    break
                take = prompt if whole_prompt else min(prompt, room)
            past = cached_tokens[queue]
            pairs += take * (past + 0.5 * take)
            past, left, room, tokens = past + take, prompt - take, room - take, tokens + take
            sequences += 1
            reserved += reserved_tokens[queue]
            admitted_s[queue] = clock
            queue += 1
        done_to = queue - 1 if left > 0 else queue

        # time of the step
        decoding = 0 if whole_prompt and tokens > 0 else decodes
        readers = decoding + joined
        size = tokens + readers * verified_tokens
        rows = readers * verified_tokens + (done_to - done_from) - joined
        duration = coefficients[4] + coefficients[3] * pairs
        last = n_table - 1
        if size <= last:
            duration += linear_time_s[size]
        else:
            duration += linear_time_s[last] + (size - last) * (linear_time_s[last] - linear_time_s[last - 1])
        if rows <= last:
            duration += sampled_time_s[rows]
        else:
            duration += sampled_time_s[last] + (rows - last) * (sampled_time_s[last] - sampled_time_s[last - 1])
        if readers > 0:
            seen = joined_context + (context if decoding > 0 else 0.0)
            duration += coefficients[0] + coefficients[1] * readers + coefficients[2] * seen
        clock += duration
        steps += 1

        # decodes gain their tokens; those whose time has come leave
        advance = not (whole_prompt and tokens > 0)
        if advance:
            context += tokens_per_step * decodes
            emitted += tokens_per_step * decodes
            if decodes > 0:
                gap = (stall + duration) / tokens_per_step
                index = int(math.log(max(gap, SHORTEST_GAP_S) / SHORTEST_GAP_S) * GAP_BINS_PER_E)
                gap_weight[min(index, N_GAP_BINS - 1)] += decodes * tokens_per_step
            stall = 0.0
            request = slot_head[cycle % slots]
            slot_head[cycle % slots] = -1
            while request >= 0:
                end_s[request] = clock
                decodes -= 1
                sequences -= 1
                reserved -= reserved_tokens[request]
                context -= cached_tokens[request] + prompt_tokens[request] + 1
                context -= tokens_per_step * decode_steps[request]
                request = slot_next[request]
            cycle += 1
        elif decodes > 0:
            stall += duration
        if decodes == 0:
            context = 0.0

        # finished prompts have their first token and join the decodes
        for request in range(done_from, done_to):
            first_token_s[request] = clock
            emitted += 1.0
            if decode_steps[request] == 0:
                end_s[request] = clock
                sequences -= 1
                reserved -= reserved_tokens[request]
            else:
                slot = (cycle - 1 + min(decode_steps[request], max_steps)) % slots
                slot_next[request] = slot_head[slot]
                slot_head[slot] = request
                decodes += 1
                context += cached_tokens[request] + prompt_tokens[request] + 1

        if steps % stride == 0:
            while arrived < n and arrival_s[arrived] <= clock:
                arrived += 1
            if points == n_points:
                points = n_points // 2
                for point in range(points):
                    timeline[point] = timeline[2 * point + 1]
                stride *= 2
            if steps % stride == 0:
                timeline[points, TIME] = clock
                timeline[points, DECODES] = decodes
                timeline[points, WAITING] = max(arrived - queue, 0)
                timeline[points, KV_TOKENS] = reserved
                timeline[points, OUTPUT_TOKENS] = emitted
                points += 1
    return FINISHED, steps, points, clock


@functools.cache
def compiled_replay_steps() -> Callable[..., tuple[int, int, int, float]]:
    """
    Return the compiled `replay_steps`; the machine code is kept on disk where a folder for it can be written.

    Compilation waits for the first replay, so that importing the model stays quick.
    """
    import numba

    try:
        compiled: Callable[..., tuple[int, int, int, float]] = numba.njit(cache=True, nogil=True)(replay_steps)
    except RuntimeError:  # no writable place for the cache: compile anew in each process
        compiled = numba.njit(nogil=True)(replay_steps)
    return compiled
