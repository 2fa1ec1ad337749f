"""What reaches a judge as rows arrive: blocks of five steps, in order, every run once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.model.observation import NO_STEP, BatchBuilder, ObservationBatch, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable
from otel_straggler.model.verdict import Verdict

S = 1_000_000_000


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[StepTable]]:
    """What the judges are given, in order; they judge as ever."""
    seen: list[StepTable] = []
    take = VerdictEngine.observe

    def seen_take(self: VerdictEngine, table: StepTable) -> tuple[Verdict, ...]:
        seen.append(table)
        return take(self, table)

    monkeypatch.setattr(VerdictEngine, "observe", seen_take)
    yield seen
    for table in seen:
        assert (np.diff(table.steps) > 0).all()


def source(rank: int, session: str = "s", **changes: object) -> Source:
    described = {
        "run_id": "run",
        "rank": rank,
        "session_id": f"{session}{rank}",
        "world_size": 2,
        **changes,
    }
    return Source(**described)  # type: ignore[arg-type]


def rows(
    who: Source, steps: range | list[int], duration_s: float = 1.0, section: str = "forward"
) -> ObservationBatch:
    builder = BatchBuilder()
    for step in steps:
        builder.add(
            who,
            Section(section),
            step=step,
            seq=step,
            start_ns=max(step, 0) * S,
            duration_s=duration_s,
        )
    return builder.build()


def steps_of(tables: list[StepTable]) -> list[list[int]]:
    return [table.steps.tolist() for table in tables]


def test_a_block_is_judged_when_all_ranks_have_passed_it(tables: list[StepTable]) -> None:
    """Five steps, long before the window of layer 1 closes."""
    scorer = Scorer()
    scorer.observe(rows(source(0), range(6)), 0)
    scorer.observe(rows(source(1), range(5)), 0)
    assert scorer.close_due(0) == []
    assert tables == []
    scorer.observe(rows(source(1), [5]), 0)
    assert scorer.close_due(0) == []
    (table,) = tables
    assert table.steps.tolist() == [0, 1, 2, 3, 4]
    assert [s.rank for s in table.sources] == [0, 1]
    assert table.world_size == 2


def test_a_batch_in_any_order_fills_several_blocks_and_windows(tables: list[StepTable]) -> None:
    """Rows that come section by section: every step is found in its own block and window."""
    scorer = Scorer(ScoreSettings(window_steps=4))
    builder = BatchBuilder()
    for index, section in enumerate(("load", "forward")):
        for step in range(12):
            builder.add(
                source(0, world_size=1),
                Section(section),
                step=step,
                seq=step,
                start_ns=step * S + index,
                duration_s=1.0 + step,
            )
    scorer.observe(builder.build(), 0)
    windows = scorer.close_due(0)
    assert [(w.first_step, w.last_step) for w in windows] == [(0, 3), (4, 7)]
    assert [w.section_median_s.tolist() for w in windows] == [[[2.5, 2.5]], [[6.5, 6.5]]]
    assert steps_of(tables) == [list(range(5)), list(range(5, 10))]
    assert all((t.seconds[:, 0, 0] == t.steps + 1.0).all() for t in tables)
    assert all((t.runs == 1).all() for t in tables)


def test_a_block_waits_five_seconds_for_a_rank(tables: list[StepTable]) -> None:
    """Then it is judged without the rank, and the rank's rows for it are late: not in layer 1."""
    scorer = Scorer()
    scorer.observe(rows(source(0), range(6)), 0)
    scorer.close_due(5 * S - 1)
    assert tables == []
    scorer.close_due(5 * S)
    assert [s.rank for s in tables[0].sources] == [0]
    scorer.observe(rows(source(1), range(6)), 6 * S)
    assert scorer.counts.late == 0
    (window,) = scorer.close_all()
    assert window.section_count.tolist() == [[6], [6]]
    assert steps_of(tables) == [[0, 1, 2, 3, 4], [5]]
    assert [s.rank for s in tables[1].sources] == [0, 1]


def test_redelivered_rows_are_never_summed_twice(tables: list[StepTable]) -> None:
    """Not while the block is open, not after it was judged, not once it was forgotten."""
    scorer = Scorer()
    who = source(0, world_size=1)
    for step in range(2_000):
        for _ in range(2):
            scorer.observe(rows(who, [step]), step * S)
        if step % 7 == 0:
            scorer.observe(rows(who, range(max(0, step - 40), step)), step * S)
        if step % 500 == 0:
            scorer.observe(rows(who, range(5)), step * S)
        scorer.close_due(step * S)
    scorer.close_all()
    assert [s for table in tables for s in table.steps.tolist()] == list(range(2_000))
    assert all((table.runs == 1).all() and (table.seconds == 1.0).all() for table in tables)


@pytest.mark.parametrize("window_steps", [None, 3, 20])
def test_a_file_is_judged_in_the_order_of_its_steps(
    tables: list[StepTable], window_steps: int | None
) -> None:
    """Starts that begin again in every step, steps with gaps: what layer 1 does with its windows
    changes nothing."""
    steps = [16, 21, 27, 40, 41, 42, 50, 60, 61, 62, 63, 99]
    builder = BatchBuilder()
    for index, section in enumerate(("load", "forward")):
        for step in reversed(steps):
            for rank in (0, 1):
                builder.add(
                    source(rank),
                    Section(section),
                    step=step,
                    start_ns=index * 1000 + 100 - step,
                    duration_s=1.0,
                )
    scorer = Scorer(ScoreSettings(window_steps=window_steps))
    batch = builder.build()
    for first in range(0, len(batch), 10):
        scorer.observe(batch.take(np.arange(first, min(first + 10, len(batch)))), 0)
    scorer.close_all()
    assert steps_of(tables) == [steps[:5], steps[5:10], steps[10:]]
    assert all((table.runs == 1).all() for table in tables)
    assert [s.name for s in tables[0].sections] == ["load", "forward"]


def test_rows_without_a_step_are_judged_by_intervals_of_ten_seconds(
    tables: list[StepTable],
) -> None:
    """One interval a table, as soon as all ranks have passed it."""
    scorer = Scorer()
    for rank in (0, 1):
        builder = BatchBuilder()
        for second in (1, 5, 12, 23):
            builder.add(
                source(rank), Section("f"), step=NO_STEP, start_ns=second * S, duration_s=0.5
            )
        scorer.observe(builder.build(), 0)
    scorer.close_due(0)
    assert steps_of(tables) == [[0], [1]]
    scorer.close_all()
    assert steps_of(tables) == [[0], [1], [2]]
    assert all(table.is_timed for table in tables)
    assert tables[0].runs.ravel().tolist() == [2, 2]


def test_a_restart_that_redoes_steps_is_judged_as_a_world_of_its_own(
    tables: list[StepTable],
) -> None:
    """Steps 3 to 6 ran twice, once in each incarnation; they are not added up."""
    scorer = Scorer()
    for rank in (0, 1):
        scorer.observe(rows(source(rank), range(7)), 0)
    for rank in (0, 1):
        scorer.observe(rows(source(rank, "new"), range(3, 9), 2.0), S)
    scorer.close_due(S)
    scorer.close_all()
    assert sorted(steps_of(tables)) == [[0, 1, 2, 3, 4], [3, 4, 5, 6, 7], [5, 6], [8]]
    assert all((table.runs == 1).all() for table in tables)


@pytest.mark.parametrize("window_steps", [None, 3])
def test_a_restart_in_a_file_is_judged_the_same_whatever_is_read_at_once(
    tables: list[StepTable], window_steps: int | None
) -> None:
    """Both sessions in one batch or in two: two worlds, the old one first."""
    builder = BatchBuilder()
    for session, steps, seconds in (("a", range(7), 1.0), ("b", range(3, 9), 2.0)):
        for step in steps:
            for rank in (0, 1):
                builder.add(
                    source(rank, session),
                    Section("f"),
                    step=step,
                    seq=step,
                    start_ns=step + (100 if session == "b" else 0),
                    duration_s=seconds,
                )
    batch = builder.build()
    scorer = Scorer(ScoreSettings(window_steps=window_steps))
    parts = (
        [batch]
        if window_steps is None
        else [batch.take(np.arange(n, n + 2)) for n in range(0, len(batch), 2)]
    )
    for part in parts:
        scorer.observe(part, 0)
    scorer.close_all()
    assert steps_of(tables) == [[0, 1, 2, 3, 4], [5, 6], [3, 4, 5, 6, 7], [8]]
    assert [float(table.seconds.max()) for table in tables] == [1.0, 1.0, 2.0, 2.0]


def test_once_a_new_attempt_is_judged_the_old_one_is_over(tables: list[StepTable]) -> None:
    """What was open of the old attempt comes first; what it sends later is not judged."""
    scorer = Scorer()
    for rank in (0, 1):
        scorer.observe(rows(source(rank), range(3)), 0)
        scorer.observe(rows(source(rank, "new", attempt=1), range(6)), S)
    scorer.close_due(S)
    assert [(t.sources[0].attempt, t.steps.tolist()) for t in tables] == [
        (0, [0, 1, 2]),
        (1, [0, 1, 2, 3, 4]),
    ]
    scorer.observe(rows(source(0), range(3, 20)), 2 * S)
    scorer.close_all()
    assert [t.sources[0].attempt for t in tables] == [0, 1, 1]


def test_nested_sections_are_scored_but_not_judged(tables: list[StepTable]) -> None:
    """Layer 1 has them by name as ever; layer 2 sums up what is around them."""
    scorer = Scorer()
    builder = BatchBuilder()
    for step in range(3):
        who = source(0, world_size=1)
        builder.add(who, Section("f"), step=step, start_ns=1, duration_s=1.0)
        builder.add(who, Section("g", parent="f"), step=step, start_ns=1, duration_s=0.5)
    scorer.observe(builder.build(), 0)
    (window,) = scorer.close_all()
    assert [(s.name, s.parent) for s in window.sections] == [("f", ""), ("g", "f")]
    assert window.section_count.tolist() == [[3, 3]]
    assert [s.name for s in tables[0].sections] == ["f"]


def test_a_section_that_also_runs_by_itself_is_no_part_of_another(
    tables: list[StepTable],
) -> None:
    """From the first such run on; layer 2 has those runs and no others."""
    scorer = Scorer()
    for first, parent in ((0, "f"), (3, ""), (6, "f")):
        builder = BatchBuilder()
        for step in range(first, first + 3):
            who = source(0, world_size=1)
            builder.add(who, Section("f"), step=step, start_ns=1 + step, duration_s=1.0)
            nested = Section("g", parent=parent)
            builder.add(who, nested, step=step, start_ns=1 + step, duration_s=0.5)
        scorer.observe(builder.build(), 0)
    (window,) = scorer.close_all()
    assert [(s.name, s.parent) for s in window.sections] == [("f", ""), ("g", "")]
    reported = [(step, s) for t in tables for step in t.steps.tolist() for s in t.sections]
    assert {s.parent for _, s in reported} == {""}


def test_runs_and_groups_are_judged_apart_and_forgotten_with_their_run(
    tables: list[StepTable],
) -> None:
    """One judge for each run and group; a run that is forgotten takes its judges along."""
    scorer = Scorer(ScoreSettings(max_runs=2))
    for now, run in enumerate(("a", "b", "c")):
        for group in ("actor", "critic"):
            who = source(0, run_id=run, group=group, world_size=1)
            scorer.observe(rows(who, range(6)), now * S)
            scorer.close_due(now * S)
    run_verdicts = {(t.sources[0].run_id, t.sources[0].group) for t in tables}
    assert len(run_verdicts) == 6
    assert sorted(scorer.state()["judges"]) == [
        '["b", "actor"]',
        '["b", "critic"]',
        '["c", "actor"]',
        '["c", "critic"]',
    ]


def test_judges_survive_a_restart_of_the_scorer_and_are_forgotten_if_nobody_comes_back() -> None:
    """An hour after the restart, as runs in memory are."""
    before = Scorer()
    before.observe(rows(source(0, world_size=1), range(6)), 0)
    before.close_due(0)
    after = Scorer()
    after.restore(before.state())
    after.close_due(0)
    assert list(after.state()["judges"]) == ['["run", ""]']
    after.close_due(3599 * S)
    assert list(after.state()["judges"]) == ['["run", ""]']
    after.close_due(3600 * S)
    assert after.state()["judges"] == {}
