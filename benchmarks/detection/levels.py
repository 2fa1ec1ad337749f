"""The same episodes counted by rank and by host instead of by event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.detection.episodes import Episode
from benchmarks.detection.matching import Finding, Truth, in_time, is_right
from benchmarks.detection.metrics import Events

Span = tuple[int, int | None]


def by_event(findings: Sequence[Finding], false: Sequence[Episode]) -> Events:
    """One event per fault of ranks or of a host."""
    result = sum(finding.is_result for finding in findings)
    return Events(result, len(false), len(findings) - result)


def by_rank(labels: Sequence[Truth], episodes: Sequence[Episode]) -> Events:
    """One event per rank at fault; a host that is accused counts as its ranks."""
    named = [(label, rank) for label in _of_subjects(labels) for rank in label.ranks]
    result = sum(
        any(rank in e.ranks and in_time(e, label) and is_right(e, labels) for e in episodes)
        for label, rank in named
    )
    false = sum(len(e.ranks) for e in episodes if not is_right(e, labels))
    return Events(result, false, len(named) - result)


def by_host(
    labels: Sequence[Truth], episodes: Sequence[Episode], node_of: Mapping[int, str]
) -> Events:
    """One event per host at fault or with a rank at fault; what overlaps on a host is one."""
    named = [
        (label, node)
        for label in _of_subjects(labels)
        for node in {node_of[rank] for rank in label.ranks}
    ]
    spans: dict[str, list[Span]] = {}
    result = set()
    for episode in episodes:
        for node in {node_of[rank] for rank in episode.ranks if rank in node_of}:
            at = [n for n, (label, its) in enumerate(named) if its == node]
            right = [n for n in at if in_time(episode, named[n][0])]
            result.update(right)
            if not right:
                spans.setdefault(node, []).append((episode.begin_step, episode.end_step))
    false = sum(n_separate(of_node) for of_node in spans.values())
    return Events(len(result), false, len(named) - len(result))


def n_separate(spans: Iterable[Span]) -> int:
    """How many remain when those that overlap or touch are joined; None ends never.

    >>> n_separate([(0, 10), (5, 20), (30, None), (50, 60)])
    2
    """
    n, end = 0, float("-inf")
    for begin, its_end in sorted(spans, key=lambda span: span[0]):
        n += begin > end
        end = max(end, float("inf") if its_end is None else its_end)
    return n


def _of_subjects(labels: Iterable[Truth]) -> list[Truth]:
    return [label for label in labels if label.scope in ("rank", "host")]
