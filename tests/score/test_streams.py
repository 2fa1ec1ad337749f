"""Windows as rows arrive: who belongs where, when a window closes, what is never merged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.model.observation import NO_STEP, BatchBuilder, ObservationBatch, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores

S = 1_000_000_000
STEP_NS = S


def source(rank: int, session: str = "s", **changes: object) -> Source:
    described = {
        "run_id": "run",
        "job": "job",
        "rank": rank,
        "session_id": f"{session}{rank}",
        "node": f"node-{rank}",
        "local_rank": 0,
        "world_size": 2,
        **changes,
    }
    return Source(**described)  # type: ignore[arg-type]


def rows(
    who: Source, steps: range | list[int], duration_s: float = 1.0, section: str = "forward"
) -> ObservationBatch:
    builder = BatchBuilder()
    for step in steps:
        start_ns = max(step, 0) * STEP_NS
        builder.add(
            who, Section(section), step=step, seq=step, start_ns=start_ns, duration_s=duration_s
        )
    return builder.build()


@pytest.fixture
def scorer() -> Scorer:
    return Scorer(ScoreSettings(window_steps=4))


def steps_of(windows: list[WindowScores]) -> list[tuple[int | None, int | None]]:
    return [(w.first_step, w.last_step) for w in windows]


def ranks_of(window: WindowScores) -> list[int]:
    return [s.rank for s in window.sources]


def test_a_window_closes_when_all_ranks_have_passed_it(scorer: Scorer) -> None:
    """Window 0..3 closes with the first row of step 4 of the last rank, not before."""
    scorer.observe(rows(source(0), range(5)), 0)
    assert scorer.close_due(0) == []
    scorer.observe(rows(source(1), range(4)), 0)
    assert scorer.close_due(0) == []
    scorer.observe(rows(source(1), [4]), 0)
    (window,) = scorer.close_due(0)
    assert (window.first_step, window.last_step, window.closed_by) == (0, 3, "complete")
    assert ranks_of(window) == [0, 1]
    assert window.section_count.tolist() == [[4], [4]]


def test_skew_between_ranks_does_not_split_a_step(scorer: Scorer) -> None:
    """A rank that runs three windows ahead opens them; the other fills the same ones."""
    scorer.observe(rows(source(0), range(13)), 0)
    scorer.observe(rows(source(1), range(13)), S)
    closed = scorer.close_due(S)
    assert steps_of(closed) == [(0, 3), (4, 7), (8, 11)]
    assert all(ranks_of(w) == [0, 1] for w in closed)


@pytest.mark.parametrize(
    ("longest_s", "windows"),
    [
        (100.0, [(0, 19), (20, 39)]),
        (12.0, [(0, 11), (12, 23), (24, 35)]),
        (2.0, [(0, 4), (5, 9), (10, 14), (15, 19), (20, 24), (25, 29), (30, 34), (35, 39)]),
    ],
)
def test_long_steps_make_windows_of_fewer_steps(
    longest_s: float, windows: list[tuple[int, int]]
) -> None:
    """Steps of 1 s: 20 of them, or as many as begin within the longest time, or five."""
    scorer = Scorer(ScoreSettings(window_longest_s=longest_s))
    for rank in range(2):
        scorer.observe(rows(source(rank), range(41)), 0)
    assert steps_of(scorer.close_due(0)) == windows


def test_a_window_never_has_more_steps_than_it_is_told() -> None:
    """Not even as many as long ones must have."""
    scorer = Scorer(ScoreSettings(window_steps=3, window_longest_s=1.0))
    for rank in range(2):
        scorer.observe(rows(source(rank), range(7)), 0)
    assert steps_of(scorer.close_due(0)) == [(0, 2), (3, 5)]


def test_a_clock_that_is_set_back_makes_a_window_no_shorter() -> None:
    scorer = Scorer(ScoreSettings(window_longest_s=2.0))
    for rank in range(2):
        for step in range(21):
            start_ns = (100 - step) * STEP_NS
            builder = BatchBuilder()
            builder.add(
                source(rank), Section("f"), step=step, seq=step, start_ns=start_ns, duration_s=1.0
            )
            scorer.observe(builder.build(), 0)
    assert steps_of(scorer.close_due(0)) == [(0, 19)]


def test_a_missing_rank_is_waited_for_five_seconds_and_named(scorer: Scorer) -> None:
    """After the grace time the window closes without it."""
    scorer.observe(rows(source(0), range(5)), 10 * S)
    assert scorer.close_due(15 * S - 1) == []
    (window,) = scorer.close_due(15 * S)
    assert window.closed_by == "grace"
    assert window.missing_ranks == (1,)
    assert window.world_size == 2


def test_late_rows_are_counted_and_not_scored(scorer: Scorer) -> None:
    """What arrives for a closed window changes nothing but the count."""
    scorer.observe(rows(source(0), range(5)), 0)
    scorer.close_due(5 * S)
    scorer.observe(rows(source(1), range(4)), 6 * S)
    assert scorer.counts.late == 4
    assert scorer.late_rows("run") == 4
    assert scorer.close_due(6 * S) == []


def test_a_step_that_nobody_passes_holds_up_no_window(scorer: Scorer) -> None:
    """It has a window of its own, however near it came to the first steps of all."""
    closed = []
    for step in range(80):
        for rank in range(2):
            scorer.observe(rows(source(rank), [step]), step * S)
            scorer.mark_alive(source(rank), step * S)
        if step == 1:
            scorer.observe(rows(source(0), [10**9]), step * S)
        closed += [(window.closed_by, step) for window in scorer.close_due(step * S)]
    assert closed[0] == ("complete", 4)
    assert {cause for cause, _ in closed} == {"complete"}
    assert len(closed) >= 18


def test_rows_delivered_twice_count_once(scorer: Scorer) -> None:
    """Same session, section and seq: one run."""
    for _ in range(3):
        scorer.observe(rows(source(0), range(4)), 0)
    scorer.observe(rows(source(1), range(4)), 0)
    (window,) = scorer.close_all()
    assert window.section_count.tolist() == [[4], [4]]
    assert window.duplicates == 8
    assert scorer.counts.duplicates == 8


def test_every_observed_row_is_accounted_for(scorer: Scorer) -> None:
    """scored + duplicates + superseded + late = observed, once all windows are closed."""
    rng = np.random.default_rng(0)
    for now in range(60):
        rank = int(rng.integers(2))
        first = int(rng.integers(0, 40))
        session = "ab"[int(rng.integers(2))]
        scorer.observe(rows(source(rank, session), range(first, first + 6)), now * S)
        scorer.close_due(now * S)
    scorer.close_all()
    counts = scorer.counts
    accounted = counts.scored + counts.duplicates + counts.superseded + counts.late
    assert accounted == counts.observed == 360
    assert min(counts.late, counts.duplicates) > 0


def test_a_new_attempt_starts_windows_of_its_own(scorer: Scorer) -> None:
    """The launcher restarted the job at step 2: attempt 1 is scored again, nothing is merged,
    and the unfinished window of attempt 0 closes by itself."""
    for rank in (0, 1):
        scorer.observe(rows(source(rank), range(4, 7)), 0)
    for rank in (0, 1):
        scorer.observe(rows(source(rank, "new", attempt=1), range(2, 7), 2.0), 4 * S)
    windows = {w.attempt: w for w in scorer.close_due(9 * S)}
    assert steps_of([windows[0], windows[1]]) == [(4, 6), (2, 5)]
    assert windows[1].section_median_s.tolist() == [[2.0], [2.0]]
    assert scorer.counts.duplicates == scorer.counts.late == scorer.counts.superseded == 0


def test_a_restart_within_an_attempt_starts_a_new_incarnation(scorer: Scorer) -> None:
    """All processes are new and redo steps that were scored: they are scored, not late."""
    for rank in (0, 1):
        scorer.observe(rows(source(rank), range(9)), 0)
    assert len(scorer.close_due(0)) == 2
    for rank in (0, 1):
        scorer.observe(rows(source(rank, "new"), range(2, 7)), S)
    old, window = scorer.close_due(S)
    assert (old.first_step, old.last_step) == (8, 8)  # what is over closes before what is new
    assert (window.first_step, window.last_step) == (2, 5)
    assert ranks_of(window) == [0, 1]
    assert scorer.counts.late == 0


def test_one_rank_that_rejoins_goes_on_in_the_same_windows(scorer: Scorer) -> None:
    """A replaced process that continues where its peers are needs no new incarnation; in the
    window of the change the session with more rows is scored alone."""
    scorer.observe(rows(source(0), range(5)), 0)
    scorer.observe(rows(source(1), range(2)), 0)
    scorer.observe(rows(source(1, "new"), range(2, 5), 3.0), S)
    (window,) = scorer.close_due(S)
    assert ranks_of(window) == [0, 1]
    assert window.section_median_s[:, 0].tolist() == [1.0, 3.0]
    assert window.superseded == 2


def test_a_finished_rank_has_passed_every_window(scorer: Scorer) -> None:
    """The last, partial window closes as soon as the last rank has ended."""
    for rank in (0, 1):
        scorer.observe(rows(source(rank), range(2)), 0)
    scorer.finish(source(0), S)
    assert scorer.close_due(S) == []
    scorer.finish(source(1), S)
    (window,) = scorer.close_due(S)
    assert (window.closed_by, window.last_step) == ("complete", 1)


def test_a_rank_that_comes_back_after_its_end_is_waited_for_again(scorer: Scorer) -> None:
    """Its new process has passed nothing yet."""
    scorer.observe(rows(source(1), range(2)), 0)
    scorer.finish(source(1), 0)
    scorer.observe(rows(source(1, "new"), [2]), 0)
    scorer.observe(rows(source(0), range(5)), 0)
    assert scorer.close_due(S) == []
    scorer.observe(rows(source(1, "new"), [3, 4]), S)
    (window,) = scorer.close_due(S)
    assert window.closed_by == "complete"


def test_the_end_of_an_old_session_does_not_finish_its_successor(scorer: Scorer) -> None:
    """A goodbye that arrives late speaks for its own session only."""
    for rank in (0, 1):
        scorer.observe(rows(source(rank), range(2)), 0)
        scorer.observe(rows(source(rank, "new"), range(2, 3)), 0)
        scorer.finish(source(rank), 0)
    assert scorer.close_due(0) == []


def test_without_a_world_size_the_first_window_waits_for_ranks_to_appear() -> None:
    """Rank 0 alone must not close the window that rank 1 is about to fill."""
    scorer = Scorer(ScoreSettings(window_steps=4))
    scorer.observe(rows(source(0, world_size=0), range(5)), 0)
    assert scorer.close_due(S) == []
    scorer.observe(rows(source(1, world_size=0), range(5)), 2 * S)
    (window,) = scorer.close_due(5 * S)
    assert ranks_of(window) == [0, 1]
    scorer.observe(rows(source(0, world_size=0), range(5, 9)), 6 * S)
    scorer.observe(rows(source(1, world_size=0), range(5, 9)), 6 * S)
    (second,) = scorer.close_due(6 * S)
    assert second.closed_by == "complete"


def test_rows_without_a_step_are_scored_by_intervals_of_their_start_time() -> None:
    """Arrival time plays no part: rows of second 0..29 form one window, those of 30.. the next."""
    scorer = Scorer(ScoreSettings(window_s=30.0))

    def timed(who: Source, seconds: list[int]) -> ObservationBatch:
        builder = BatchBuilder()
        for second in seconds:
            builder.add(
                who, Section("f"), step=NO_STEP, start_ns=second * S, duration_s=1.0, seq=second
            )
        return builder.build()

    scorer.observe(timed(source(0), [29, 1, 30, 5]), 0)
    scorer.observe(timed(source(1), [31, 2]), 0)
    (window,) = scorer.close_due(0)
    assert (window.first_step, window.last_step, window.n_steps) == (None, None, 0)
    assert window.section_count.tolist() == [[3], [1]]
    (rest,) = scorer.close_due(35 * S)
    assert rest.section_count.tolist() == [[1], [1]]


def test_a_silent_stream_closes_its_window_and_heartbeats_keep_it_open(scorer: Scorer) -> None:
    """30 s without rows close a window, unless a rank says that it lives (a long step)."""
    scorer.observe(rows(source(0), range(2)), 0)
    scorer.mark_alive(source(0), 20 * S)
    assert scorer.close_due(49 * S) == []
    (window,) = scorer.close_due(50 * S)
    assert window.closed_by == "idle"


def test_long_pauses_between_rows_make_a_stream_patient(scorer: Scorer) -> None:
    """A job with steps of 20 s is not idle after 30 s."""
    scorer.observe(rows(source(0), [0]), 0)
    scorer.observe(rows(source(0), [1]), 20 * S)
    assert scorer.close_due(99 * S) == []
    assert len(scorer.close_due(100 * S)) == 1


def test_a_smaller_world_after_a_restart_waits_for_nobody_who_is_gone(scorer: Scorer) -> None:
    """Two ranks became one, renumbered: its windows close at once and name no missing rank."""
    for rank in (0, 1):
        scorer.observe(rows(source(rank), range(5)), 0)
    scorer.close_due(0)
    survivor = source(0, "new", attempt=1, world_size=1, node="node-1")
    scorer.observe(rows(survivor, range(5)), S)
    (window,) = [w for w in scorer.close_due(S) if w.attempt == 1]
    assert (window.closed_by, window.missing_ranks, window.world_size) == ("complete", (), 1)


def test_own_history_follows_the_device_through_a_renumbering() -> None:
    """Rank 1 of node-1 comes back as rank 0 and 2x slower: its own score says so. The others do as
    before, so it is the same work."""
    scorer = Scorer(ScoreSettings(window_steps=6))
    for rank in range(3):
        scorer.observe(rows(source(rank, world_size=3), range(6)), 0)
    scorer.close_all()
    for rank, node, seconds in ((0, "node-1", 2.0), (1, "node-2", 1.0), (2, "node-0", 1.0)):
        moved = source(rank, "new", attempt=1, world_size=3, node=node)
        scorer.observe(rows(moved, range(6), seconds), S)
    (window,) = scorer.close_all()
    expected = pytest.approx([0.5, 1.0, 1.0], rel=1e-4)  # a second of fading
    assert window.section_individual[:, 0].tolist() == expected
    own = [each for each in window.stragglers if each.kind_of_score == "section_individual"]
    assert [each.source.node for each in own] == ["node-1"]


def test_a_session_whose_description_changes_stays_one_rank(scorer: Scorer) -> None:
    """A role that is known late applies to the whole window; nothing counts as superseded."""
    scorer.observe(rows(source(0), range(2)), 0)
    scorer.observe(rows(source(0, role="actor"), range(2, 4)), 0)
    (window,) = scorer.close_all()
    assert window.superseded == 0
    assert window.section_count.tolist() == [[4]]
    assert window.sources[0].role == "actor"


def test_two_live_sessions_of_one_rank_are_shown_and_never_merged(scorer: Scorer) -> None:
    """An older session that goes on sending new work is a clash."""
    a, b = source(0, "a"), source(0, "b", node="elsewhere")
    scorer.observe(rows(a, range(4)), 0)
    scorer.observe(rows(b, range(4), 9.0), S)
    assert scorer.clashes("run", S) == ()
    scorer.observe(rows(a, range(6, 9)), 2 * S)
    assert scorer.clashes("run", 2 * S) == (a,)
    assert scorer.clashes("run", 100 * S) == ()
    medians = sorted(w.section_median_s.tolist() for w in scorer.close_all())
    assert [[1.0]] in medians
    assert [[9.0]] in medians
    assert all(len(m) == 1 and m[0][0] in (1.0, 9.0) for m in medians)


def test_a_late_delivery_of_old_work_is_no_clash(scorer: Scorer) -> None:
    """After a restart the old session's retried rows may arrive behind the new session's."""
    scorer.observe(rows(source(0, "a"), range(2)), 0)
    scorer.observe(rows(source(0, "b"), range(4, 6)), 0)
    scorer.observe(rows(source(0, "a"), range(2, 4)), S)
    assert scorer.clashes("run", S) == ()


def test_runs_do_not_mix(scorer: Scorer) -> None:
    """The same rank numbers in two runs, sent in one batch, are four ranks."""
    builder = BatchBuilder()
    for run, duration_s in (("a", 1.0), ("b", 5.0)):
        for rank in (0, 1):
            for step in range(4):
                builder.add(
                    source(rank, run_id=run),
                    Section("f"),
                    step=step,
                    start_ns=step,
                    duration_s=duration_s,
                )
    scorer.observe(builder.build(), 0)
    windows = {w.run_id: w for w in scorer.close_all()}
    assert windows["a"].section_median_s.tolist() == [[1.0], [1.0]]
    assert windows["b"].section_median_s.tolist() == [[5.0], [5.0]]


def test_groups_of_one_job_are_worlds_of_their_own(scorer: Scorer) -> None:
    """Rank 0 of the actor and rank 0 of the critic are not peers."""
    for group, duration_s in (("actor", 1.0), ("critic", 5.0)):
        scorer.observe(rows(source(0, group=group, world_size=1), range(4), duration_s), 0)
    windows = scorer.close_all()
    assert [w.section_relative.tolist() for w in windows] == [[[1.0]], [[1.0]]]
    assert [w.sources[0].key for w in windows] == ["actor/0", "critic/0"]


def test_the_run_idle_longest_is_forgotten_first() -> None:
    """Beyond max_runs; what was open of it is scored, not lost."""
    scorer = Scorer(ScoreSettings(max_runs=2))
    for now, run in enumerate(("a", "b", "c")):
        scorer.observe(rows(source(0, run_id=run), range(2)), now * S)
    assert scorer.runs() == ("b", "c")
    (window,) = scorer.close_due(2 * S)
    assert window.run_id == "a"


def test_a_run_without_signs_of_life_is_forgotten_after_an_hour(scorer: Scorer) -> None:
    """State is given back."""
    scorer.observe(rows(source(0), range(2)), 0)
    scorer.close_due(40 * S)
    scorer.close_due(3600 * S)
    assert scorer.runs() == ()


def test_names_beyond_the_limit_share_one_row_and_lose_no_run() -> None:
    """Runs of different sections with equal seq are not taken for duplicates once folded."""
    scorer = Scorer(ScoreSettings(max_section_names=2))
    for name in ("a", "b", "c", "d"):
        scorer.observe(rows(source(0), range(4), section=name), 0)
    (window,) = scorer.close_all()
    assert [s.name for s in window.sections] == ["a", "b", "<other>"]
    assert window.section_count.tolist() == [[4, 4, 8]]
    assert window.duplicates == 0


def test_a_step_of_a_window_closed_long_ago_is_late() -> None:
    """Even after its window number has been forgotten."""
    scorer = Scorer(ScoreSettings(window_steps=1))
    who = source(0, world_size=1)
    for step in range(400):
        scorer.observe(rows(who, [step]), step * S)
        scorer.close_due(step * S)
    scorer.observe(rows(who, [1]), 400 * S)
    assert scorer.counts.late == 1


def test_rows_of_several_ranks_in_one_batch_go_to_one_window(scorer: Scorer) -> None:
    """A node agent batches its ranks; order within the batch does not matter."""
    builder = BatchBuilder()
    for step in range(5):
        for rank in (1, 0):
            builder.add(source(rank), Section("f"), step=step, start_ns=step, duration_s=1.0 + rank)
    scorer.observe(builder.build(), 0)
    (window,) = scorer.close_due(0)
    assert ranks_of(window) == [0, 1]
    assert window.section_relative[:, 0].tolist() == [1.0, 0.5]


def test_a_stray_row_does_not_replace_a_rank() -> None:
    """Two nodes claim rank 1; the one with a single row does not speak for it."""
    scorer = Scorer(ScoreSettings(window_steps=None))
    builder = BatchBuilder()
    for step in range(6):
        for who, duration_s in ((source(0), 1.0), (source(1), 2.0)):
            builder.add(who, Section("f"), step=step, start_ns=step, duration_s=duration_s)
    builder.add(source(1, node="elsewhere"), Section("f"), step=6, start_ns=6, duration_s=1.0)
    scorer.observe(builder.build(), 0)
    (window,) = scorer.close_all()
    assert window.section_relative.ravel().tolist() == [1.0, 0.5]
    assert window.superseded == 1


def test_an_attempt_that_was_replaced_is_let_go(scorer: Scorer) -> None:
    """A minute after its last row; what still arrives for it is late, not scored once more."""
    for attempt in range(5):
        for rank in (0, 1):
            who = source(rank, f"a{attempt}", attempt=attempt)
            scorer.observe(rows(who, range(5)), attempt * 100 * S)
        scorer.close_due(attempt * 100 * S)
        scorer.close_due((attempt * 100 + 90) * S)
    assert len(scorer._runs["run"][""]._attempts) == 1
    before = scorer.counts.late
    scorer.observe(rows(source(0, "a1", attempt=1), range(5)), 500 * S)
    assert scorer.counts.late - before == 5
    accounted = scorer.counts.scored + scorer.counts.late
    assert accounted == scorer.counts.observed


def test_a_late_row_of_an_old_attempt_does_not_hide_the_rest_of_its_batch(scorer: Scorer) -> None:
    """An agent's batch may hold both."""
    for attempt in (0, 1):
        scorer.observe(rows(source(0, f"a{attempt}", attempt=attempt, world_size=1), range(5)), 0)
    scorer.close_due(5 * S)
    scorer.close_due(70 * S)
    builder = BatchBuilder()
    for attempt in (0, 1):
        who = source(0, f"a{attempt}", attempt=attempt, world_size=1)
        builder.add(who, Section("forward"), step=7, start_ns=7 * S, duration_s=1.0, seq=7)
    scorer.observe(builder.build(), 71 * S)
    windows = scorer.close_all()
    assert [(w.attempt, w.last_step) for w in windows] == [(1, 7)]
    assert scorer.counts.late == 1


def test_rows_with_and_without_a_step_in_one_window() -> None:
    """The whole input as one window: a row without a step counts as one of its own."""
    scorer = Scorer(ScoreSettings(window_steps=None))
    who = source(0, world_size=1)
    batch = rows(who, [100, 101, NO_STEP, 102])
    scorer.observe(replace(batch, duration_s=np.array([1.0, 2.0, 3.0, 4.0])), 0)
    (window,) = scorer.close_all()
    assert (window.first_step, window.last_step, window.n_steps) == (100, 102, 3)
    assert window.section_count.tolist() == [[4]]
    assert window.section_median_s.tolist() == window.section_step_s.tolist() == [[2.5]]


class _Counting(np.ndarray):
    """Counts the NumPy operations on it, and on all that is derived from it."""

    operations = 0

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: object, **kw: object
    ) -> object:
        type(self).operations += 1
        plain = [np.asarray(each) if isinstance(each, _Counting) else each for each in inputs]
        return getattr(ufunc, method)(*plain, **kw)


def test_the_cost_of_new_ranks_does_not_grow_with_the_rows_of_the_others() -> None:
    """The rows of one request are read a fixed number of times, however many ranks it brings: else
    one request with very many ranks would make all other runs wait."""

    def operations(ranks: int) -> int:
        builder = BatchBuilder()
        for rank in range(ranks):
            who = source(rank, world_size=ranks)
            builder.add(who, Section("forward"), step=0, seq=0, start_ns=0, duration_s=1.0)
        batch = builder.build()
        _Counting.operations = 0
        batch = replace(batch, source=batch.source.view(_Counting), step=batch.step.view(_Counting))
        Scorer(ScoreSettings(window_steps=4)).observe(batch, 0)
        return _Counting.operations

    assert 0 < operations(400) == operations(4)
