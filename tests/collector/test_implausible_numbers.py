"""One process with a wrong number: the run is monitored as before, what the process says is set
aside, and the page, /metrics and the log say which process, which number, and what to do."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import pytest

from otel_straggler.collector.ingest.intake import ByteBudget
from otel_straggler.collector.worker import Worker
from otel_straggler.model.observation import BatchBuilder, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.otlp.span_rules import DecodedSpans, Progress

HUGE = 2**63 - 1
SECTION = Section("forward")


class Fleet:
    """A worker without its thread, and the ranks of a run, by a clock that the test moves."""

    def __init__(self, kit: Any, ranks: int = 8, **settings: Any) -> None:
        self.now_s = 1.79e9
        self.step = 0
        self.ranks = [self.source(rank, ranks) for rank in range(ranks)]
        self.worker = Worker(
            kit.settings(**{"scoring__window_steps": 5, "scoring__grace_s": 2.0, **settings}),
            ByteBudget(1 << 30),
            monotonic_ns=lambda: int(self.now_s * 1e9),
            wall_s=lambda: self.now_s,
        )
        self.worker.sign("c")
        self.windows: list[Any] = []
        observe = self.worker._store.observe_window

        def keep(window: Any, now_s: float) -> None:
            self.windows.append(window)
            observe(window, now_s)

        self.worker._store.observe_window = keep  # type: ignore[method-assign]

    def source(self, rank: int, world_size: int = 8, **changes: Any) -> Source:
        values = {"run_id": "run", "session_id": f"s{rank}", "node": f"node-{rank}", **changes}
        return Source(rank=rank, world_size=world_size, **values)

    def spans(self, source: Source, steps: Iterable[int]) -> None:
        batch, newest = BatchBuilder(), -1
        for step in steps:
            start_ns = int(self.now_s * 1e9) - 100_000_000
            batch.add(
                source, SECTION, start_ns=start_ns, duration_s=0.1, step=step, seq=step % 2**40
            )
            newest = max(newest, step)
        progress = {source: Progress(newest, int(self.now_s * 1e9))}
        spans = DecodedSpans(batch=batch.build(), outcomes={}, progress=progress)
        self.worker.ingest(spans, 0)
        self.worker.process_queued()

    def beat(self, source: Source, **values: Any) -> None:
        values = {"sent_at_s": self.now_s, "progress_at_s": self.now_s, **values}
        beat = Heartbeat(source=source, **values)
        self.worker.ingest(DecodedMetrics(heartbeats=(beat,), points={}), 0)
        self.worker.process_queued()

    def train(self, steps: int, ranks: Iterable[Source] | None = None) -> None:
        """A step a second: a span and a heartbeat of each rank."""
        ranks = self.ranks if ranks is None else list(ranks)
        for _ in range(steps):
            self.now_s += 1.0
            for rank in ranks:
                self.spans(rank, [self.step])
                self.beat(rank, step=self.step)
            self.step += 1
            self.look()

    def look(self) -> None:
        self.worker.show_soon()
        self.now_s += 0.2
        self.worker.tick()
        self.now_s -= 0.2

    @property
    def status(self) -> Any:
        return self.worker.snapshot.runs["run"].worlds[""]

    @property
    def state(self) -> str:
        return str(self.worker.snapshot.runs["run"].hangs[""].state)

    @property
    def problems(self) -> tuple[str, ...]:
        return self.worker.snapshot.problems

    def rejected(self) -> dict[str, int]:
        return {what: count for what, count in self.worker.counts().rejected.items() if count}


@pytest.fixture
def fleet(kit: Any) -> Fleet:
    return Fleet(kit)


# --- attempts ------------------------------------------------------------------------------------


def test_one_span_of_a_huge_attempt_does_not_hide_the_run(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    """The ranks that train are shown and scored; the log names the process once."""
    fleet.train(12)
    fleet.spans(fleet.source(3, attempt=HUGE, session_id="x"), [1])
    fleet.train(40)
    assert fleet.status.attempt == 0
    assert len(fleet.status.ranks) == 8
    assert fleet.windows[-1].attempt == 0
    assert fleet.windows[-1].last_step > 45
    assert fleet.rejected() == {"attempt": 1}
    (problem,) = fleet.problems
    assert problem.startswith("run 'run': the process of rank 3 on 'node-3' reports attempt 922337")
    assert "expected 0, as of 8 ranks that report" in problem
    assert [record.getMessage() for record in caplog.records] == [problem]
    fleet.train(125)
    assert fleet.problems == ()


def test_a_process_that_keeps_sending_a_newer_attempt_is_set_aside_and_logged_now_and_then(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.train(5)
    odd = fleet.source(3, attempt=7, session_id="x")
    for _ in range(50):
        fleet.train(1)
        fleet.beat(odd)
    assert fleet.status.attempt == 0
    assert fleet.state == "training"
    assert fleet.rejected()["attempt"] > 30
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_a_restarted_job_is_followed_with_its_first_steps(kit: Any, ranks: int) -> None:
    """Of the ranks that come before there are enough to be believed, nothing is lost."""
    fleet = Fleet(kit, ranks)
    fleet.train(12)
    fleet.step = 0
    new = [fleet.source(rank, ranks, attempt=1, session_id=f"n{rank}") for rank in range(ranks)]
    fleet.train(12, new)
    assert fleet.status.attempt == 1
    assert len(fleet.status.ranks) == ranks
    of_new = [window for window in fleet.windows if window.attempt == 1]
    assert (of_new[0].first_step, of_new[0].last_step) == (0, 4)
    assert of_new[0].section_count.min() == 5
    assert fleet.rejected() == {}
    assert fleet.problems == ()


def test_a_job_that_comes_back_with_fewer_ranks_is_followed_once_the_others_are_silent(
    fleet: Fleet,
) -> None:
    """Two of eight: they wait until nobody of the older attempt reports, and lose nothing."""
    fleet.train(12)
    fleet.step = 0
    new = [fleet.source(rank, 2, attempt=1, session_id=f"n{rank}") for rank in range(2)]
    fleet.train(10, new)
    assert fleet.status.attempt == 0
    fleet.train(12, new)
    assert fleet.status.attempt == 1
    assert sorted(fleet.status.ranks) == [0, 1]
    of_new = [window for window in fleet.windows if window.attempt == 1]
    assert (of_new[0].first_step, of_new[0].section_count.min()) == (0, 5)


def test_a_wrong_attempt_that_comes_first_gives_way_to_the_ranks_of_the_job(fleet: Fleet) -> None:
    """Though it goes on. What was known of it is gone with it."""
    odd = fleet.source(0, attempt=HUGE, session_id="x")
    fleet.beat(odd)
    for _ in range(40):
        fleet.train(1)
        fleet.beat(odd)
        fleet.spans(odd, [fleet.step])
    assert fleet.status.attempt == 0
    assert len(fleet.status.ranks) == 8
    assert fleet.windows[-1].attempt == 0
    assert len(fleet.windows[-1].sources) == 8
    assert "reports attempt" in fleet.problems[0]


def test_late_telemetry_of_an_attempt_that_is_over_does_not_bring_it_back(fleet: Fleet) -> None:
    """A queue on the way delivers it for minutes, while the newer attempt stands still."""
    fleet.train(12)
    began_s = fleet.now_s
    fleet.step = 0
    fleet.train(5, [fleet.source(r, attempt=1, session_id=f"n{r}") for r in range(8)])
    for tick in range(60):
        fleet.now_s += 1.0
        for rank in fleet.ranks:
            fleet.beat(rank, sent_at_s=began_s - 60.0 + tick)
    fleet.look()
    assert fleet.status.attempt == 1


# --- the end of ranks and runs -------------------------------------------------------------------


@pytest.mark.parametrize("session", ["of the rank", "of nobody"])
def test_a_forged_end_lasts_until_the_rank_reports_again(fleet: Fleet, session: str) -> None:
    """Of all ranks at once: the run has not finished, and its windows are scored."""
    fleet.train(12)
    for rank in fleet.ranks:
        forger = rank if session == "of the rank" else fleet.source(rank.rank, session_id="x")
        fleet.beat(forger, finished_at_s=fleet.now_s, outcome="ok")
    fleet.train(30)
    assert fleet.status.finished_at_s is None
    assert not any(rank.finished_at_s for rank in fleet.status.ranks.values())
    assert {rank.source.session_id for rank in fleet.status.ranks.values()} == {
        f"s{rank}" for rank in range(8)
    }
    assert fleet.state == "training"
    assert fleet.windows[-1].last_step >= 35
    assert fleet.windows[-1].closed_by == "complete"


def test_what_a_rank_did_before_its_end_and_is_delivered_after_it_does_not_revive_it(
    fleet: Fleet,
) -> None:
    fleet.train(12)
    ended_s = fleet.now_s
    for rank in fleet.ranks:
        fleet.beat(rank, finished_at_s=ended_s, outcome="ok")
    fleet.now_s += 20.0
    for rank in fleet.ranks:
        fleet.beat(rank, sent_at_s=ended_s - 5.0)
    fleet.look()
    assert fleet.status.finished_at_s is not None
    assert fleet.state == "finished"


# --- steps ---------------------------------------------------------------------------------------


def test_one_span_at_a_far_step_keeps_no_window_open(fleet: Fleet) -> None:
    """It is set aside, and the rank is scored as before."""
    fleet.train(12)
    fleet.spans(fleet.ranks[3], [10**9])
    fleet.train(20)
    steps = [(window.first_step, window.last_step) for window in fleet.windows]
    assert steps == [(first, first + 4) for first in range(0, 30, 5)]
    assert all(len(window.sources) == 8 for window in fleet.windows)
    assert fleet.status.ranks[3].step < 100
    assert fleet.rejected() == {"step": 1}
    (problem,) = fleet.problems
    assert (
        "rank 3 on 'node-3' reports step 1000000000; expected near 11, as of the other" in problem
    )


@pytest.mark.parametrize("is_first", [False, True])
def test_a_rank_that_counts_something_else_is_set_aside(fleet: Fleet, is_first: bool) -> None:
    """Samples instead of steps, in spans and heartbeats; also if it is the first to report."""
    *others, odd = fleet.ranks
    if is_first:
        fleet.spans(odd, [10**6])
        fleet.beat(odd, step=10**6)
    for _ in range(60):
        fleet.train(1, others)
        fleet.spans(odd, [10**6 + 512 * fleet.step])
        fleet.beat(odd, step=10**6 + 512 * fleet.step)
    whole = [window for window in fleet.windows if len(window.sources) >= 7]
    assert whole[-1].last_step >= 53
    assert len(whole) >= 8
    assert any("reports step" in problem for problem in fleet.problems)
    assert fleet.state == "training"


def test_steps_that_jump_on_all_ranks_are_followed(fleet: Fleet) -> None:
    """A job that goes on elsewhere in its data: half of the ranks lose a step of spans."""
    fleet.train(12)
    fleet.step = 500_000
    fleet.train(60)
    assert fleet.windows[-1].first_step >= 500_005
    assert len(fleet.windows[-1].sources) == 8
    assert 0 < fleet.rejected()["step"] <= 2 * 5


def test_steps_that_follow_one_another_are_plausible_however_many_come_at_once(kit: Any) -> None:
    """A recording that is sent rank by rank in large requests."""
    fleet = Fleet(kit, 2, scoring__window_steps=500, verdicts__block_steps=100)
    for rank in fleet.ranks:
        for first, end in ((0, 20), (20, 2_500), (2_500, 3_000)):
            fleet.spans(rank, range(first, end))
    fleet.look()
    assert fleet.rejected() == {}
    assert fleet.status.ranks[1].step == 2_999


def test_a_rank_that_was_cut_off_and_catches_up_holds_no_other_back(kit: Any) -> None:
    """Its spans come four thousand steps late, from a queue on the way; the other goes on."""
    fleet = Fleet(kit, 2, scoring__window_steps=500, verdicts__block_steps=100)
    fleet.train(5)
    fleet.step = 4_000
    for step in range(5, 4_000, 500):
        fleet.spans(fleet.ranks[0], range(step, step + 500))
    fleet.now_s += 300.0
    for step in range(5, 3_500, 500):
        fleet.spans(fleet.ranks[1], range(step, step + 500))
        fleet.train(1, fleet.ranks[:1])
    assert fleet.rejected() == {}


def test_a_single_rank_is_believed_the_second_time(kit: Any) -> None:
    """One far step is set aside; a counter that goes on there is followed."""
    fleet = Fleet(kit, 1)
    fleet.train(12)
    fleet.spans(fleet.ranks[0], [10**9])
    fleet.train(8)
    assert fleet.windows[-1].last_step == 14
    assert fleet.rejected() == {"step": 1}
    fleet.step = 10**9
    fleet.train(12)
    assert fleet.windows[-1].last_step > 10**9


# --- ranks, world sizes, places ------------------------------------------------------------------


def test_one_rank_with_a_larger_world_size_does_not_make_the_others_miss_ranks(
    fleet: Fleet,
) -> None:
    """Its size is set aside, and it is monitored."""
    odd = fleet.source(3, 1_000, session_id="x")
    ranks = [rank for rank in fleet.ranks if rank.rank != 3]
    fleet.train(5)
    for _ in range(40):
        fleet.train(1, ranks)
        fleet.beat(odd, step=fleet.step)
        fleet.spans(odd, [fleet.step])
    assert fleet.status.world_size == 8
    assert len(fleet.status.ranks) == 8
    assert fleet.state == "training"
    assert fleet.windows[-1].world_size == 8
    assert "reports the world size 1000; expected 8, as of" in fleet.problems[0]


def test_a_world_that_grows_is_followed_with_its_first_steps(fleet: Fleet) -> None:
    """An elastic launcher restarts all ranks with the same attempt and more of them."""
    fleet.train(12)
    fleet.step = 0
    new = [fleet.source(rank, 16, session_id=f"n{rank}") for rank in reversed(range(16))]
    fleet.train(12, new)
    assert fleet.status.world_size == 16
    assert len(fleet.status.ranks) == 16
    assert fleet.rejected() == {}
    (window,) = [w for w in fleet.windows if w.world_size == 16 and w.first_step == 0]
    assert window.section_count.min() == 5


def test_a_rank_beyond_the_world_of_the_others_is_set_aside(fleet: Fleet) -> None:
    fleet.train(5)
    fleet.spans(fleet.source(100, 0), [5])
    fleet.train(5)
    assert sorted(fleet.status.ranks) == list(range(8))
    assert "reports rank 100; expected below the world size of 8" in fleet.problems[0]


def test_ranks_beyond_the_limit_are_set_aside_and_others_are_monitored(kit: Any) -> None:
    """Numbers that cannot be, and more ranks in all groups than one run may have."""
    fleet = Fleet(kit, 2, scoring__max_ranks=4)
    fleet.train(5)
    fleet.beat(fleet.source(2**31 - 1, 0, group="else"))
    for rank in range(4):
        fleet.beat(fleet.source(rank, 4, group="more"))
    fleet.train(5)
    assert {g: len(w.ranks) for g, w in fleet.worker.snapshot.runs["run"].worlds.items()} == {
        "": 2,
        "more": 2,
    }
    assert fleet.rejected() == {"rank": 1, "ranks": 2}
    assert any("2147483647; expected below 4 (scoring.max_ranks)" in p for p in fleet.problems)
    assert any("beyond the 4 ranks" in problem for problem in fleet.problems)


def test_a_place_that_cannot_be_is_set_aside_and_the_rank_is_monitored(fleet: Fleet) -> None:
    """The other places of the rank count."""
    parallel = (("data", 3), ("tensor", 2**31))
    odd = fleet.source(3, parallel=parallel)
    fleet.train(3, [rank if rank.rank != 3 else odd for rank in fleet.ranks])
    assert fleet.status.ranks[3].source.parallel == (("data", 3),)
    assert fleet.rejected() == {"parallel": 6}
    assert "reports place 2147483648 (tensor) in a parallel dimension" in fleet.problems[0]
    assert "expected below the world size of 8" in fleet.problems[0]


def test_what_waits_for_a_quorum_is_bounded(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is left out, and nothing is kept of what waited in vain."""
    from otel_straggler.collector.runs import plausibility

    monkeypatch.setattr(plausibility, "_HELD_BYTES_OF_WORLD", 10_000)
    fleet.train(3)
    for _ in range(10):
        fleet.train(1)
        fleet.spans(fleet.source(3, attempt=1, session_id="x"), range(100))
    claims = fleet.worker._store.runs["run"].worlds[""].claims.claims
    assert sum(claim.held_bytes for claim in claims.values()) == 7_400
    fleet.train(20)
    assert sum(len(claim.held) for claim in claims.values()) == 0


# --- one run must not make the others wait -------------------------------------------------------


def test_a_run_that_is_costly_to_view_is_viewed_at_a_rate_of_its_own(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenth of the time is for such runs; the others are viewed as if it were not there."""
    publisher, cpu_s = fleet.worker._publisher, [0.0]
    monkeypatch.setattr(
        "otel_straggler.collector.views.publisher.time.thread_time", lambda: cpu_s[0]
    )
    build = publisher._view

    def view(run: Any, *rest: Any) -> Any:
        cpu_s[0] += 1.0 if run.run_id == "large" else 0.001
        return build(run, *rest)

    monkeypatch.setattr(publisher, "_view", view)
    viewed: dict[str, set[float]] = {"run": set(), "large": set()}
    for _ in range(40):
        fleet.beat(fleet.source(0, 1, run_id="large"))
        fleet.train(1)
        for run_id, each in fleet.worker.snapshot.runs.items():
            viewed[run_id].add(each.now_s)
    assert len(viewed["run"]) == 40
    assert 3 <= len(viewed["large"]) <= 6
    fleet.worker.finish()
    assert fleet.worker.snapshot.runs["large"].now_s == fleet.worker.snapshot.runs["run"].now_s


def test_the_largest_run_gives_way_where_memory_is_short(kit: Any) -> None:
    """Its windows close early, and it takes no further ranks and names; the others do."""
    fleet = Fleet(kit, 2, scoring__memory_mib=64)
    fleet.train(4)
    fleet.worker._store._memory_bytes = 3_000_000
    large = [fleet.source(rank, 0, run_id="large") for rank in range(2)]
    for source in large:
        fleet.spans(source, [1] * 40_000)
    fleet.now_s += 1.0
    fleet.look()
    assert [(w.run_id, w.closed_by) for w in fleet.windows] == [("large", "grace")]
    (problem,) = fleet.problems
    assert problem.startswith("run 'large'")
    assert "more than its share of the 64 MiB for all runs (scoring.memory_mib)" in problem
    fleet.spans(fleet.source(7, 0, run_id="large"), [1])
    fleet.spans(fleet.source(7, 0, run_id="third"), [1])
    assert 7 not in fleet.worker._store.runs["large"].worlds[""].claims
    assert 7 in fleet.worker._store.runs["third"].worlds[""].claims
    assert fleet.rejected() == {"memory": 1}
    fleet.train(1)
    fleet.spans(fleet.source(7, 0, run_id="large"), [1])
    assert 7 in fleet.worker._store.runs["large"].worlds[""].claims


def test_very_many_sessions_of_a_rank_are_dropped_where_memory_is_short(kit: Any) -> None:
    """As of a process that restarts in a loop; what it sends then is scored."""
    fleet = Fleet(kit, 2, scoring__window_steps=2_000, verdicts__block_steps=100)
    fleet.worker._store._memory_bytes = 1_000_000
    for number in range(1_100):
        fleet.spans(fleet.source(0, 0, session_id=f"x{number}"), [number])
    fleet.look()
    (world,) = fleet.worker._scorer._runs["run"].values()
    assert world.nbytes == 0
    fleet.spans(fleet.source(0, 0, session_id="y"), [1_100])
    assert world.nbytes > 0


def test_incarnations_of_a_world_are_bounded(kit: Any) -> None:
    """A session that repeats a step begins one; the oldest are dropped once they are scored."""
    fleet = Fleet(kit, 1)
    for number in range(100):
        fleet.spans(fleet.source(0, 0, session_id=f"x{number}"), [1])
        if number % 10 == 0:
            fleet.now_s += 10.0
            fleet.look()
    (world,) = fleet.worker._scorer._runs["run"].values()
    assert len(list(world._all_streams())) == 64


def test_a_request_of_many_ranks_beyond_the_limit_is_counted_whole(kit: Any) -> None:
    """With one problem for all of them; nothing is kept of any."""
    fleet = Fleet(kit, 2)
    batch, progress = BatchBuilder(), {}
    for rank in (0, *range(20_000, 25_000)):
        source = fleet.source(rank, 0)
        batch.add(source, SECTION, start_ns=1, duration_s=0.1, step=1, seq=1)
        progress[source] = Progress(1, 2)
    spans = DecodedSpans(batch=batch.build(), outcomes={}, progress=progress)
    fleet.worker.ingest(spans, 0)
    fleet.worker.process_queued()
    fleet.look()
    assert fleet.rejected() == {"rank": 5_000}
    assert sorted(fleet.status.ranks) == [0]
    assert len(fleet.problems) == 1
