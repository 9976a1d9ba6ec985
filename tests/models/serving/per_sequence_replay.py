"""A plain replay that walks every sequence in every step: the independent oracle of the aggregated one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass
class Sequence:
    request: int
    prompt_left: int
    context: float
    output_left: float
    reserved: float


def replay_per_sequence(requests, step, limits):
    """First token and end of each request [s], from lists of sequences that are walked in every step."""
    arrivals = np.zeros(requests.n) if requests.arrival_s is None else requests.arrival_s - requests.arrival_s[0]
    first_s, end_s = np.full(requests.n, math.nan), np.full(requests.n, math.nan)
    waiting = list(range(requests.n))
    running: list[Sequence] = []
    clock_s = last_start_s = 0.0
    while waiting or running:
        if not running:
            clock_s = last_start_s = max(clock_s, float(arrivals[waiting[0]]))
        known_s = last_start_s if limits.scheduled_ahead else clock_s
        last_start_s = clock_s
        work = _chosen_work(requests, limits, arrivals, known_s, waiting, running)
        clock_s += _duration_s(step, limits, work)
        _advance(limits, work, clock_s, first_s, end_s)
        running = [sequence for sequence in running if sequence.output_left > 1e-9]
    return first_s, end_s


def _chosen_work(requests, limits, arrivals, known_s, waiting, running):
    """Pairs of sequence and prompt tokens in this step; 0 prompt tokens is a decode. Admits what fits."""
    whole = limits.scheduling == "whole_prompt"
    decodes = [(sequence, 0) for sequence in running if sequence.prompt_left == 0]
    room = limits.token_budget - (0 if whole else len(decodes) * limits.verified_tokens)
    prompts = []
    for sequence in running:
        if sequence.prompt_left > 0 and room > 0:
            prompts.append((sequence, min(sequence.prompt_left, room)))
            room -= prompts[-1][1]
    blocked = any(sequence.prompt_left > 0 for sequence in running) and room <= 0
    while waiting and not blocked and arrivals[waiting[0]] <= known_s and len(running) < limits.max_sequences:
        request = waiting[0]
        inputs, outputs = requests.input_tokens[request], requests.output_tokens[request]
        reserved = inputs + limits.reserved_output_fraction * outputs
        prompt = int(max(inputs - requests.cached_prefix_tokens[request], 1))
        if sum(sequence.reserved for sequence in running) + reserved > limits.kv_capacity_tokens:
            break
        if room <= 0 or (whole and prompts and prompt > room):
            break
        sequence = Sequence(request, prompt, float(inputs - prompt), float(outputs), float(reserved))
        take = prompt if whole else min(prompt, room)
        room -= take
        prompts.append((sequence, take))
        running.append(sequence)
        waiting.pop(0)
    return prompts if whole and prompts else decodes + prompts


def _duration_s(step, limits, work):
    decodes = [sequence for sequence, take in work if take == 0]
    prompts = [(sequence, take) for sequence, take in work if take > 0]
    tokens = len(decodes) * limits.verified_tokens + sum(take for _, take in prompts)
    rows = len(decodes) * limits.verified_tokens + sum(take == sequence.prompt_left for sequence, take in prompts)
    time_s = step.host_s + np.interp(tokens, step.tokens, step.linear_s)
    time_s += np.interp(rows, step.tokens, step.head_s) if rows else 0.0
    if decodes:
        time_s += step.decode_step_s + step.decode_sequence_s * len(decodes)
        time_s += step.decode_context_s * sum(sequence.context for sequence in decodes)
    return float(time_s + step.prefill_pair_s * sum(take * (seq.context + take / 2) for seq, take in prompts))


def _advance(limits, work, clock_s, first_s, end_s):
    for sequence, take in work:
        if take > 0:
            sequence.prompt_left -= take
            sequence.context += take
            if sequence.prompt_left == 0:
                first_s[sequence.request] = clock_s
                sequence.output_left -= 1
                sequence.context += 1
        else:
            sequence.output_left -= limits.tokens_per_step
            sequence.context += limits.tokens_per_step
        if sequence.output_left <= 1e-9:
            end_s[sequence.request] = clock_s
