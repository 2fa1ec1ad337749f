"""What the next doubling would bring: a fit of the measured times, and its uncertainty.

The model is Amdahl's: time = serial + parallel / size, neither below zero, fitted by least squares
of the relative errors over the repeats. The interval is the one of Student's t for another run, at
95 %. Communication that grows with the size is not in the model: far extrapolation is too rosy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from otel_straggler.model.observation import Floats

MODEL = "Amdahl: serial + parallel / size, least squares of relative errors, t interval at 95 %"
_T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Quantiles of Student's t, two-sided, for 1 to 30 degrees of freedom."""
_T_MANY = 1.960


@dataclass(frozen=True, slots=True)
class Projection:
    """A time that was not measured, seconds.

    Attributes:
        size: world size; low_s, high_s: a run would take this long with 95 % probability, if the
            model holds; None where as many sizes as unknowns were measured.
        serial: part of the time of one that more ranks do not shorten, 0 to 1.
    """

    size: int
    time_s: float
    low_s: float | None
    high_s: float | None
    serial: float


def project(sizes: Sequence[int], times_s: Sequence[float]) -> Projection | None:
    """The time at twice the largest size; None below two different sizes.

    Args:
        sizes, times_s: of every run, > 0; repeats have the same size.

    >>> round(project([1, 2, 4], [10.0, 6.0, 4.0]).time_s, 6)
    3.0
    """
    if len(set(sizes)) < 2:
        return None
    inverse, measured_s = 1.0 / np.asarray(sizes, float), np.asarray(times_s, float)
    both = np.stack([np.ones_like(inverse), inverse], axis=1) / measured_s[:, None]
    size = 2 * max(sizes)
    terms, parts = _fit(both)
    serial_s, parallel_s = parts[0], parts[1]
    time_s = serial_s + parallel_s / size
    columns, at = both[:, terms], np.array([1.0, 1.0 / size])[terms]
    half_s = _half_width(columns, parts[terms], at, time_s)
    return Projection(
        size=size,
        time_s=float(time_s),
        low_s=None if half_s is None else float(max(time_s - half_s, 0.0)),
        high_s=None if half_s is None else float(time_s + half_s),
        serial=float(serial_s / (serial_s + parallel_s)),
    )


def _fit(both: Floats) -> tuple[list[int], Floats]:
    """The parts (serial, parallel), and which of them are in the fit: one of them alone where the
    other would be negative."""
    fits = []
    for terms in ([0, 1], [1], [0]):
        parts = np.zeros(2)
        parts[terms] = np.linalg.lstsq(both[:, terms], np.ones(len(both)), rcond=None)[0]
        if (parts >= 0.0).all():
            fits.append((float(((both @ parts - 1.0) ** 2).sum()), terms, parts))
    _, terms, parts = min(fits, key=lambda fit: fit[0])
    return terms, parts


def _half_width(columns: Floats, parts: Floats, at: Floats, time_s: float) -> float | None:
    """Half of the interval in which another run would be."""
    freedom = len(columns) - len(parts)
    if freedom < 1:
        return None
    variance = float(((columns @ parts - 1.0) ** 2).sum()) / freedom
    of_fit = float(at @ np.linalg.pinv(columns.T @ columns) @ at)
    quantile = _T_95[freedom - 1] if freedom <= len(_T_95) else _T_MANY
    return quantile * float(np.sqrt(variance * (of_fit + time_s**2)))
