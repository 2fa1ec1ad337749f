"""Which episodes are right: those of a labelled subject that begin while its fault lasts.

An episode is right if it begins in [onset, end + 20 steps] of a label that covers it. Labels of a
whole role or run cover no rank and no host: a rank that is accused there is a false alarm, and so
is a victim of a slow rank, and a host with one slow rank of several.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.detection.episodes import Episode

GRACE_STEPS = 20


class Truth(Protocol):
    """A label of the generator, as far as matching reads it.

    ``end_step`` is the first step without the fault, None if it lasts.
    """

    @property
    def scope(self) -> str: ...
    @property
    def ranks(self) -> frozenset[int]: ...
    @property
    def nodes(self) -> frozenset[str]: ...
    @property
    def cause(self) -> str: ...
    @property
    def onset_step(self) -> int: ...
    @property
    def end_step(self) -> int | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One label, and the first episode that names its subject.

    Attributes:
        label: position of the label.
        scope: of the label.
        ranks: which are at fault; empty for a role or run.
        episode: the first right one; None if it was missed. Of several ranks: that with which
            half of them have been named.
        strength: the largest of all its right episodes.
        delay_steps: begin - onset; None if it was missed.
    """

    label: int
    scope: str
    ranks: frozenset[int]
    episode: Episode | None = None
    strength: float = 0.0
    delay_steps: int | None = None

    @property
    def is_result(self) -> bool:
        return self.episode is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """All of a run sorted out.

    Attributes:
        findings: one per label of ranks or of a host.
        structures: one per label of a role or run; found if a verdict on a role or the run
            names its cause in time.
        false: episodes of ranks and hosts that no label covers.
        false_structures: verdicts on roles or the run that no label of such a kind explains.
        repeated: right episodes beyond the first of a subject.
    """

    findings: list[Finding] = field(default_factory=list)
    structures: list[Finding] = field(default_factory=list)
    false: list[Episode] = field(default_factory=list)
    false_structures: list[Episode] = field(default_factory=list)
    repeated: int = 0


def match(labels: Sequence[Truth], episodes: Iterable[Episode], *, has_host_scope: bool) -> Matched:
    """Sort the episodes of a run by the labels of the run.

    Args:
        labels: what is true.
        episodes: what a method said.
        has_host_scope: the method can accuse a host, so a faulty host is found only by that;
            else by episodes of half of its ranks.
    """
    matched = Matched()
    of_subjects = [e for e in episodes if e.scope in ("rank", "host")]
    n_right = sum(1 for e in of_subjects if is_right(e, labels))
    matched.false.extend(e for e in of_subjects if not is_right(e, labels))
    for at, label in enumerate(labels):
        if label.scope in ("rank", "host"):
            find = _host if label.scope == "host" and has_host_scope else _ranks
            matched.findings.append(find(at, label, of_subjects))
    structures = [e for e in episodes if e.scope in ("role", "run")]
    for at, label in enumerate(labels):
        if label.scope in ("role", "run"):
            right = [e for e in structures if in_time(e, label) and e.cause == label.cause]
            matched.structures.append(_finding(at, label, right))
    matched.false_structures.extend(e for e in structures if not _is_explained(e, labels))
    first = {id(f.episode) for f in matched.findings if f.episode}
    return Matched(
        findings=matched.findings,
        structures=matched.structures,
        false=matched.false,
        false_structures=matched.false_structures,
        repeated=n_right - len(first),
    )


def is_right(episode: Episode, labels: Iterable[Truth]) -> bool:
    """Whether a label covers this episode of a rank or host.

    A rank is covered by a label of its own or of its host; a host by a label of the host, or by
    labels of at least half of its ranks.
    """
    lasting = [label for label in labels if in_time(episode, label)]
    if episode.scope == "rank":
        return any(
            episode.ranks <= label.ranks for label in lasting if label.scope in ("rank", "host")
        )
    if any(episode.node in label.nodes for label in lasting if label.scope == "host"):
        return True
    at_fault = frozenset[int]().union(*(n.ranks for n in lasting if n.scope == "rank"))
    return len(at_fault & episode.ranks) >= max(2, len(episode.ranks) / 2)


def in_time(episode: Episode, label: Truth) -> bool:
    """Whether the episode begins while the fault lasts, or up to ``GRACE_STEPS`` later."""
    if episode.begin_step < label.onset_step:
        return False
    return label.end_step is None or episode.begin_step <= label.end_step + GRACE_STEPS


def _is_explained(episode: Episode, labels: Iterable[Truth]) -> bool:
    return any(label.scope in ("role", "run") and in_time(episode, label) for label in labels)


def _ranks(at: int, label: Truth, episodes: Sequence[Episode]) -> Finding:
    """Found when half of the ranks have been named, by episodes of their own or of their host."""
    right = [
        episode
        for episode in sorted(episodes, key=lambda episode: episode.begin_step)
        if episode.ranks & label.ranks and is_right(episode, (label,))
    ]
    named: set[int] = set()
    for index, episode in enumerate(right):
        named |= episode.ranks & label.ranks
        if 2 * len(named) >= len(label.ranks):
            return _finding(at, label, right[index:])
    return _finding(at, label, ())


def _host(at: int, label: Truth, episodes: Sequence[Episode]) -> Finding:
    right = [
        episode
        for episode in episodes
        if episode.scope == "host" and episode.node in label.nodes and in_time(episode, label)
    ]
    return _finding(at, label, right)


def _finding(at: int, label: Truth, right: Sequence[Episode]) -> Finding:
    first = min(right, key=lambda episode: episode.begin_step, default=None)
    return Finding(
        label=at,
        scope=label.scope,
        ranks=label.ranks if label.scope in ("rank", "host") else frozenset(),
        episode=first,
        strength=max((episode.strength for episode in right), default=0.0),
        delay_steps=None if first is None else first.begin_step - label.onset_step,
    )
