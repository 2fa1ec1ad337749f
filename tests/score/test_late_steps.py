"""Steps that come out of order: a queue before the collector is replayed, a rank's end overtakes
its last spans. They are scored in the window of their steps, or counted late."""

from __future__ import annotations

import random

import numpy as np
import pytest

from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.model.observation import BatchBuilder, ObservationBatch, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.step_table import StepTable

S = 1_000_000_000
RANKS = 3


def source(rank: int, world_size: int = RANKS) -> Source:
    return Source(
        run_id="run", rank=rank, session_id=f"s{rank}", node=f"n{rank}", world_size=world_size
    )


def request(rank: int, steps: range | list[int], world_size: int = RANKS) -> ObservationBatch:
    """What one rank sends at once: a tenth of a second per step, rank 1 slower."""
    builder = BatchBuilder()
    for step in steps:
        builder.add(
            source(rank, world_size),
            Section("forward"),
            step=step,
            seq=step,
            start_ns=step * S // 10,
            duration_s=(0.05 + 0.01 * (rank == 1)) * (1 + step % 7 / 100),
        )
    return builder.build()


def span_of(window: WindowScores) -> tuple[int, int]:
    assert window.first_step is not None
    assert window.last_step is not None
    return window.first_step, window.last_step


def in_order(n_steps: int) -> list[WindowScores]:
    scorer = Scorer()
    closed = []
    for first in range(0, n_steps, 10):
        for rank in range(RANKS):
            scorer.observe(request(rank, range(first, first + 10)), first * S // 10)
        closed += scorer.close_due(first * S // 10)
    return closed + scorer.close_all()


def same(a: list[WindowScores], b: list[WindowScores]) -> None:
    assert [span_of(window) for window in a] == [span_of(window) for window in b]
    for one, other in zip(a, b, strict=True):
        by_rank = [np.argsort([s.rank for s in window.sources]) for window in (one, other)]
        for scores in ("section_median_s", "section_relative", "section_count"):
            np.testing.assert_allclose(
                getattr(one, scores)[by_rank[0]], getattr(other, scores)[by_rank[1]], rtol=1e-12
            )


def test_a_replay_after_newer_steps_gives_the_windows_of_an_undisturbed_run() -> None:
    """Steps 76 to 195 wait in a queue; 199 and later come first, the queue up to 20 s later."""
    scorer = Scorer()
    closed = []
    for rank in range(RANKS):
        scorer.observe(request(rank, range(76)), 8 * S)
    closed += scorer.close_due(8 * S)
    for rank in range(RANKS):
        scorer.observe(request(rank, range(196, 240)), 30 * S)
    closed += scorer.close_due(30 * S)
    replay = [(rank, first) for rank in range(RANKS) for first in range(76, 196, 10)]
    random.Random(4).shuffle(replay)
    for at, (rank, first) in enumerate(replay):
        now_ns = 31 * S + at * S // 2
        scorer.observe(request(rank, range(first, first + 10)), now_ns)
        closed += scorer.close_due(now_ns)
    closed += scorer.close_due(50 * S)
    closed += scorer.close_all()
    same(closed, in_order(240))
    assert scorer.counts.late == 0


@pytest.mark.parametrize("seed", range(8))
def test_requests_in_any_order_within_the_wait_are_cut_at_the_same_steps(seed: int) -> None:
    chance = random.Random(seed)
    requests = [(first, rank) for first in range(20, 200, 10) for rank in range(RANKS)]
    due = sorted((first / 10 + chance.uniform(0, 12), first, rank) for first, rank in requests)
    scorer = Scorer(ScoreSettings(grace_s=12.0))
    closed = []
    for rank in range(RANKS):
        scorer.observe(request(rank, range(20)), 0)
    for at_s, first, rank in due:
        scorer.observe(request(rank, range(first, first + 10)), int(at_s * S))
        closed += scorer.close_due(int(at_s * S))
    same(closed + scorer.close_all(), in_order(200))
    assert scorer.counts.late == 0


def test_steps_in_any_order_within_a_request_are_cut_as_in_order() -> None:
    """A tail sampler sends what it has decided on within a second in random order."""
    scorer = Scorer()
    chance = random.Random(3)
    for first in range(0, 100, 25):
        steps = list(range(first, first + 25))
        for rank in range(RANKS):
            chance.shuffle(steps)
            scorer.observe(request(rank, steps), first * S)
    same(scorer.close_all(), in_order(100))


def test_what_comes_after_its_window_was_closed_is_late_and_in_no_newer_window() -> None:
    """The queue was lost but for one request, a minute later."""
    scorer = Scorer()
    for rank in range(RANKS):
        scorer.observe(request(rank, range(40)), 0)
        scorer.observe(request(rank, range(100, 150)), 20 * S)
    closed = scorer.close_due(20 * S)
    assert [span_of(window) for window in closed] == [(0, 19), (20, 39)]
    scorer.mark_alive(source(0), 49 * S)
    assert scorer.close_due(49 * S) == []
    scorer.mark_alive(source(0), 50 * S)
    closed = scorer.close_due(50 * S)
    assert [span_of(window) for window in closed] == [(100, 119), (120, 139)]
    scorer.observe(request(0, range(76, 86)), 80 * S)
    assert scorer.counts.late == 10
    (last,) = scorer.close_all()
    assert span_of(last) == (140, 149)


def test_a_window_waits_for_a_rank_whose_request_is_retried() -> None:
    """Rank 2's steps 10 to 19 come 12 s after all others have passed them."""
    scorer = Scorer()
    for rank in range(RANKS):
        scorer.observe(request(rank, range(10)), 0)
    for rank in range(RANKS - 1):
        scorer.observe(request(rank, range(10, 30)), S)
    scorer.observe(request(2, range(20, 30)), 2 * S)
    assert scorer.close_due(12 * S) == []
    scorer.observe(request(2, range(10, 20)), 13 * S)
    (window,) = scorer.close_due(13 * S)
    assert window.closed_by == "complete"
    assert window.section_count[:, 0].tolist() == [20, 20, 20]


def test_a_rank_that_sends_every_tenth_step_only_is_waited_for_once() -> None:
    scorer = Scorer()
    for first in (0, 40, 80):
        for rank in range(RANKS - 1):
            scorer.observe(request(rank, range(first, first + 41)), first * S)
        scorer.observe(request(2, range(first, first + 41, 10)), first * S)
        closed = scorer.close_due(first * S)
        assert len(closed) == (0 if first == 0 else 2)
        scorer.mark_alive(source(0), (first + 29) * S)
        closed += scorer.close_due((first + 30) * S)
        assert len(closed) == 2


def test_a_rank_that_joins_later_is_not_missed_in_the_steps_before() -> None:
    scorer = Scorer()
    for rank in (0, 1):
        scorer.observe(request(rank, range(10), world_size=0), 0)
    for rank in range(RANKS):
        scorer.observe(request(rank, range(10, 21), world_size=0), S)
    assert len(scorer.close_due(6 * S)) == 1


def test_jobs_that_report_every_tenth_step_have_twenty_of_them_in_a_window() -> None:
    """Also if they begin to do so later; and where no distance is regular."""
    scorer = Scorer()
    sampled = [*range(40), *range(40, 900, 10)]
    for step in sampled:
        for rank in range(RANKS):
            scorer.observe(request(rank, [step]), step * S // 10)
    closed = scorer.close_due(90 * S)
    assert [span_of(window) for window in closed[-3:]] == [(100, 290), (300, 490), (500, 690)]
    assert scorer.counts.late == 0
    tokens = Scorer(ScoreSettings(window_longest_s=1e9))
    step = 0
    for n in range(101):
        step += 1_000_000 + n * n % 77_777
        for rank in range(RANKS):
            tokens.observe(request(rank, [step]), n * S)
    assert [w.section_count[0, 0] for w in tokens.close_due(100 * S)] == [20] * 5


def test_a_job_that_goes_on_far_ahead_is_not_waited_for() -> None:
    scorer = Scorer()
    for rank in range(RANKS):
        scorer.observe(request(rank, range(30)), 0)
    for rank in range(RANKS):
        scorer.observe(request(rank, range(500_000, 500_041)), 3 * S)
    closed = [span_of(window) for window in scorer.close_due(3 * S)]
    assert closed[:2] == [(0, 19), (20, 29)]
    assert len(closed) >= 4


def test_a_rank_that_counts_in_another_unit_makes_no_other_rank_late() -> None:
    scorer = Scorer()
    for first in range(0, 200, 10):
        for rank in range(RANKS - 1):
            scorer.observe(request(rank, range(first, first + 10)), first * S)
        scorer.observe(request(2, range(100_000 + first, 100_010 + first)), first * S)
        scorer.close_due(first * S)
    assert scorer.counts.late == 0


def test_a_sender_of_random_steps_opens_a_bounded_number_of_windows() -> None:
    scorer = Scorer()
    for rank in range(RANKS):
        scorer.observe(request(rank, range(30)), 0)
    steps = random.Random(1).sample(range(1_000, 10**9), 1_500)
    for first in range(0, len(steps), 100):
        scorer.observe(request(0, steps[first : first + 100]), 0)
    n_windows = len(scorer.close_all())
    assert n_windows < 1_500 / 20 + 2 * 32


def test_an_end_that_overtakes_the_last_steps_waits_for_them(
    tables: list[StepTable],
) -> None:
    """A batch processor delivers the last heartbeats 8 s before the last spans."""
    scorer = Scorer(on_table=tables.append)
    for rank in range(RANKS):
        scorer.observe(request(rank, range(30)), 0)
    closed = scorer.close_due(0)
    for rank in range(RANKS):
        scorer.finish(source(rank), S, final_step=49)
    assert scorer.close_due(8 * S) == []
    for rank in range(RANKS):
        scorer.observe(request(rank, range(30, 50)), 9 * S)
        closed += scorer.close_due((9 + rank) * S)
    same(closed, in_order(50))
    assert [t.steps.tolist() for t in tables] == [list(range(n, n + 5)) for n in range(0, 50, 5)]
    assert scorer.counts.late == 0


def test_an_end_after_its_last_steps_closes_the_last_window_at_once() -> None:
    scorer = Scorer()
    for rank in range(RANKS):
        scorer.observe(request(rank, range(10)), 0)
        scorer.finish(source(rank), 0, final_step=9)
    (window,) = scorer.close_due(0)
    assert window.closed_by == "complete"


def test_an_end_that_overtakes_all_of_its_rows_counts_all_the_same() -> None:
    scorer = Scorer()
    for rank in range(RANKS):
        scorer.finish(source(rank), 0, final_step=9)
    assert scorer.runs() == ()
    for rank in range(RANKS):
        scorer.observe(request(rank, range(10)), 9 * S)
    (window,) = scorer.close_due(9 * S)
    assert window.closed_by == "complete"


def test_last_steps_that_never_come_are_waited_for_thirty_seconds() -> None:
    scorer = Scorer(ScoreSettings(idle_s=30.0))
    for rank in range(RANKS):
        scorer.observe(request(rank, range(10)), 0)
        scorer.finish(source(rank), S, final_step=19)
    scorer.mark_alive(source(0), 29 * S, has_ended=True)
    assert scorer.close_due(30 * S) == []
    (window,) = scorer.close_due(31 * S)
    assert window.closed_by == "complete"


def test_an_end_waits_as_long_as_spans_of_the_run_still_arrive() -> None:
    """Also after they were given up: a queue took a minute to be sent. The last window is cut as
    ever, and closes with the final step."""
    scorer = Scorer()
    for rank in range(RANKS):
        scorer.observe(request(rank, range(10)), 0)
        scorer.finish(source(rank), S, final_step=49)
    closed = scorer.close_due(40 * S)
    assert [span_of(window) for window in closed] == [(0, 9)]
    for first in range(10, 50, 10):
        for rank in range(RANKS):
            scorer.observe(request(rank, range(first, first + 10)), (60 + 2 * first) * S)
        scorer.mark_alive(source(0), (60 + 2 * first) * S, has_ended=True)
        closed += scorer.close_due((60 + 2 * first + 19) * S)
    assert [span_of(window) for window in closed] == [(0, 9), (10, 29), (30, 49)]
    assert closed[-1].closed_by == "complete"


def test_a_rank_that_ended_without_its_last_steps_delays_the_others_for_thirty_seconds_only() -> (
    None
):
    scorer = Scorer()
    for rank in range(RANKS):
        scorer.observe(request(rank, range(20)), 0)
    scorer.finish(source(0), 0, final_step=25)
    closed = []
    for first in range(20, 200, 20):
        now_ns = first * S
        for rank in (1, 2):
            scorer.observe(request(rank, range(first, first + 20)), now_ns)
        closed += scorer.close_due(now_ns)
    assert [span_of(window) for window in closed] == [(n, n + 19) for n in range(0, 180, 20)]


@pytest.fixture
def tables() -> list[StepTable]:
    return []


@pytest.mark.parametrize(
    "order",
    [
        (24, 44, 64, 34, 54, 74, 84),
        (44, 24, 84, 64, 34, 54, 74),
        (74, 24, 34, 44, 54, 64, 84),
    ],
)
def test_a_run_that_is_first_seen_out_of_order_is_cut_when_the_distance_of_steps_is_known(
    order: tuple[int, ...],
) -> None:
    """As after a restart behind a queue: single steps far apart come first, then all others."""
    blocks: list[StepTable] = []
    scorer = Scorer(on_table=blocks.append)
    for rank in range(RANKS):
        for first in order:
            scorer.observe(request(rank, [first]), S)
    for first in order:
        for rank in range(RANKS):
            scorer.observe(request(rank, range(first, first + 10)), S)
    windows = scorer.close_due(2 * S) + scorer.close_all()
    spans = [span_of(window) for window in windows]
    assert all(last - first < 20 for first, last in spans), spans
    assert sum(window.n_steps for window in windows) == 70
    assert [first for first, _ in spans][:3] == [24, 44, 64]
    assert len(spans) == 4
    assert all(table.steps[-1] - table.steps[0] < 5 for table in blocks if len(table.steps))
    assert sum(len(table.steps) for table in blocks) == 70


def test_steps_that_come_closer_together_later_cut_no_window_again() -> None:
    """Every tenth step was recorded, then every step."""
    scorer = Scorer()
    steps = [*range(0, 500, 10), *range(500, 540)]
    for at, step in enumerate(steps):
        for rank in range(RANKS):
            scorer.observe(request(rank, [step]), at * S // 10)
    spans = [(w.first_step, w.last_step, w.n_steps) for w in scorer.close_all()]
    assert spans[:2] == [(0, 190, 20), (200, 390, 20)]
    assert all(n >= 10 for _, _, n in spans), spans
