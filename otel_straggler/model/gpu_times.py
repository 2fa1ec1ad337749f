"""GPU time of section runs, as columns beside those of an ``ObservationBatch``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from otel_straggler import semconv

Bases: TypeAlias = npt.NDArray[np.uint8]
_Floats: TypeAlias = npt.NDArray[np.float64]

HOST, EVENTS, CUPTI = range(3)
"""Codes of ``GpuTimes.basis``."""
BASIS_CODES: Final = {semconv.EVENTS_BASIS: EVENTS, semconv.CUPTI_BASIS: CUPTI}
BASIS_NAMES: Final = (semconv.HOST_BASIS, semconv.EVENTS_BASIS, semconv.CUPTI_BASIS)


@dataclass(frozen=True, slots=True, eq=False)
class GpuTimes:
    """What n rows tell of the GPU; of a row that stands for many runs, sums.

    Attributes:
        basis: (n,) ``CUPTI`` if kernels were timed, ``EVENTS`` if the stream was, between two
            events; ``HOST`` if nothing is known, and then all times are NaN.
        busy_s: (n,) with ``CUPTI`` time in which at least one kernel was at work, with ``EVENTS``
            time between the events, idle gaps and waiting included.
        nccl_s: (n,) of communication kernels together, waiting for peers included; NaN with
            ``EVENTS``.
        kernel_s: (n,) of all kernels together; NaN with ``EVENTS``, and if it is not told.
    """

    basis: Bases
    busy_s: _Floats
    nccl_s: _Floats
    kernel_s: _Floats

    def __len__(self) -> int:
        return len(self.basis)

    @classmethod
    def none(cls, n: int) -> GpuTimes:
        """Rows of which nothing is known."""
        unknown = np.broadcast_to(np.nan, n)
        return cls(np.zeros(n, np.uint8), unknown, unknown, unknown)

    @classmethod
    def join(cls, parts: Sequence[GpuTimes | None], sizes: Sequence[int]) -> GpuTimes | None:
        """All parts in order, each of so many rows; None if none tells."""
        if all(part is None for part in parts):
            return None
        whole = [p or cls.none(n) for p, n in zip(parts, sizes, strict=True)]
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(p, name) for p in whole]) for name in names))

    def take(self, rows: Any) -> GpuTimes | None:
        """Only ``rows`` (numbers, flags or a slice); None if none of them tells."""
        basis = self.basis[rows]
        if not basis.any():
            return None
        return GpuTimes(basis, self.busy_s[rows], self.nccl_s[rows], self.kernel_s[rows])

    def own_s(self) -> _Floats:
        """(n,) the rank's own work, without waiting, as far as it can be told; NaN where not known.

        With ``CUPTI`` busy - nccl where communication runs alone. Where it runs beside other
        kernels, which is what training is built to do, that would take away work as well: the
        other kernels together (kernel - nccl) are then the work, as long as they fit into the busy
        time. Never below 0. With ``EVENTS`` all the time between them.

        >>> times = GpuTimes(np.array([CUPTI, CUPTI, EVENTS], np.uint8), np.array([1.1, 1.1, 1.1]),
        ...     np.array([0.1, 0.9, np.nan]), np.array([1.1, 1.9, np.nan]))
        >>> times.own_s().round(9).tolist()
        [1.0, 1.0, 1.1]
        """
        alone_s = np.maximum(self.busy_s - self.nccl_s, 0.0)
        others_s = np.fmax(self.kernel_s - self.nccl_s, alone_s)
        own: _Floats = np.fmin(others_s, self.busy_s)
        return own
