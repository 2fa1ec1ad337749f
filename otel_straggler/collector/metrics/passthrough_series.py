"""Sensors of GPUs, kernels by name, checkpoints, goodput, and restarts as series.

Sensors and kernels use the rest of a run's budget: slow ranks first, then the others in order. The
others are counted as folded.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import Final, TypeAlias

from otel_straggler import semconv
from otel_straggler.collector.metrics.families import Families, labels, rank_labels
from otel_straggler.collector.metrics.folding import Stragglers
from otel_straggler.collector.metrics.verdict_series import RunLabels
from otel_straggler.collector.runs.liveness import WorldStatus
from otel_straggler.collector.runs.passthrough import Passthrough, RankKernels, RankNumbers
from otel_straggler.detect.checkpoints import LastSave
from otel_straggler.model.rank import Source
from otel_straggler.semconv import Metric

_ALWAYS_SHOWN: Final = 100
"""Slow ranks that keep their series in any case."""
_MAX_NAME: Final = 200
_Lines: TypeAlias = list[tuple[Metric, str, float]]


def passthrough_of_run(
    worlds: Mapping[str, Passthrough], run: RunLabels, accounted: Collection[str] = ()
) -> Families:
    """Goodput of each group, from the rank that reported it last, the end of its newest checkpoint,
    and restarts by node. Never folded: a dozen series, and some for a node.

    Args:
        accounted: groups whose goodput the collector computes itself.
    """
    families = Families()
    for group, its in sorted(worlds.items()):
        ranks = [rank for _, rank in sorted(its.numbers.items())]
        if not ranks:
            continue
        newest = max(ranks, key=lambda rank: rank.goodput_at_s)
        source = newest.source
        for (metric, values), value in newest.goodput() if group not in accounted else ():
            text = labels(run_id=source.run_id, job_name=source.job, group=source.group)
            own = labels(**dict(zip(metric.own_labels, values, strict=True)))
            families.add(metric, _joined(own, text, run.constant), value)
        for (metric, text), value in _launches(ranks, run.constant).items():
            families.add(metric, text, value)
    for group, its in worlds.items():
        if its.checkpoint_s is not None:
            families.add(semconv.RUN_CHECKPOINT, run.of(group), its.checkpoint_s)
    return families


def checkpoints_of_run(saves: Mapping[str, LastSave], run: RunLabels) -> Families:
    """What the last save of each group has cost. Never folded: three series."""
    families = Families()
    for group, save in sorted(saves.items()):
        families.add(semconv.RUN_CHECKPOINT_SAVE, run.of(group), save.save_s)
        families.add(semconv.RUN_CHECKPOINT_BLOCKING, run.of(group), save.blocking_s)
        families.add(semconv.RUN_CHECKPOINT_SIZE, run.of(group), save.size_bytes)
    return families


def _launches(ranks: list[RankNumbers], constant: str) -> dict[tuple[Metric, str], float]:
    """What each node's launcher reported last. A node that got other ranks with a restart has it in
    the numbers of two ranks."""
    newest: dict[tuple[Metric, str], tuple[float, float]] = {}
    for rank in ranks:
        source = rank.source
        text = labels(run_id=source.run_id, job_name=source.job, group=source.group,
                      node=source.node)  # fmt: skip
        for (metric, values), value, at_s in rank.launches():
            own = labels(**dict(zip(metric.own_labels, values, strict=True)))
            series = metric, _joined(own, text, constant)
            if at_s >= newest.get(series, (0.0, -math.inf))[1]:
                newest[series] = value, at_s
    return {series: value for series, (value, _) in newest.items()}


def passthrough_of_ranks(
    worlds: Mapping[str, Passthrough],
    status: Mapping[str, WorldStatus],
    run: RunLabels,
    budget: int,
    straggling: Stragglers,
) -> Families:
    """Sensors, then the longest kernels, of ranks of the newest attempt, within a budget."""

    def is_there(source: Source) -> bool:
        world = status.get(source.group)
        return world is None or (world.attempt == source.attempt and source.rank in world.ranks)

    in_order = [its for _, its in sorted(worlds.items())]
    numbers = [rank for its in in_order for _, rank in sorted(its.numbers.items())]
    kernels = [rank for its in in_order for _, rank in sorted(its.kernels.items())]
    sensor_lines = [
        (rank.source, lines)
        for rank in numbers
        if is_there(rank.source) and (lines := _sensor_lines(rank, run.constant))
    ]
    kernel_lines = [
        (rank.source, _kernel_lines(rank, run.constant))
        for rank in kernels
        if is_there(rank.source)
    ]
    run_text = f"{labels(run_id=run.run_id)},{run.constant}"
    families = _within(sensor_lines, budget, straggling, run_text)
    families.extend(_within(kernel_lines, budget - len(families), straggling, run_text))
    return families


def _sensor_lines(rank: RankNumbers, constant: str) -> _Lines:
    text = f"{rank_labels(rank.source)},{constant}"
    return [
        (m, _joined(labels(**dict(zip(m.own_labels, values, strict=True))), text), value)
        for (m, values), value in rank.of_rank()
    ]


def _joined(*parts: str) -> str:
    """Labels of which some have none: a comma too much, and Prometheus refuses the whole page."""
    return ",".join(filter(None, parts))


def _kernel_lines(rank: RankKernels, constant: str) -> _Lines:
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
    """Add all lines of a rank, or none."""
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
    """Shorten a label value: kernels of templates have names of a thousand characters.

    >>> _short("gemm"), len(_short("x" * 900)), _short("x" * 900) == _short("x" * 901)
    ('gemm', 200, False)
    """
    if len(name) <= _MAX_NAME:
        return name
    digest = blake2b(name.encode("utf-8", "replace"), digest_size=4).hexdigest()
    return f"{name[: _MAX_NAME - 10]}..{digest}"
