"""Saves of checkpoints as ranks report them: the last one, and who writes slowly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from otel_straggler import semconv
from otel_straggler.collector.runs.store import RunStore
from otel_straggler.detect.checkpoints import LastSave, WriterVerdicts
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import PassthroughMetric
from otel_straggler.model.verdict import Verdict
from otel_straggler.otlp.metric_rules import DecodedMetrics

NORMAL_S, SLOW_S = 2.0, 6.0


class Ranks:
    """Four ranks that save every 60 s, and report totals, as the client sends them."""

    def __init__(self, store: RunStore | None = None) -> None:
        self.store = store or RunStore()
        self.totals: dict[int, list[float]] = {}
        self.now_s = 1_000.0
        self.session, self.attempt = "first", 0

    def source(self, rank: int) -> Source:
        return Source(
            run_id="run", rank=rank, node=f"node-{rank}", world_size=4, attempt=self.attempt,
            session_id=self.session,
        )  # fmt: skip

    def restart(self) -> None:
        self.session, self.attempt, self.totals = "second", self.attempt + 1, {}

    def save(self, step: int, *, slow: int | None = None, ranks: int = 4) -> None:
        self.now_s += 60.0
        for rank in range(ranks):
            self.report(rank, step, SLOW_S if rank == slow else NORMAL_S)

    def report(self, rank: int, step: int, write_s: float | None, blocking_s: float = 0.1) -> None:
        """None: nothing new."""
        totals = self.totals.setdefault(rank, [0.0] * 5)
        if write_s is not None:
            for at, more in enumerate((1.0, write_s + 0.5, write_s, blocking_s, 1e9)):
                totals[at] += more
        metrics = (
            semconv.CHECKPOINT_SAVES, semconv.CHECKPOINT_SAVE_TIME, semconv.CHECKPOINT_WRITE_TIME,
            semconv.CHECKPOINT_BLOCKING_TIME, semconv.CHECKPOINT_SIZE,
        )  # fmt: skip
        numbers = [*zip(metrics, totals, strict=True), (semconv.CHECKPOINT_STEP, float(step))]
        points = tuple(PassthroughMetric(self.source(rank), m, (), v) for m, v in numbers)
        decoded = DecodedMetrics(heartbeats=(), passthrough=points, points={})
        self.store.observe_passthrough(decoded, self.now_s, self.now_s)

    @property
    def last(self) -> LastSave:
        last = self.store.world("run", "").checkpoints.last
        assert last is not None
        return last

    @property
    def changes(self) -> tuple[Verdict, ...]:
        return self.store.world("run", "").checkpoints.changes


def test_the_last_save_is_of_its_slowest_rank_and_all_bytes() -> None:
    ranks = Ranks()
    ranks.save(100)
    ranks.save(200, slow=3)
    assert ranks.last.text == (
        "Checkpoint at step 200: 4.0 GB in 6.5 s, of which training waited 0.1 s; "
        "rank 3 wrote 3.0x as long as the others."
    )
    assert ranks.changes == ()


def test_a_rank_that_writes_slowly_in_three_saves_is_confirmed_once() -> None:
    ranks = Ranks()
    for step in (100, 200, 300, 400):
        ranks.save(step, slow=3)
    [verdict] = ranks.changes
    assert (verdict.rank, verdict.cause, verdict.state) == (3, "checkpoint", "confirmed")
    assert (verdict.since_step, verdict.confirmed_step, verdict.n_peers) == (100, 300, 3)
    assert verdict.slowdown == pytest.approx(3.0)
    assert not verdict.pages
    assert verdict.gpu_seconds_lost_per_hour == 0.0  # training goes on meanwhile
    assert verdict.sentence == (
        "rank 3 on node-3 takes 3.00x as long as its 3 peers in checkpoint_write since step 100: "
        "slow writing of checkpoints, 4.0 s more in each."
    )


def test_a_save_that_a_slow_rank_has_not_reported_yet_is_not_compared() -> None:
    """Ranks report one after another."""
    ranks = Ranks()
    for step in (100, 200):
        ranks.save(step, slow=2)
    ranks.now_s += 60.0
    for rank in range(3):
        ranks.report(rank, 300, SLOW_S if rank == 2 else NORMAL_S)
    assert ranks.changes == ()
    ranks.report(3, 300, NORMAL_S)
    assert [verdict.rank for verdict in ranks.changes] == [2]


def test_what_a_synchronous_save_costs_all_ranks_is_its_loss() -> None:
    ranks = Ranks()
    for step in (100, 200, 300):
        ranks.now_s += 60.0
        for rank in range(4):
            ranks.report(rank, step, SLOW_S if rank == 1 else NORMAL_S, blocking_s=6.5)
    [verdict] = ranks.changes
    assert verdict.gpu_seconds_lost_per_hour == pytest.approx(4.0 * 60.0 * 4)


def test_a_rank_that_is_well_again_recovers() -> None:
    ranks = Ranks()
    for step in (100, 200, 300):
        ranks.save(step, slow=3)
    for step in range(400, 900, 100):
        ranks.save(step)
    assert [verdict.state for verdict in ranks.changes] == ["confirmed", "recovered"]
    assert ranks.changes[-1].sentence == "rank 3 on node-3 is as fast as before again."


def test_totals_that_are_repeated_or_begin_again_are_no_save() -> None:
    """They are sent every 30 s; a restarted process counts from 0."""
    ranks = Ranks()
    ranks.save(100)
    for rank in range(4):
        ranks.report(rank, 100, None)
    assert (ranks.last.step, ranks.last.save_s) == (100, 2.5)
    ranks.restart()
    for rank in range(4):
        ranks.report(rank, 100, None)
    ranks.save(50)
    assert (ranks.last.step, ranks.last.n_ranks, ranks.last.save_s) == (50, 4, 2.5)


def test_several_saves_of_one_step_count_as_their_mean() -> None:
    """Model and optimizer apart: one rank reports both at once, the others one by one."""
    ranks = Ranks()
    for step in (100, 200, 300):
        for rank in range(4):
            ranks.report(rank, step, NORMAL_S)
        for rank in range(4):
            ranks.report(rank, step, NORMAL_S)
    assert ranks.changes == ()
    assert ranks.last.save_s == 2.5


def test_its_interval_is_stated_with_what_it_rests_on() -> None:
    """Daly's; one rank computes it."""
    store = RunStore()
    ranks = Ranks(store)
    source = ranks.source(0)
    numbers = (
        (semconv.CHECKPOINT_SAVES, 1.0), (semconv.CHECKPOINT_INTERVAL, 412.0),
        (semconv.CHECKPOINT_MTBF, 108_000.0),
    )  # fmt: skip
    points = tuple(PassthroughMetric(source, metric, (), value) for metric, value in numbers)
    store.observe_passthrough(DecodedMetrics(heartbeats=(), passthrough=points, points={}), 1.0)
    assert ranks.last.text.endswith(
        " Saved every 412 s, the interval that loses the least time (Daly) if a failure is "
        "expected every 30 h."
    )
    assert replace(ranks.last, interval_s=0.0).text.count("Saved every") == 0


def test_a_save_of_many_ranks_is_judged_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is complete, and when the next one begins: not again for each rank that reports."""
    judged: list[int] = []
    monkeypatch.setattr(
        WriterVerdicts, "observe", lambda _, saves, __: judged.append(len(saves[-1:]))
    )
    ranks = Ranks()
    for step in (100, 200):
        ranks.save(step)
    assert len(judged) == 4


def test_the_last_save_is_known_until_a_new_attempt_has_saved() -> None:
    ranks = Ranks()
    ranks.save(100)
    ranks.restart()
    ranks.report(0, 100, None)
    assert ranks.last.step == 100
