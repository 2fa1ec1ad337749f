"""What was decided lately, by what the next decision asks for: no question looks at all of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_straggler.supervisor.fleet import Decision


@dataclass(slots=True)
class _Log:
    """All decisions, and where those with a key are."""

    decisions: list[Decision] = field(default_factory=list)
    index: dict[Hashable, list[int]] = field(default_factory=lambda: defaultdict(list))

    def append(self, decision: Decision) -> None:
        for key in keys_of(decision):
            self.index[key].append(len(self.decisions))
        self.decisions.append(decision)


@dataclass(frozen=True, slots=True, eq=False)
class Recent:
    """Decisions that acted, oldest first. Immutable, and a longer one shares the log of the one it
    came from: adding is O(1), a question O(its answer).

    Attributes:
        log: of which it is a part, from ``begin`` to ``end`` without ``gone``.
    """

    log: _Log = field(default_factory=_Log)
    begin: int = 0
    end: int = 0
    gone: frozenset[int] = frozenset()

    @classmethod
    def of(cls, decisions: Iterable[Decision]) -> Recent:
        log = _Log()
        for decision in decisions:
            log.append(decision)
        return cls(log, 0, len(log.decisions))

    def __iter__(self) -> Iterator[Decision]:
        kept = (n for n in range(self.begin, self.end) if n not in self.gone)
        return (self.log.decisions[n] for n in kept)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recent) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def since(self, key: Hashable, unix_s: float) -> Iterator[Decision]:
        """Those with a key of :func:`keys_of` that were decided after a time, newest first."""
        for n in reversed(self.log.index.get(key, ())):
            if n < self.begin:
                return
            decision = self.log.decisions[n]
            if n < self.end and n not in self.gone and decision.at_unix_s > unix_s:
                yield decision

    def plus(self, decision: Decision, since_unix_s: float) -> Recent:
        """With one more, and without those at the begin that are older."""
        is_branch = self.end != len(self.log.decisions)
        if is_branch or self.begin > max(1_000, self.end // 2):
            return Recent.of(self).plus(decision, since_unix_s)
        self.log.append(decision)
        begin = self.begin
        while begin <= self.end and self.log.decisions[begin].at_unix_s < since_unix_s:
            begin += 1
        return replace(self, begin=begin, end=self.end + 1)

    def minus(self, decision: Decision) -> Recent:
        """Without one."""
        same = self.log.index.get(("id", decision.cause_id), ())
        gone = {n for n in same if self.log.decisions[n] == decision}
        return replace(self, gone=self.gone | gone)


def keys_of(decision: Decision) -> list[Hashable]:
    """What a decision is found by."""
    keys: list[Hashable] = [("id", decision.cause_id), subject(decision)]
    if decision.counts:
        keys += [("by", decision.by), ("tenant", decision.tenant)]
    if decision.is_refused:
        return keys
    keys += [of_rule(decision, per) for per in ("run", "host", "device", "fleet")]
    return [*keys, "counts", ("run", decision.run_id)] if decision.counts else keys


def subject(decision: Decision) -> Hashable:
    """The code of one device, which cools down."""
    return ("subject", decision.host, decision.device, decision.code, decision.run_id)


def of_rule(decision: Decision, per: str) -> Hashable:
    """What a rule's ``times`` are counted for. What a tenant has caused counts for the tenant
    alone, as otherwise it could use them up for all."""
    about: tuple[str, ...] = {
        "run": (decision.run_id,),
        "host": (decision.host,),
        "device": (decision.host, decision.device),
        "fleet": (decision.tenant,),
    }[per]
    return ("rule", decision.rule, per, *about)
