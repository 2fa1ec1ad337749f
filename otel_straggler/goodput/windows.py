"""Goodput over time: bins of a time line, and rolling windows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from otel_straggler.goodput.account import Account
from otel_straggler.goodput.partition import ascending
from otel_straggler.model.observation import Floats, Ints
from otel_straggler.semconv import EXCLUDED, PRODUCTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Time by category in B bins.

    Attributes:
        edges_ns: (B + 1,) of the bins.
        time_ns: (C, B) of all ranks together; a column adds up to ranks x the bin.
    """

    edges_ns: Ints
    time_ns: Ints


def timeline(of: Account, n_bins: int) -> Timeline:
    """The run in bins of equal length, at most one a nanosecond."""
    n_bins = max(1, min(n_bins, of.elapsed_ns))
    # By integers: a float cannot hold the time of day in nanoseconds.
    edges = of.start_ns + np.array([of.elapsed_ns * at // n_bins for at in range(n_bins + 1)])
    n_codes = len(of.categories)
    time_ns = sum(each.segments.totals_between(edges, n_codes) for each in of.by_rank)
    return Timeline(edges_ns=edges, time_ns=np.asarray(time_ns))


def rolling_goodput(of: Account, window_ns: int, ends_ns: Ints) -> Floats:
    """Productive part of the wall time in windows that end at given times, all ranks together.

    Args:
        window_ns: length; the part of a window before the run does not count.
        ends_ns: (W,) ascending.

    Returns:
        (W,) 0 to 1; NaN for a window without any time that counts.
    """
    ends = np.asarray(ends_ns, np.int64)
    edges = ascending([ends, ends - window_ns])
    if len(edges) < 2:
        return np.full(len(ends), np.nan)
    n_codes = len(of.categories)
    totals = sum(each.segments.totals_between(edges, n_codes) for each in of.by_rank)
    before = np.concatenate([np.zeros((n_codes, 1), np.int64), np.cumsum(totals, axis=1)], axis=1)
    last, first = np.searchsorted(edges, ends), np.searchsorted(edges, ends - window_ns)
    inside = (before[:, last] - before[:, first]).astype(np.float64)
    wall = inside.sum(axis=0) - inside[of.categories.index(EXCLUDED)]
    with np.errstate(invalid="ignore", divide="ignore"):
        result: Floats = inside[of.categories.index(PRODUCTIVE)] / wall
    return result


def time_between(of: Account, low_ns: int, high_ns: int, *, is_over: bool = False) -> Counter[str]:
    """Time by category between two moments of an account of one rank; exact. A run that is not
    over does not shut down after its last step."""
    if high_ns <= low_ns:
        return Counter()
    edges_ns = np.array([low_ns, high_ns])
    n_codes = len(of.categories)
    [totals] = [each.segments.totals_between(edges_ns, n_codes)[:, 0] for each in of.by_rank]
    pairs = zip(of.categories, totals.tolist(), strict=True)
    time_ns = Counter({name: ns for name, ns in pairs if ns})
    if "shutdown" in time_ns and not is_over:
        time_ns["other"] += time_ns.pop("shutdown")
    return time_ns
