"""What a span tells of its time on the GPU, and what of that can be believed."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from otel_straggler import semconv
from otel_straggler.model.gpu_times import BASIS_CODES, CUPTI, HOST
from otel_straggler.wire.identity import Value

GPU_KEYS: Final = (semconv.GPU_BUSY_TIME, semconv.GPU_NCCL_TIME, semconv.GPU_KERNEL_TIME)
"""Attributes whose values are numbers of nanoseconds, in the order in which they stand here."""
MOST_TIMES: Final = 10
MOST_MORE_NS: Final = 60 * 10**9
"""A time longer than 10 times the run and a minute is none: a span waits for its numbers for two
seconds, so its kernels have ended by then, and few devices and streams add up."""
LONGEST_NS: Final = (2**63 - 1 - MOST_MORE_NS) // MOST_TIMES
"""A run that is taken for no longer, so that the limit is a number of 64 bits."""
_UNKNOWN = float("nan")


class GpuNumbers(NamedTuple):
    """Of one span, as a row has them: a code of ``GpuTimes.basis``, and nanoseconds.

    NaN where a time is not known; ``refused`` counts times that were told and make no sense.
    """

    basis: int
    busy_ns: float
    nccl_ns: float
    kernel_ns: float
    refused: int = 0


def basis_of(value: Value) -> int:
    """Code of a value of ``straggler.time_basis``; whatever is not known is the host's."""
    return BASIS_CODES.get(value, HOST) if isinstance(value, str) else HOST


def gpu_numbers(found: dict[str, Value], length_ns: int) -> GpuNumbers | None:
    """From the attributes of a span; None if it tells nothing of the GPU.

    The basis is the host's if a time that it needs is missing or refused: half of a truth would
    pass for a fast rank.

    Args:
        length_ns: of the run, or of all runs of a folded span together.

    >>> told = {"straggler.time_basis": "cupti", "straggler.gpu.busy_time_ns": 900}
    >>> gpu_numbers({**told, "straggler.gpu.nccl_time_ns": 100}, 1_000)
    GpuNumbers(basis=2, busy_ns=900.0, nccl_ns=100.0, kernel_ns=nan, refused=0)
    >>> gpu_numbers({**told, "straggler.gpu.nccl_time_ns": -1}, 1_000).refused
    1
    """
    basis = basis_of(found.get(semconv.TIME_BASIS))
    if basis == HOST:
        return None
    most_ns = MOST_TIMES * min(length_ns, LONGEST_NS) + MOST_MORE_NS
    wanted = GPU_KEYS if basis == CUPTI else GPU_KEYS[:1]
    times = {key: _time(found[key], most_ns) for key in wanted if key in found}
    busy, nccl, kernel = (times.get(key, _UNKNOWN) for key in GPU_KEYS)
    refused = sum(map(math.isnan, times.values()))
    if math.isnan(busy) or (basis == CUPTI and math.isnan(nccl)):
        return GpuNumbers(HOST, _UNKNOWN, _UNKNOWN, _UNKNOWN, refused)
    return GpuNumbers(basis, busy, nccl, kernel, refused)


def _time(value: Value, most_ns: int) -> float:
    """Nanoseconds; NaN for what is no whole number from 0 to ``most_ns``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _UNKNOWN
    is_time = 0 <= value <= most_ns and int(value) == value
    return float(value) if is_time else _UNKNOWN
