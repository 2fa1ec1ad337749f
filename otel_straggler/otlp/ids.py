"""Trace and span ids: the same trace for all ranks of a step, without a message between them.

Span ids come from a private generator: the one of OpenTelemetry's SDK draws from Python's
``random``, which changes the user's random numbers and repeats itself under a fixed seed.
"""

from __future__ import annotations

import os
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.uint64]

WINDOW_NS = 30_000_000_000
"""Length of a trace for spans without a step."""

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_MASK = 2**64 - 1


def step_trace_id(run_id: str, attempt: int, group: str, step: int) -> bytes:
    """The 16 bytes that every rank computes for one step.

    >>> step_trace_id("run", 0, "", 7).hex()
    '36831d6b1fd441ed7d6953fd987d0307'
    """
    return _hash(f"{run_id}|{attempt}|{group}|{step}", 16)


def window_trace_id(run_id: str, attempt: int, group: str, rank: int, start_ns: int) -> bytes:
    """The trace of a rank's spans without a step, by the 30 s in which they start."""
    return _hash(f"{run_id}|{attempt}|{group}|rank {rank}|{start_ns // WINDOW_NS} windows", 16)


def root_span_id(trace_id: bytes) -> bytes:
    """The 8 bytes of the root span of a step's trace, which no rank sends.

    >>> len(root_span_id(bytes(16)))
    8
    """
    return blake2b(trace_id, digest_size=8, person=b"root").digest()


def is_sampled(trace_id: bytes, sample_every: int) -> bool:
    """True for one trace in ``sample_every``; every rank decides alike."""
    return int.from_bytes(trace_id[8:], "big") % sample_every == 0


def _hash(text: str, size: int) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()


class SpanIds:
    """splitmix64 over a counter: number ``n`` of this process always has the same id.

    Attributes:
        seed: two of one seed give the same ids, also in C++.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed = int.from_bytes(os.urandom(8), "little") if seed is None else seed

    def of(self, numbers: npt.NDArray[np.uint64]) -> Ids:
        """Ids of the spans with these numbers; never 0, which OTLP reserves for "none".

        >>> ids = SpanIds(seed=1).of(np.arange(4, dtype=np.uint64))
        >>> len(set(ids.tolist()))
        4
        """
        z: Ids = np.uint64(self.seed) + numbers * np.uint64(_GOLDEN)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIX_1)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIX_2)
        z ^= z >> np.uint64(31)
        z[z == 0] = 1
        return z

    def one(self, number: int) -> int:
        """The id of one span as OpenTelemetry's SDK writes it: its bytes on the wire, big-endian.

        >>> ids = SpanIds(seed=1)
        >>> ids.one(7).to_bytes(8, "big") == ids.of(np.array([7], np.uint64)).tobytes()
        True
        """
        z = (self.seed + number * _GOLDEN) & _MASK
        z = (z ^ (z >> 30)) * _MIX_1 & _MASK
        z = (z ^ (z >> 27)) * _MIX_2 & _MASK
        z ^= z >> 31
        return int.from_bytes((z or 1).to_bytes(8, "little"), "big")
