"""A source that is recognised by its object scores as one that is looked up by its fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from otel_straggler.detect.scores import sources
from otel_straggler.detect.scores.scorer import Scorer
from otel_straggler.detect.scores.settings import ScoreSettings
from otel_straggler.model.observation import BatchBuilder, ObservationBatch, Section
from otel_straggler.model.rank import Source
from otel_straggler.simulate.scenarios import Plan, simulate

SECOND_NS = 1_000_000_000
SECTIONS = (Section("forward", "compute"), Section("backward", "compute"))


def copies(batch: ObservationBatch) -> ObservationBatch:
    """The same rows, of equal sources in objects of their own."""
    return replace(batch, sources=tuple(replace(source) for source in batch.sources))


def reported(batches: list[ObservationBatch]) -> list[Any]:
    """All that a scorer says of them."""
    scorer = Scorer()
    printed: list[Any] = []
    for number, batch in enumerate(batches):
        now_ns = number * SECOND_NS
        scorer.observe(batch, now_ns)
        printed += [repr(window) for window in scorer.close_due(now_ns)]
        printed.append([repr(source) for source in scorer.clashes("run", now_ns)])
        printed.append((scorer.counts.late, scorer.counts.duplicates, scorer.counts.superseded))
    printed += [repr(window) for window in scorer.close_all()]
    return [*printed, repr(scorer.verdicts("run")), repr(scorer.late_rows("run"))]


def parts(batch: ObservationBatch, rows: int) -> Iterator[ObservationBatch]:
    for first in range(0, len(batch), rows):
        yield batch.take(np.arange(first, min(first + rows, len(batch))))


@pytest.mark.parametrize("rows", [7, 64, 1_000])
def test_an_object_that_is_known_changes_nothing(rows: int) -> None:
    """Neither windows, verdicts nor counts."""
    run = simulate("one_slow_rank", Plan(ranks=8, steps=60, run_id="run")).batch
    batches = list(parts(run, rows))
    assert reported(batches) == reported([copies(batch) for batch in batches])


def histories() -> Iterator[list[tuple[Source, int]]]:
    """Who sends which step, in order."""
    a = Source(run_id="run", rank=0, session_id="a", world_size=2)
    late = replace(a, role="actor")
    b = Source(run_id="run", rank=0, session_id="b", world_size=2)
    other = Source(run_id="run", rank=1, session_id="c", world_size=2)
    larger = replace(other, world_size=4)
    again = replace(a, attempt=1, session_id="d")
    yield [(a, 0), (other, 0), (b, 1), (a, 2), (b, 2), (other, 2), (a, 40), (b, 41)]  # two claim it
    yield [(a, 0), (late, 1), (a, 2), (late, 3), (other, 3), (late, 4)]  # it is described anew
    yield [(a, 5), (other, 5), (b, 0), (other, 1), (a, 6), (b, 1)]  # a world begins again
    yield [(other, 0), (larger, 1), (a, 1), (other, 2), (larger, 3)]  # the size of the world
    yield [(a, 0), (other, 0), (again, 0), *[(again, n) for n in range(1, 30)], (a, 1), (other, 1)]


@pytest.mark.parametrize("history", list(histories()))
@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_those_who_come_and_go_are_told_apart_as_before(
    history: list[tuple[Source, int]], at_once: int
) -> None:
    """Second sessions, late descriptions, restarts; in one batch or in several."""
    batches = []
    for first in range(0, len(history), at_once):
        builder = BatchBuilder()
        for source, step in history[first : first + at_once]:
            for section in SECTIONS:
                builder.add(source, section, step=step, start_ns=step * SECOND_NS, duration_s=0.1)
        batches.append(builder.build())
    assert reported(batches) == reported([copies(batch) for batch in batches])


def one_row(source: Source, step: int) -> ObservationBatch:
    builder = BatchBuilder()
    builder.add(source, SECTIONS[0], step=step, start_ns=step * SECOND_NS, duration_s=0.1)
    return builder.build()


def test_a_run_that_was_forgotten_may_come_back() -> None:
    """From the very process that was known before."""
    source = Source(run_id="run", rank=0, session_id="a")
    scorer = Scorer(ScoreSettings(evict_run_s=10.0))
    scorer.observe(one_row(source, 0), 0)
    scorer.close_due(100 * SECOND_NS)
    assert scorer.runs() == ()
    scorer.observe(one_row(source, 1), 101 * SECOND_NS)
    assert scorer.runs() == ("run",)


def test_an_attempt_that_was_retired_stays_so() -> None:
    """What its processes still send is late."""
    old = Source(run_id="run", rank=0, session_id="a")
    new = replace(old, attempt=1, session_id="b")
    scorer = Scorer()
    scorer.observe(one_row(old, 0), 0)
    for number in range(3):
        now_ns = (number + 1) * 1_000 * SECOND_NS
        scorer.observe(one_row(new, number), now_ns)
        scorer.close_due(now_ns)
    scorer.observe(one_row(old, 1), 4_000 * SECOND_NS)
    assert scorer.counts.late == 1


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources that never come again do not fill the memory."""
    monkeypatch.setattr(sources, "_MAX", 10)
    result = sources.SourceCache[int]()
    many = [Source(run_id="r", rank=rank) for rank in range(25)]
    for source in many:
        result.put(source, source.rank)
    assert result.values_of(many) == [None] * 20 + list(range(20, 25))
    result.clear()
    assert result.values_of(many[-1:]) == [None]
