"""A number for a span out of its ids, for spans that have none of their own."""

from __future__ import annotations

from struct import Struct

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import NO_SEQ, Ints

_IDS = Struct("<QQQ")
_MASK = 2**64 - 1
_MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93)


def mix_ids(trace_id: bytes, span_id: bytes) -> int:
    """64 bits of trace id and span id: the same in every delivery of a span.

    >>> mix_ids(bytes(15) + b"a", bytes(7) + b"b") == mix_ids(bytes(15) + b"a", bytes(7) + b"c")
    False
    """
    low, high, span = _IDS.unpack(trace_id + span_id)
    mixed = (low * _MIX[0] ^ high * _MIX[1] ^ span * _MIX[2]) & _MASK
    mixed ^= mixed >> 32
    signed = mixed - (mixed >> 63 << 64)
    return signed if signed != NO_SEQ else 0


def mix_columns(
    low: npt.NDArray[np.uint64], high: npt.NDArray[np.uint64], span: npt.NDArray[np.uint64]
) -> Ints:
    """:func:`mix_ids` for many: the halves of the trace ids, and the span ids, little-endian."""
    mixed = low * np.uint64(_MIX[0]) ^ high * np.uint64(_MIX[1]) ^ span * np.uint64(_MIX[2])
    mixed ^= mixed >> np.uint64(32)
    signed: Ints = mixed.view(np.int64)
    signed[signed == NO_SEQ] = 0
    return signed
