"""Text on which amplification is measured, cut into the tokens of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.tables import DATA

_BYTE_LEVEL = {" ": "Ġ", "\n": "Ċ"}
"""Stand-ins of byte-level vocabularies for the two blanks that English prose needs."""

_SENTENCE_PIECE = {" ": "▁", "\n": "<0x0A>"}


def probe_tokens(vocabulary: Sequence[str], n_sequences: int = 2, n_tokens: int = 80) -> NDArray[np.int64]:
    """
    Return the shipped probe text as token ids, shape (n_sequences, n_tokens).

    Takes the longest token of the vocabulary at each position: near enough to the true merges for an error
    measurement, and the same for every tokenizer.

    Raises
    ------
    ValueError
        If the vocabulary cannot spell the text or the text is too short.
    """
    if not vocabulary:
        raise ValueError("the checkpoint has no vocabulary, so token ids must be given")
    text = (DATA / "precision" / "probe_text.txt").read_text(encoding="utf-8").strip()
    byte_level = any(token.startswith("Ġ") for token in vocabulary)
    blanks = _BYTE_LEVEL if byte_level else _SENTENCE_PIECE
    ids = _longest_matches("".join(blanks.get(letter, letter) for letter in text), vocabulary)
    needed = n_sequences * n_tokens
    if len(ids) < needed:
        raise ValueError(f"probe text must have at least {needed} tokens, got {len(ids)}")
    return np.array(ids[:needed], dtype=np.int64).reshape(n_sequences, n_tokens)


def _longest_matches(text: str, vocabulary: Sequence[str]) -> list[int]:
    position = {token: i for i, token in enumerate(vocabulary)}
    longest = min(max(map(len, vocabulary)), 32)
    ids: list[int] = []
    start = 0
    while start < len(text):
        ends = range(min(start + longest, len(text)), start, -1)
        match = next((end for end in ends if text[start:end] in position), None)
        if match is None:
            raise ValueError(f"the vocabulary of the checkpoint has no token for {text[start]!r}")
        ids.append(position[text[start:match]])
        start = match
    return ids
