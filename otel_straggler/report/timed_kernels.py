"""The kernels that a timer has counted since the last report, as statistics in microseconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otel_straggler.model.kernels import KernelCounts, KernelTimes, times_of_counts
from otel_straggler.model.observation import Floats, Ints
from otel_straggler.model.rank import Source
from otel_straggler.record.kernel_feed import KERNELS, KernelFeed, KernelShare
from otel_straggler.report.types import Statistic, Summary
from otel_straggler.score.kernels import group_histograms, is_scored

_US_PER_S = 1e6
_SELF = Source(run_id="", rank=0)


class TimedKernels:
    """What one report window knows of this rank's kernels.

    Args:
        feed: where they come from.
    """

    def __init__(self, feed: KernelFeed = KERNELS) -> None:
        self._feed = feed
        self._share: KernelShare | None = None

    def begin(self) -> None:
        """Kernels count from now on."""
        self._share = self._feed.share()

    def end(self) -> None:
        share, self._share = self._share, None
        if share is not None:
            share.close()

    def take(self) -> dict[str, Summary]:
        """Kernels that compute since the last time, over all sections, by name; see
        :func:`kernel_summaries`."""
        return kernel_summaries([] if self._share is None else self._share.take())


def kernel_summaries(kernels: Sequence[KernelCounts]) -> dict[str, Summary]:
    """Statistics of the kernels that GPU scores rest on, in microseconds.

    Minimum, maximum, mean and number are exact. The median is within 0.28 %, if the longest run of
    a kernel takes at most 16 times as long as the shortest. The deviation is that of times in the
    middle of their buckets: of a kernel that always takes the same it may be 0.28 % of the mean.

    Cost: some µs a kernel.
    """
    scored = [k for k in kernels if is_scored(k.cell.kernel.name, k.cell.kernel.kernel_class)]
    times = times_of_counts(scored, _SELF, 0, 1)
    numbers: dict[str, int] = {}
    name_of = [numbers.setdefault(cell.kernel.name, len(numbers)) for cell in times.cells]
    group = np.array(name_of, np.int64)[times.cell]
    found = group_histograms(times, group, len(numbers))
    least, most = np.full(len(numbers), np.inf), np.zeros(len(numbers))
    np.minimum.at(least, group, times.min_s)
    np.maximum.at(most, group, times.max_s)
    mean = found.total_s / np.maximum(found.count, 1)
    deviation = _deviation(times, group, mean, found.count)
    columns = np.stack([least, most, found.median_s, mean, deviation]) * _US_PER_S
    return {
        name: dict(zip(Statistic, [*columns[:, at].tolist(), float(found.count[at])], strict=True))
        for name, at in numbers.items()
    }


def _deviation(times: KernelTimes, group: Ints, mean: Floats, count: Ints) -> Floats:
    """Of a sample, with every time in the middle of its bucket; NaN for one run."""
    sizes = times.sizes
    width = np.exp2(-np.repeat(times.scale, sizes).astype(float))
    of_bucket = np.repeat(group, sizes)
    off = np.exp2((times.index + 0.5) * width) - mean[of_bucket]
    squares = np.bincount(of_bucket, times.runs * off * off, len(mean))
    in_none = count - np.bincount(of_bucket, times.runs, len(mean))
    with np.errstate(invalid="ignore", divide="ignore"):
        deviation: Floats = np.sqrt((squares + in_none * mean * mean) / (count - 1))
    return deviation
