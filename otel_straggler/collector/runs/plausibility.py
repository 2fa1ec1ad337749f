"""Reports whose numbers cannot be: they are set aside, counted, and shown with their sender.

A number that identifies (attempt, world size, rank, step, place in a dimension) comes from a
process that may be set up wrongly, or from anybody who reaches the port. What one process says must
not change what is known of a run: see ``claims.py`` and ``steps.py``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from otel_straggler.collector.runs.claims import Claim, Held, Key
from otel_straggler.collector.runs.contents import (
    Content,
    only,
    reports_of,
    senders_of,
    size_of,
    with_sources,
    without,
)
from otel_straggler.collector.runs.problems import Number, SenderProblems
from otel_straggler.collector.runs.run import Run, World
from otel_straggler.collector.runs.steps import contiguous, steps_limit
from otel_straggler.collector.runs.store import RunStore
from otel_straggler.collector.settings import ScoringSettings
from otel_straggler.model.observation import NO_STEP
from otel_straggler.model.rank import Source
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.otlp.span_rules import DecodedSpans, Progress

_HELD_BYTES: Final = 128 << 20
_HELD_BYTES_OF_WORLD: Final = 16 << 20
"""Of requests that wait for a quorum, over all runs, and of one world."""
_MAX_CLEANED: Final = 65_536


@dataclass(slots=True)
class _Odd:
    """Senders in a request that are not plainly of the present world."""

    run: Run
    world: World
    sources: list[Source] = field(default_factory=list)


class Plausibility:
    """Owned by the scoring thread; ``now_s`` is of the collector's clock, ``wall_s`` of the wall
    clock. Cost: about a microsecond per known source.

    Attributes:
        problems: of senders, to be shown.
    """

    def __init__(self, limits: ScoringSettings, store: RunStore) -> None:
        self._store = store
        self._max_ranks = limits.max_ranks
        self._cleaned: dict[Source, Source] = {}
        self.problems = SenderProblems(limits.max_ranks, limits.memory_mib)
        self._returned: list[tuple[str, str]] = []

    @property
    def counts(self) -> Counter[str]:
        """Reports that were set aside, wholly or in part, by what was wrong."""
        return self.problems.counts

    # --- numbers out of all bounds -----------------------------------------------------------

    def screened(self, content: Content, now_s: float) -> Content:
        """A request without ranks beyond the limit, sizes beyond it, and impossible places."""
        maximum = self._max_ranks
        n_gone, last = 0, None
        others: dict[Source, Source] = {}
        for source in senders_of(content):
            if source.rank >= maximum:
                n_gone, last = n_gone + 1, source
            elif source.world_size > maximum or (source.parallel and not self._is_placed(source)):
                others[source] = self._clean(source)
        if last is not None:
            self.problems.record("rank", last, last.rank, now_s, reports=n_gone)
            content = only(content, lambda source: source.rank < maximum)
        for source, clean in others.items():
            if clean.world_size != source.world_size:
                self.problems.record("world_size", source, source.world_size, now_s)
            if clean.parallel != source.parallel:
                wrong = next(pair for pair in source.parallel if pair not in clean.parallel)
                size = clean.world_size
                expected = f"below the world size of {size}" if size else ""
                value = f"{wrong[1]} ({wrong[0]})"
                self.problems.record("parallel", source, value, now_s, expected)
        return with_sources(content, others)

    def _is_placed(self, source: Source) -> bool:
        """Whether its indexes are below the size of the world."""
        limit = source.world_size or self._max_ranks
        return all(0 <= index < limit for _, index in source.parallel)

    def _clean(self, source: Source) -> Source:
        size = source.world_size if source.world_size <= self._max_ranks else 0
        limit = size or self._max_ranks
        parallel = tuple(pair for pair in source.parallel if 0 <= pair[1] < limit)
        return self._replaced(source, replace(source, world_size=size, parallel=parallel))

    def _replaced(self, source: Source, clean: Source) -> Source:
        """The same object for the same description, which later stages know it by."""
        if len(self._cleaned) >= _MAX_CLEANED:
            self._cleaned.clear()
        known = self._cleaned.get(source)
        if known != clean:
            known = self._cleaned[source] = clean
        return known

    # --- numbers that differ from those of the other ranks -----------------------------------

    def settled(
        self, content: Content, now_s: float, wall_s: float, sequence: int = 0
    ) -> list[Held[Content]]:
        """What may be scored now of an admitted request, in order: what waited for a quorum that is
        there now, and the plausible part of the request itself.

        Args:
            sequence: of the request, in the spool; 0: it is not there.
        """
        odd, gone, steps = self._observe(content, now_s, wall_s)
        others: dict[Source, Source] = {}
        ready: list[Held[Content]] = []
        held: set[Source] = set()
        for each in odd:
            ready += self._elected(each, now_s, wall_s)
            waiting: dict[Key, set[Source]] = {}
            for source in each.sources:
                standing = each.world.claims.standing(source, now_s)
                if standing == "waiting":
                    waiting.setdefault(_key(source), set()).add(source)
                elif standing == "refused":
                    ready += self._refuse(each, source, gone, others, now_s)
            for key, sources in waiting.items():
                part = only(content, sources.__contains__)
                self._hold(each, key, Held(part, now_s, sequence))
                held |= sources
        content = with_sources(without(content, gone | held), others)
        return [*ready, Held(self._with_plausible_steps(content, steps, now_s), now_s, sequence)]

    def end(self, source: Source) -> None:
        """A rank has ended."""
        self._store.world_of(source).claims.end(source)

    def record_full(self, run: Run, now_s: float) -> None:
        """Memory is short, and this is the largest run."""
        world = next(iter(run.worlds.values()))
        status = world.liveness.status
        sources = [] if status is None else [its.source for its in status.ranks.values()]
        source = sources[-1] if sources else Source(run_id=run.run_id, rank=0)
        self.problems.record("memory", source, source.rank, now_s, reports=0)

    def drain_returned(self) -> list[tuple[str, str]]:
        """Worlds (run and group) that went back to an older attempt since the last call: what is
        known of them is of a newer one that was none, and must be evicted."""
        returned, self._returned = self._returned, []
        return returned

    def drop_old(self, now_s: float) -> None:
        """Drop problems and claims that are no longer any, and what waited in vain for a quorum.
        Cost: O(worlds)."""
        self.problems.drop_old(now_s)
        for world in self._store.worlds():
            for (attempt, _), claim in world.claims.drop_old(now_s):
                self._drop_held(world, attempt, claim, now_s)

    def _drop_held(self, world: World, attempt: int, claim: Claim[Content], now_s: float) -> None:
        content = claim.held[0].content
        claim.held, claim.held_bytes = [], 0
        source = next(reports_of(content))[0]
        number: Number = "world_size" if attempt == world.claims.attempt else "attempt"
        value = source.world_size if number == "world_size" else attempt
        self.problems.record(number, source, value, now_s, self._expected(world, number, now_s))

    def _expected(self, world: World, number: Number, now_s: float) -> str:
        claims = world.claims
        value = claims.world_size if number == "world_size" else claims.attempt
        return f"{value}, as of {claims.speaking(now_s)} ranks that report"

    def _observe(
        self, content: Content, now_s: float, wall_s: float
    ) -> tuple[list[_Odd], set[Source], dict[int, tuple[World, dict[int, int]]]]:
        """Senders that are not plainly of the present world; those beyond the limit of a run; and
        steps by rank of the others, by world."""
        odd: dict[int, _Odd] = {}
        gone: set[Source] = set()
        beyond: dict[str, int] = {}
        steps: dict[int, tuple[World, dict[int, int]]] = {}
        run_id = group = None
        at_s: dict[int, float] = {}
        reported: dict[int, int] = {}
        attempt = world_size = -1
        for source, sent_at_s, step in reports_of(content):
            rank = source.rank
            if source.run_id != run_id or source.group != group:
                run_id, group = source.run_id, source.group
                run, world = self._store.run(run_id), self._store.world_of(source)
                claims = world.claims
                at_s, attempt, world_size = claims.speakers.at_s, claims.attempt, claims.world_size
                reported = steps.setdefault(id(world), (world, {}))[1]
            if source.attempt == attempt and source.world_size == world_size and rank in at_s:
                at_s[rank] = now_s  # as nearly always
            elif rank not in at_s and (run.is_full or run.n_ranks >= self._max_ranks):
                gone.add(source)
                beyond[run_id] = beyond.get(run_id, 0) + 1
                continue
            else:
                if not claims.observe(source, now_s, wall_s, sent_at_s):
                    odd.setdefault(id(world), _Odd(run, world)).sources.append(source)
                at_s, attempt, world_size = claims.speakers.at_s, claims.attempt, claims.world_size
            if step > reported.get(rank, NO_STEP) and source.attempt == attempt:
                reported[rank] = step
        for source in gone:
            if (reports := beyond.pop(source.run_id, 0)) > 0:
                number: Number = "memory" if self._store.run(source.run_id).is_full else "ranks"
                self.problems.record(number, source, source.rank, now_s, reports=reports)
        return list(odd.values()), gone, {key: its for key, its in steps.items() if its[1]}

    def _elected(self, odd: _Odd, now_s: float, wall_s: float) -> list[Held[Content]]:
        elected = odd.world.claims.elect(now_s, wall_s)
        if elected is None:
            return []
        is_older, claim = elected
        self.problems.resolve(odd.run.run_id, odd.world.group)
        if is_older:
            self._returned.append((odd.run.run_id, odd.world.group))
        return claim.held

    def _hold(self, odd: _Odd, key: Key, part: Held[Content]) -> None:
        """Keep until a quorum says the same, within the limits."""
        claims = odd.world.claims.claims
        size, claim = size_of(part.content), claims[key]
        of_world = sum(each.held_bytes for each in claims.values())
        of_all = sum(
            each.held_bytes
            for world in self._store.worlds()
            for each in world.claims.claims.values()
        )
        if of_world + size <= _HELD_BYTES_OF_WORLD and of_all + size <= _HELD_BYTES:
            claim.held.append(part)
            claim.held_bytes += size

    def _refuse(
        self,
        odd: _Odd,
        source: Source,
        gone: set[Source],
        others: dict[Source, Source],
        now_s: float,
    ) -> list[Held[Content]]:
        """Set aside what a source says; if that is only a size, the rest of it is admitted."""
        claims = odd.world.claims
        if source.attempt != claims.attempt:
            expected = self._expected(odd.world, "attempt", now_s)
            self.problems.record("attempt", source, source.attempt, now_s, expected)
            gone.add(source)
            return []
        if claims.world_size and source.rank >= claims.world_size:
            expected = f"below the world size of {claims.world_size}"
            self.problems.record("rank", source, source.rank, now_s, expected)
            gone.add(source)
            return []
        expected = self._expected(odd.world, "world_size", now_s)
        self.problems.record("world_size", source, source.world_size, now_s, expected)
        sized = replace(source, world_size=claims.world_size)
        others[source] = self._replaced(source, sized)
        return _resized(claims.claims.get(_key(source)), claims.world_size)

    # --- steps -------------------------------------------------------------------------------

    def _with_plausible_steps(
        self,
        content: Content,
        steps: dict[int, tuple[World, dict[int, int]]],
        now_s: float,
    ) -> Content:
        beyond: set[tuple[int, int]] = set()
        for key, (world, reported) in steps.items():
            claims = world.claims
            far = claims.steps.settle(reported, claims.speakers.at_s, now_s)
            beyond.update((key, rank) for rank in far)
        if not beyond:
            return content
        if isinstance(content, DecodedMetrics):
            return self._without_steps_of_beats(content, beyond, now_s)
        return self._without_far_rows(content, beyond, now_s)

    def _is_beyond(self, source: Source, beyond: set[tuple[int, int]]) -> bool:
        world = self._store.world_of(source)
        return (id(world), source.rank) in beyond and source.attempt == world.claims.attempt

    def _without_steps_of_beats(
        self, metrics: DecodedMetrics, beyond: set[tuple[int, int]], now_s: float
    ) -> DecodedMetrics:
        beats = list(metrics.heartbeats)
        for at, beat in enumerate(beats):
            if beat.step is None or not self._is_beyond(beat.source, beyond):
                continue
            its = self._store.world_of(beat.source).claims.steps
            if not its.is_plausible(beat.source.rank, beat.step):
                self._record_step(beat.source, beat.step, now_s)
                beats[at] = replace(beat, step=None)
            its.observe(beat.source.rank, beat.step, is_plausible=False)
        return replace(metrics, heartbeats=tuple(beats))

    def _without_far_rows(
        self, spans: DecodedSpans, beyond: set[tuple[int, int]], now_s: float
    ) -> DecodedSpans:
        """Without rows at steps beyond a jump; steps that follow one another are none."""
        batch, progress = spans.batch, dict(spans.progress)
        code_of = {source: code for code, source in enumerate(batch.sources)}
        is_left = np.ones(len(batch), bool)
        for source, its in spans.progress.items():
            if not self._is_beyond(source, beyond):
                continue
            known = self._store.world_of(source).claims.steps
            is_own = batch.source == code_of.get(source, -1)
            own = np.unique(batch.step[is_own & (batch.step > NO_STEP)]).tolist()
            reached = contiguous(own, known.reached(source.rank))
            if its.step <= steps_limit(reached):
                known.observe(source.rank, its.step, is_plausible=True)
                continue
            plausible = max((step for step in own if step <= reached), default=NO_STEP)
            self._record_step(source, its.step, now_s)
            known.observe(
                source.rank,
                its.step if plausible == NO_STEP else plausible,
                is_plausible=plausible > NO_STEP,
            )
            is_left &= ~(is_own & (batch.step > max(reached, plausible)))
            progress[source] = Progress(plausible, its.end_ns)
        return replace(spans, batch=batch.take(is_left), progress=progress)

    def _record_step(self, source: Source, step: int, now_s: float) -> None:
        middle = self._store.world_of(source).claims.steps.middle
        self.problems.record("step", source, step, now_s, f"near {middle:,}, as of the other ranks")


def _key(source: Source) -> Key:
    return source.attempt, source.world_size


def _resized(claim: Claim[Content] | None, world_size: int) -> list[Held[Content]]:
    """What waited with another size, in the present one; once."""
    if claim is None or not claim.held:
        return []
    held, claim.held, claim.held_bytes = claim.held, [], 0
    return [replace(each, content=_sized(each.content, world_size)) for each in held]


def _sized(content: Content, world_size: int) -> Content:
    fits = {
        source: source.rank < world_size or not world_size for source, _, _ in reports_of(content)
    }
    kept = only(content, fits.__getitem__)
    others = {source: replace(source, world_size=world_size) for source, _, _ in reports_of(kept)}
    return with_sources(kept, others)
