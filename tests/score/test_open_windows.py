"""Open windows over a restart: no row is lost, and none is counted twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from otel_straggler.collector.history.codec import decode_blob, encode_blob
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.model.observation import NO_STEP, ObservationBatch
from otel_straggler.model.scores import WindowScores
from otel_straggler.simulate.scenarios import Plan, simulate

SECOND_NS = 10**9
BATCH = simulate("one_slow_rank", Plan(ranks=8, steps=130, slow_rank=5)).batch
PARTS = np.array_split(np.arange(len(BATCH)), 60)


class Course:
    """Rows in parts, a second each, over any number of restarts."""

    def __init__(self, settings: ScoreSettings | None = None) -> None:
        self._settings = settings
        self.scorer = Scorer(settings)
        self.windows: list[WindowScores] = []
        self.changes: list[Any] = []

    def observe(self, batch: ObservationBatch, at_s: int) -> None:
        self.scorer.observe(batch, at_s * SECOND_NS)
        self.windows += self.scorer.close_due(at_s * SECOND_NS)
        self.changes += self.scorer.drain_changes()

    def restart(self, at_s: int) -> None:
        """Through the bytes of a history, and on another monotonic clock."""
        scorer = self.scorer
        states = [
            decode_blob(encode_blob(state), where="test")
            for state in (scorer.state(), scorer.open_state())
        ]
        self.scorer = Scorer(self._settings)
        self.scorer.restore(states[0])
        self.scorer.restore_open(states[1], at_s * SECOND_NS)

    def end(self) -> Course:
        self.windows += self.scorer.close_all()
        self.changes += self.scorer.drain_changes()
        return self


def run(
    batch: ObservationBatch,
    restarts: tuple[int, ...] = (),
    settings: ScoreSettings | None = None,
) -> Course:
    course = Course(settings)
    for at_s, part in enumerate(PARTS):
        course.observe(batch.take(part), at_s)
        if at_s in restarts:
            course.restart(at_s)
    return course.end()


def facts(course: Course) -> list[tuple[Any, ...]]:
    return [
        (w.first_step, w.last_step, w.attempt, [s.key for s in w.sources], w.section_count.tolist())
        for w in course.windows
    ]


@pytest.mark.parametrize("restarts", [(17,), (3, 4, 30, 31, 55), tuple(range(60))])
def test_windows_are_those_of_a_run_without_a_restart(restarts: tuple[int, ...]) -> None:
    """The same steps, counts and medians in each."""
    whole, restarted = run(BATCH), run(BATCH, restarts)
    assert facts(restarted) == facts(whole)
    for one, other in zip(restarted.windows, whole.windows, strict=True):
        np.testing.assert_array_equal(one.section_median_s, other.section_median_s)


def test_verdicts_are_those_of_a_run_without_a_restart() -> None:
    """The same changes at the same steps, once its warm-up is over."""
    whole, restarted = run(BATCH), run(BATCH, (17,))
    assert [(c.subject_id, c.state, c.at_step) for c in restarted.changes] == [
        (c.subject_id, c.state, c.at_step) for c in whole.changes
    ]
    assert whole.changes


def test_what_is_delivered_again_after_a_restart_is_counted_once() -> None:
    """A sender without an answer sends its requests again: of closed windows and of open ones."""
    course = Course()
    for at_s, part in enumerate(PARTS):
        course.observe(BATCH.take(part), at_s)
        if at_s == 40:
            course.restart(at_s)
            for again in PARTS[20:41]:
                course.observe(BATCH.take(again), at_s)
    course.end()
    assert sum(int(w.section_count.sum()) for w in course.windows) == len(BATCH)


def test_rows_without_a_step_belong_to_their_interval_still() -> None:
    """Of a run that reports no steps; each is in one window, or late for it as without a
    restart."""
    batch = replace(BATCH, step=np.full(len(BATCH), NO_STEP))
    course = run(batch, (10, 20, 30), ScoreSettings(window_s=2.0))
    counted = sum(int(w.section_count.sum()) for w in course.windows)
    assert counted + course.scorer.counts.late == len(batch)
    intervals = [w.start_ns // (2 * SECOND_NS) for w in course.windows]
    assert len(set(intervals)) == len(intervals) > 3


def test_a_run_that_waits_for_a_rank_goes_on_waiting() -> None:
    """Its window is not closed by the restart, and the rank's rows are not late."""
    is_slow = np.array([source.rank == 7 for source in BATCH.sources])[BATCH.source]
    course = Course()
    course.observe(BATCH.take(~is_slow & (BATCH.step < 30)), 0)
    course.restart(1)
    course.observe(BATCH.take(is_slow & (BATCH.step < 30)), 2)
    course.end()
    assert course.scorer.counts.late == 0
    assert sum(int(w.section_count.sum()) for w in course.windows) == int((BATCH.step < 30).sum())
