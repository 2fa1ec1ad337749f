"""GPUs' sensors, kernels by name and what a run's time went to, as series.

Sensors and kernels are the last to get room in a run's budget: ranks that are called slow keep
theirs first, then the others in order. What does not fit is counted as folded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, TypeAlias

from otel_straggler import semconv
from otel_straggler.collector.kernel_totals import KernelsOfRank
from otel_straggler.collector.told_numbers import OfRank, Series
from otel_straggler.model.rank import Source
from otel_straggler.publish.prometheus import Families, labels, rank_labels
from otel_straggler.publish.score_series import Stragglers
from otel_straggler.semconv import Metric

_ALWAYS_SHOWN: Final = 100
"""Ranks that are called slow and keep their series even where there is no room."""
_MOST_NAME: Final = 200
_Lines: TypeAlias = list[tuple[Metric, str, float]]


def goodput_families(told: Iterable[tuple[Source, Series, float]], constant: str) -> Families:
    """Never folded: a dozen series."""
    families = Families()
    for source, (metric, values), value in told:
        text = labels(run_id=source.run_id, job_name=source.job, group=source.group)
        own = labels(**dict(zip(semconv.labels_as_told(metric), values, strict=True)))
        families.add(metric, ",".join(filter(None, (own, text, constant))), value)
    return families


def sensor_families(
    ranks: Sequence[OfRank], budget: int, straggling: Stragglers, run_id: str, constant: str
) -> Families:
    """What GPUs tell, rank by rank as far as they fit."""
    lines = [(rank.source, _sensor_lines(rank, constant)) for rank in ranks]
    return _within(lines, budget, straggling, f"{labels(run_id=run_id)},{constant}")


def kernel_families(
    ranks: Sequence[KernelsOfRank], budget: int, straggling: Stragglers, run_id: str, constant: str
) -> Families:
    """The kernels of each rank that took most, rank by rank as far as they fit."""
    lines = [(rank.source, _kernel_lines(rank, constant)) for rank in ranks]
    return _within(lines, budget, straggling, f"{labels(run_id=run_id)},{constant}")


def _sensor_lines(rank: OfRank, constant: str) -> _Lines:
    text = f"{rank_labels(rank.source)},{constant}"
    return [
        (m, f"{labels(**dict(zip(semconv.labels_as_told(m), values, strict=True)))},{text}", value)
        for (m, values), (value, _) in rank.values.items()
        if m in _HARDWARE
    ]


def _kernel_lines(rank: KernelsOfRank, constant: str) -> _Lines:
    text = f"{rank_labels(rank.source)},{constant}"
    lines: _Lines = []
    for kernel, total in rank.longest():
        named = {"kernel": _short(kernel.name), "kernel_class": kernel.kernel_class}
        about = f"{labels(**named)},{text}"
        lines.append((semconv.KERNEL_TIME, about, total.seconds))
        lines.append((semconv.KERNEL_RUNS, about, total.runs))
    return lines


def _within(
    lines: list[tuple[Source, _Lines]], budget: int, straggling: Stragglers, run_text: str
) -> Families:
    """All lines of a rank, or none."""
    families, folded = Families(), Counter[Metric]()
    slow = [each for each in lines if (each[0].group, each[0].rank) in straggling]
    others = [each for each in lines if (each[0].group, each[0].rank) not in straggling]
    room = budget - len({metric for _, of_rank in lines for metric, _, _ in of_rank})
    for at, (_, of_rank) in enumerate([*slow, *others]):
        has_room = len(families) + len(of_rank) <= room or at < min(len(slow), _ALWAYS_SHOWN)
        for metric, text, value in of_rank:
            folded[metric] += not has_room
            if has_room:
                families.add(metric, text, value)
    for metric, count in folded.items():
        about = labels(family=metric.prometheus_name)
        families.add(semconv.COLLECTOR_SERIES_FOLDED, f"{about},{run_text}", count)
    return families


def _short(name: str) -> str:
    """A label's value: kernels of templates have names of a thousand characters.

    >>> _short("gemm"), len(_short("x" * 900)), _short("x" * 900) == _short("x" * 901)
    ('gemm', 200, False)
    """
    if len(name) <= _MOST_NAME:
        return name
    digest = blake2b(name.encode("utf-8", "replace"), digest_size=4).hexdigest()
    return f"{name[: _MOST_NAME - 10]}..{digest}"


_HARDWARE: Final = frozenset(semconv.HARDWARE_METRICS)
