"""Whose word counts: heartbeats late, twice, from the past, from a newer world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler import semconv
from otel_straggler.collector.runs.liveness import Liveness, WorldStatus
from otel_straggler.collector.runs.rank_status import MAX_REASONS, RankStatus
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.span_rules import Progress

NOW = 1_790_000_000.0


def source(rank: int = 0, session: str = "a", world_size: int = 4, **changes: Any) -> Source:
    return Source(run_id="run", rank=rank, session_id=session, world_size=world_size, **changes)


def beat(sent_at_s: float, who: Source | None = None, **values: Any) -> Heartbeat:
    return Heartbeat(source=who or source(), sent_at_s=sent_at_s, **values)


def status(liveness: Liveness) -> WorldStatus:
    result = liveness.status
    assert result is not None
    return result


def life(liveness: Liveness, rank: int = 0) -> RankStatus:
    return status(liveness).ranks[rank]


def heartbeat_here(liveness: Liveness) -> float | None:
    return life(liveness).here(life(liveness).sent_at_s)


@pytest.mark.parametrize("offset_s", [0.0, 3600.0, -3600.0])
def test_a_wrong_clock_does_not_age_a_rank(offset_s: float) -> None:
    """Times move to the collector's clock by the smallest delay seen."""
    liveness = Liveness()
    for tick in range(3):
        sent = NOW + 5 * tick
        liveness.observe_heartbeat(beat(sent + offset_s), sent + 0.01)
    assert heartbeat_here(liveness) == pytest.approx(NOW + 10.01)


def test_a_late_heartbeat_is_as_old_as_it_is() -> None:
    """Delivered a minute late, it is a minute old."""
    liveness = Liveness()
    liveness.observe_heartbeat(beat(NOW), NOW + 0.01)
    liveness.observe_heartbeat(beat(NOW + 5), NOW + 65)
    assert heartbeat_here(liveness) == pytest.approx(NOW + 5.01)


@given(st.lists(st.integers(0, 9), max_size=30))
def test_a_duplicate_never_makes_a_heartbeat_fresh(repeats: list[int]) -> None:
    """Any redelivery in any order leaves the newest time where it was."""
    liveness = Liveness()
    beats = [beat(NOW + 5 * n) for n in range(10)]
    for n, one in enumerate(beats):
        liveness.observe_heartbeat(one, NOW + 5 * n)
    before = heartbeat_here(liveness)
    for position, repeat in enumerate(repeats):
        liveness.observe_heartbeat(beats[repeat], NOW + 1000 + position * 0.1)
    assert heartbeat_here(liveness) == before


def test_a_clock_that_was_set_back_is_believed_after_three_heartbeats() -> None:
    """They come in pace with time, which redelivered ones do not."""
    liveness = Liveness()
    liveness.observe_heartbeat(beat(NOW), NOW)
    for tick in range(1, 5):
        liveness.observe_heartbeat(beat(NOW - 600 + 5 * tick), NOW + 5 * tick)
    assert heartbeat_here(liveness) == pytest.approx(NOW + 20)


def test_a_newer_session_takes_the_rank_over() -> None:
    """Step and finish of the old process are gone with it."""
    liveness = Liveness()
    liveness.observe_heartbeat(beat(NOW, step=100, finished_at_s=NOW, outcome="failed"), NOW)
    liveness.observe_heartbeat(beat(NOW + 10, source(session="b"), step=3), NOW + 10)
    assert life(liveness).step == 3
    assert life(liveness).finished_at_s is None


def test_late_telemetry_of_a_dead_session_changes_nothing() -> None:
    """Spans of the process before the restart, delivered afterwards."""
    liveness = Liveness()
    liveness.observe_heartbeat(beat(NOW, step=100), NOW)
    liveness.observe_heartbeat(beat(NOW + 10, source(session="b"), step=3), NOW + 10)
    late = Progress(step=101, end_ns=int((NOW + 1) * 1e9))
    liveness.observe_progress(source(), late, NOW + 30)
    assert life(liveness).step == 3
    assert not list(liveness.clashes(NOW + 30))


def test_a_session_that_was_replaced_never_comes_back() -> None:
    """However long the newer one is silent: it is lost then, and not the older one alive."""
    liveness = Liveness()
    liveness.observe_heartbeat(beat(NOW), NOW)
    liveness.observe_heartbeat(beat(NOW + 10, source(session="b")), NOW + 10)
    for late_s in (15.0, 60.0, 600.0):
        assert not liveness.observe_heartbeat(beat(NOW + late_s), NOW + late_s)
    assert life(liveness).source.session_id == "b"


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_session_that_looks_older_takes_over_from_one_that_is_silent(is_silent: bool) -> None:
    """The clock of its node may be wrong. From one that is alive it does not."""
    liveness = Liveness()
    liveness.observe_heartbeat(beat(NOW), NOW)
    for tick in range(5, 60, 5):
        if not is_silent:
            liveness.observe_heartbeat(beat(NOW + tick), NOW + tick)
        liveness.observe_heartbeat(beat(NOW - 100 + tick / 9, source(session="b")), NOW + tick + 1)
    assert life(liveness).source.session_id == ("b" if is_silent else "a")


def test_a_size_that_is_told_late_is_taken() -> None:
    """By the same process, that did not know it at first."""
    liveness = Liveness()
    liveness.observe_heartbeat(beat(NOW, source(world_size=0)), NOW)
    assert status(liveness).world_size == 0
    liveness.observe_heartbeat(beat(NOW + 5, source(world_size=4)), NOW + 5)
    assert status(liveness).world_size == 4


def test_two_live_sessions_of_one_rank_are_a_clash() -> None:
    """The newer one is shown, the older one is named."""
    liveness = Liveness()
    for tick in range(5):
        liveness.observe_heartbeat(beat(NOW + 5 * tick), NOW + 5 * tick)
        liveness.observe_heartbeat(
            beat(NOW + 1 + 5 * tick, source(session="b")), NOW + 1 + 5 * tick
        )
    assert [s.session_id for s in liveness.clashes(NOW + 25)] == ["a"]
    assert life(liveness).source.session_id == "b"
    assert not list(liveness.clashes(NOW + 200))


def test_a_newer_attempt_begins_with_no_ranks() -> None:
    """Ranks of the older attempt are no ghosts; its stragglers are ignored."""
    liveness = Liveness()
    for rank in range(4):
        liveness.observe_heartbeat(beat(NOW, source(rank)), NOW)
    liveness.observe_heartbeat(beat(NOW + 9, source(1, "b", attempt=1)), NOW + 9)
    liveness.observe_heartbeat(beat(NOW + 10, source(3)), NOW + 10)
    assert list(status(liveness).ranks) == [1]


def test_a_smaller_world_in_the_same_attempt_leaves_no_ghosts() -> None:
    """Elastic launchers restart all ranks, with the same attempt number."""
    liveness = Liveness()
    for rank in range(4):
        liveness.observe_heartbeat(beat(NOW, source(rank, f"old-{rank}")), NOW)
    for rank in range(2):
        new = source(rank, f"new-{rank}", world_size=2)
        liveness.observe_heartbeat(beat(NOW + 20 + rank, new), NOW + 20 + rank)
    liveness.observe_heartbeat(beat(NOW + 4, source(3, "old-3")), NOW + 25)
    world = status(liveness)
    assert (sorted(world.ranks), world.world_size) == ([0, 1], 2)


def test_who_is_left_over_from_a_smaller_world_is_no_rank_of_a_larger_one() -> None:
    """Four ranks, then two, then eight of which one has come: the fourth of four stays gone."""
    liveness = Liveness()
    for rank in range(4):
        liveness.observe_heartbeat(beat_of(rank, f"old-{rank}", 4)(NOW), NOW)
    for rank in range(2):
        liveness.observe_heartbeat(beat_of(rank, f"mid-{rank}", 2)(NOW + 20), NOW + 20)
    liveness.observe_heartbeat(beat_of(0, "new-0", 8)(NOW + 40), NOW + 40)
    for tick in range(50, 90, 5):
        liveness.observe_heartbeat(beat_of(3, "old-3", 4)(NOW + tick), NOW + tick)
    world = status(liveness)
    assert (sorted(world.ranks), world.world_size) == ([0, 1], 8)


def test_another_job_under_the_name_of_a_run_does_not_hide_its_ranks() -> None:
    """An evaluation of one rank beside the training: the training stays watched, whole, and the
    other is a clash."""
    liveness = Liveness()
    beats = [beat_of(rank, f"old-{rank}", 4) for rank in range(4)]
    for tick in range(0, 60, 5):
        for each in beats:
            liveness.observe_heartbeat(each(NOW + tick), NOW + tick)
        if tick >= 10:
            liveness.observe_heartbeat(beat_of(0, "eval", 1)(NOW + tick + 1), NOW + tick + 1)
    world = status(liveness)
    assert (sorted(world.ranks), world.world_size) == ([0, 1, 2, 3], 4)
    assert {life.source.session_id[:3] for life in world.ranks.values()} == {"old"}
    assert [s.session_id for s in liveness.clashes(NOW + 60)] == ["eval"]
    liveness.observe_heartbeat(beat_of(0, "eval", 1)(NOW + 200), NOW + 200)
    assert life(liveness).source.session_id == "old-0"


def test_a_few_left_over_of_a_larger_world_do_not_bring_it_back() -> None:
    """A node that was cut off goes on for a while; the others have begun anew without it."""
    liveness = Liveness()
    for rank in range(4):
        liveness.observe_heartbeat(beat_of(rank, f"old-{rank}", 4)(NOW), NOW)
    for tick in range(10, 120, 5):
        for rank in range(3):
            liveness.observe_heartbeat(beat_of(rank, f"new-{rank}", 3)(NOW + tick), NOW + tick)
        liveness.observe_heartbeat(beat_of(3, "old-3", 4)(NOW + tick + 1), NOW + tick + 1)
    world = status(liveness)
    assert (sorted(world.ranks), world.world_size) == ([0, 1, 2], 3)


def beat_of(rank: int, session: str, world_size: int) -> Callable[[float], Heartbeat]:
    return lambda sent_at_s: beat(sent_at_s, source(rank, session, world_size))


def test_a_run_has_ended_when_all_its_ranks_have() -> None:
    """The last end counts, on the collector's clock."""
    liveness = Liveness()
    for rank in range(4):
        assert rank == 0 or status(liveness).finished_at_s is None
        liveness.observe_heartbeat(
            beat(NOW + rank, source(rank), finished_at_s=NOW + rank, outcome="ok"), NOW + rank
        )
    assert status(liveness).finished_at_s == NOW + 3


def test_ranks_that_send_only_spans_progress_too() -> None:
    """Telemetry of other SDKs has no heartbeats: there is progress, and no heartbeat."""
    liveness = Liveness()
    liveness.observe_progress(source(), Progress(step=4, end_ns=int(NOW * 1e9)), NOW + 2)
    assert life(liveness).step == 4
    assert life(liveness).sent_at_s is None
    assert life(liveness).here(life(liveness).progress_at_s) == pytest.approx(NOW + 2)


def test_spans_alone_are_as_old_as_they_are() -> None:
    """By the smallest delay that was seen, whatever the sender's clock; the newest description
    counts, and a time beyond tomorrow is none."""
    liveness, ahead_s = Liveness(), 500.0
    for sent_s, arrived_s in ((0.0, 0.5), (10.0, 10.0), (20.0, 50.0)):
        progress = Progress(step=int(sent_s), end_ns=int((NOW + sent_s + ahead_s) * 1e9))
        liveness.observe_progress(source(role=f"role {sent_s:.0f}"), progress, NOW + arrived_s)
    assert life(liveness).here(life(liveness).progress_at_s) == pytest.approx(NOW + 20.0, abs=1e-3)
    assert (life(liveness).step, life(liveness).source.role) == (20, "role 20")
    tomorrow = Progress(step=30, end_ns=int((NOW + 90_000.0 + 51.0) * 1e9))
    liveness.observe_progress(source(), tomorrow, NOW + 51.0)
    assert life(liveness).here(life(liveness).progress_at_s) == pytest.approx(NOW + 20.0, abs=1e-3)
    assert life(liveness).step == 30


def test_made_up_names_of_folded_sections_are_bounded() -> None:
    """Of those that are known the largest count stays."""
    liveness = Liveness()
    liveness.observe_heartbeat(beat(NOW, folded={"forward": 5}), NOW)
    liveness.observe_heartbeat(beat(NOW + 5, folded={f"s{i}": 1 for i in range(500)}), NOW + 5)
    liveness.observe_heartbeat(beat(NOW + 10, folded={"forward": 3, "s500": 1}), NOW + 10)
    assert len(life(liveness).folded) == 200
    assert life(liveness).folded["forward"] == 5


def test_losses_count_from_the_second_heartbeat_on_and_stay_when_a_session_ends() -> None:
    """Of all ranks and sessions; the first heartbeat tells what was lost before anybody heard."""
    liveness = Liveness()
    reported = [
        (beat(NOW, dropped={"queue_full": 5}), {}),
        (beat(NOW + 1, dropped={"queue_full": 7, "rejected": 1}), {"queue_full": 2, "rejected": 1}),
        (beat(NOW + 2, dropped={"queue_full": 6}), {"queue_full": 2, "rejected": 1}),
        (beat(NOW + 3, source(1)), {"queue_full": 2, "rejected": 1}),
        (beat(NOW + 4, source(1), dropped={"queue_full": 3}), {"queue_full": 5, "rejected": 1}),
        (
            beat(NOW + 5, source(session="b"), dropped={"queue_full": 9}),
            {"queue_full": 5, "rejected": 1},
        ),
        (
            beat(NOW + 6, source(session="b"), dropped={"queue_full": 10}),
            {"queue_full": 6, "rejected": 1},
        ),
    ]
    for received, lost in reported:
        assert liveness.observe_heartbeat(received, NOW + 10)
        assert status(liveness).dropped == lost


def test_made_up_reasons_of_losses_are_bounded() -> None:
    liveness = Liveness()
    for number in range(300):
        liveness.observe_heartbeat(
            beat(NOW + number, dropped={f"reason {number}": 1}), NOW + number
        )
    world = status(liveness)
    assert len(world.dropped) <= MAX_REASONS
    assert len(world.ranks[0].dropped) <= MAX_REASONS


# --- the same through a live collector -------------------------------------------------------


def test_heartbeats_are_shown_per_rank(live: Any, kit: Any) -> None:
    """Time, progress, step, description, and what was dropped."""
    import time

    now = time.time()
    body = kit.beat_of(
        kit.rank(1, role="actor"),
        sent_at_s=now,
        progress_at_s=now - 30,
        step=12,
        dropped={"queue_full": 3},
        folded={"attention": 40, "norm": 2},
    )
    for _ in range(2):
        assert live.post(body, "metrics").status == 200
    shown = kit.eventually(lambda: live.value(semconv.LAST_HEARTBEAT, rank="1"))
    assert shown == pytest.approx(now, abs=20)
    progress = live.value(semconv.LAST_PROGRESS, rank="1", node="node-1", role="actor")
    assert progress == pytest.approx(shown - 30, abs=1e-3)
    assert live.value(semconv.RANK_STEP, rank="1") == 12
    assert live.value(semconv.RECORDS_DROPPED, reason="queue_full") == 3
    assert live.value(semconv.RECORDS_FOLDED, rank="1") == 42
    assert live.value(semconv.RANK_INFO, straggler_session_id=f"{1:016x}") == 1
    assert live.value(semconv.RUN_WORLD_SIZE, run_id="run") == 2
    assert live.value(semconv.RUN_FINISHED, run_id="run") is None
    assert live.report()["runs"]["run"]["windows"] == []


def test_a_rank_that_has_ended_holds_no_window_up(start: Any, kit: Any) -> None:
    """Its end is shown with its outcome; the window closes as complete."""
    live = start(scoring__grace_s=600.0, scoring__idle_s=600.0)
    for number in range(2):
        live.post(kit.spans_of(kit.rank(number), range(4)))
    live.post(kit.spans_of(kit.rank(0), [4]))
    for number in range(2):
        body = kit.beat_of(kit.rank(number), sent_at_s=1.79e9, finished_at_s=1.79e9, outcome="ok")
        live.post(body, "metrics")
    kit.eventually(lambda: live.value(semconv.RUN_FINISHED))
    kit.eventually(lambda: live.value(semconv.COLLECTOR_WINDOWS, cause="complete"))
    assert live.value(semconv.RANK_FINISHED, rank="1", outcome="ok")


def test_several_runs_are_scored_side_by_side(start: Callable[..., Any], kit: Any) -> None:
    """The same ranks in two runs are different ranks."""
    live = start(scoring__grace_s=20.0)
    for run_id, slow in (("one", 0), ("two", 1)):
        for number in range(2):
            who = kit.rank(number, run_id=run_id)
            seconds = 0.2 if number == slow else 0.1
            live.post(kit.spans_of(who, range(5), {"forward": seconds}))
    for run_id, slow in (("one", 0), ("two", 1)):
        [window] = kit.eventually(lambda run_id=run_id: live.windows(run_id))
        assert [s["rank"] for s in window["stragglers"]] == [slow]
        assert live.value(semconv.SECTION_RELATIVE, run_id=run_id, rank=str(slow)) < 0.75
        assert live.value(semconv.SECTION_RELATIVE, run_id=run_id, rank=str(1 - slow)) == 1


def test_late_and_missing_ranks_are_counted_not_guessed(
    start: Callable[..., Any], kit: Any
) -> None:
    """A rank without data has no scores; coverage says so; its late rows are counted."""
    live = start(scoring__grace_s=5.0)
    live.post(kit.spans_of(kit.rank(0, 3), range(5)))
    live.post(kit.spans_of(kit.rank(1, 3), range(5)))
    [window] = kit.eventually(live.windows)
    assert window["missing_ranks"] == [2]
    assert live.value(semconv.RUN_RANKS_REPORTING) == 2
    assert live.value(semconv.RUN_WORLD_SIZE) == 3
    assert live.value(semconv.RUN_COVERAGE) == pytest.approx(2 / 3)
    assert live.ranks(semconv.SECTION_RELATIVE) == [0, 1]
    live.post(kit.spans_of(kit.rank(2, 3), range(4)))
    kit.eventually(lambda: live.value(semconv.COLLECTOR_ROWS, outcome="late") == 4)


def test_a_restarted_world_is_scored_anew(start: Callable[..., Any], kit: Any) -> None:
    """New sessions of the same attempt begin at step 0 again: no late rows, no duplicates."""
    live = start(scoring__grace_s=20.0)  # what is left of the old world is not shown last
    for number in range(2):
        live.post(kit.spans_of(kit.rank(number), range(8)))
    kit.eventually(lambda: live.windows() and live.windows()[0]["last_step"] == 3)
    for number in range(2):
        who = kit.rank(number, session_id=f"again-{number}")
        later = 1_790_000_100_000_000_000
        live.post(kit.spans_of(who, range(5), {"forward": 0.3}, start_ns=later))
    kit.eventually(
        lambda: live.windows()[0]["section_medians_s"]["forward"]["0"] == pytest.approx(0.3)
    )
    assert live.value(semconv.COLLECTOR_ROWS, outcome="late") == 0
    assert live.value(semconv.COLLECTOR_ROWS, outcome="duplicate") == 0
    assert live.value(semconv.RANK_STEP, rank="0") == 4


def test_a_newer_attempt_with_fewer_ranks_leaves_no_ghosts(
    start: Callable[..., Any], kit: Any
) -> None:
    """Series of ranks that no longer exist end at once."""
    live = start(scoring__grace_s=20.0)
    for number in range(4):
        live.post(kit.spans_of(kit.rank(number, 4), range(5)))
        live.post(kit.beat_of(kit.rank(number, 4), sent_at_s=1.79e9), "metrics")
    kit.eventually(lambda: live.ranks(semconv.SECTION_RELATIVE) == [0, 1, 2, 3])
    for number in range(2):
        who = kit.rank(number, 2, attempt=1, session_id=f"b{number}", node=f"node-{3 - number}")
        live.post(kit.beat_of(who, sent_at_s=1.79e9 + 60, step=0), "metrics")
    kit.eventually(lambda: live.ranks(semconv.LAST_HEARTBEAT) == [0, 1])
    assert live.ranks(semconv.SECTION_RELATIVE) == []
    assert live.value(semconv.RUN_WORLD_SIZE) == 2
    for number in range(2):
        who = kit.rank(number, 2, attempt=1, session_id=f"b{number}", node=f"node-{3 - number}")
        live.post(kit.spans_of(who, range(5)))
    kit.eventually(lambda: live.ranks(semconv.SECTION_RELATIVE, node="node-3") == [0])
    assert live.ranks(semconv.RANK_STEP) == [0, 1]


def test_groups_of_one_job_are_worlds_of_their_own(live: Any, kit: Any) -> None:
    """Actor and critic each have a rank 0; the report has the newest window of each."""
    for group, seconds in (("actor", 0.1), ("critic", 0.4)):
        live.post(kit.spans_of(kit.rank(0, 1, group=group), range(5), {"forward": seconds}))
    windows = kit.eventually(lambda: len(live.windows()) == 2 and live.windows())
    assert {w["group"] for w in windows} == {"actor", "critic"}
    scores = {k for w in windows for k in w["section_relative_scores"]["forward"]}
    assert scores == {"actor/0", "critic/0"}
    assert live.value(semconv.SECTION_RELATIVE, group="critic", rank="0") == 1.0


def test_two_processes_that_claim_one_rank_are_shown(live: Any, kit: Any) -> None:
    """A mistake in the set-up of a job; never merged."""
    for tick in range(4):
        for session in ("first", "second"):
            who = kit.rank(0, 1, session_id=session)
            sent_at_s = 1.79e9 + 10 * tick + (session == "second")
            live.post(kit.beat_of(who, sent_at_s=sent_at_s), "metrics")
    kit.eventually(lambda: live.value(semconv.RUN_IDENTITY_CLASHES) == 1)
