"""From what the scoring thread follows to the neutral facts that pictures are made of."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.collector.liveness import Liveness
from otel_straggler.collector.page_seen import clock_of, groups_of, seen_of
from otel_straggler.collector.page_state import progress_of, state_of_run
from otel_straggler.collector.watching import RunSeen
from otel_straggler.model.alert import Alert, Maintenance
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.model.verdict import RunVerdicts, Verdict
from otel_straggler.publish.history import HistoryReader
from otel_straggler.publish.picture import Maker, Seen, picture_json
from otel_straggler.publish.picture.summary import read_summary, summary_value

NOW_S = 1_790_000_000.0


def beat(rank: int, world_size: int = 4, session: int = 1, **values: Any) -> Heartbeat:
    source = Source(
        run_id="run",
        rank=rank,
        node=f"node-{rank}",
        session_id=f"{session}-{rank}",
        world_size=world_size,
        parallel=(("data", rank),),
    )
    return Heartbeat(source=source, **{"sent_at_s": NOW_S, "step": 7, **values})


def run_of(liveness: Liveness, **changes: Any) -> RunSeen:
    return RunSeen(run_id="run", jobs={"": "job"}, worlds=liveness.worlds("run"), **changes)


def seen(run: RunSeen, **changes: Any) -> Seen:
    values: dict[str, Any] = {
        "table": None,
        "alerts": (),
        "maintenance": (),
        "mode": "observe",
        "now_s": NOW_S + 3,
        **changes,
    }
    return seen_of(run, "", **values)


def test_signs_of_life_become_columns() -> None:
    liveness = Liveness()
    liveness.take_heartbeat(beat(1, open_section="forward", dropped={"queue_full": 2}), NOW_S)
    liveness.take_heartbeat(beat(0, progress_at_s=NOW_S - 1, gpu_tier="events"), NOW_S)
    found = seen(run_of(liveness))
    assert found.signs is not None
    assert found.signs.ranks.tolist() == [0, 1]
    assert found.signs.heartbeat_age_s.tolist() == [3.0, 3.0]
    assert found.signs.progress_age_s[0] == 4.0
    assert list(found.signs.open_section) == ["", "forward"]
    assert list(found.signs.gpu_tier) == ["events", ""]
    assert found.signs.dropped[1] == {"queue_full": 2}
    assert (found.job, found.world_size, found.expected, found.reporting) == ("job", 4, 4, 2)
    assert (found.heard_at_s, found.finished_at_s, found.is_live) == (NOW_S, None, True)


@pytest.mark.parametrize(
    ("skews", "clock_s"), [((600.0, 0.0), -600.0), ((-600.0, -600.0), 600.0), ((0.2, -0.3), 0.0)]
)
def test_times_of_clocks_that_are_off_are_told_by_the_collectors(
    skews: tuple[float, float], clock_s: float
) -> None:
    """The end of a step is that of the foremost clock; a run does not begin before it was heard of,
    and no verdict stands since a time to come."""
    liveness = Liveness()
    for rank, skew in enumerate(skews):
        liveness.take_heartbeat(beat(rank, sent_at_s=NOW_S + skew), NOW_S)
    slow = Verdict(
        run_id="run",
        subject_id="rank/0",
        scope="rank",
        rank=0,
        state="confirmed",
        at_ns=int((NOW_S + max(skews) - 1.0) * 1e9),
    )
    run = run_of(liveness, judged=RunVerdicts(changes=(slow,)))
    found = seen(run)
    assert (found.clock_s, clock_of(run, "")) == (clock_s, clock_s)
    assert found.began_at_s == pytest.approx(NOW_S, abs=0.5)
    shown = picture_json(found, Maker(version="1"))
    assert shown["verdicts"][0]["since_s"] == pytest.approx(NOW_S - 1.0, abs=0.5)
    assert read_summary(summary_value(found), where="x").clock_s == clock_s


def test_a_run_ends_when_all_its_ranks_have() -> None:
    liveness = Liveness()
    for rank in range(2):
        liveness.take_heartbeat(beat(rank, 2, finished_at_s=NOW_S, outcome="failed"), NOW_S)
    found = seen(run_of(liveness))
    assert (found.finished_at_s, found.outcome) == (NOW_S, "failed")


def test_only_what_concerns_the_world_is_shown_of_it() -> None:
    """Alerts of its group or of the whole run, maintenance of its nodes."""
    liveness = Liveness()
    liveness.take_heartbeat(beat(0), NOW_S)
    alerts = [
        Alert(labels={"alertname": name, "group": group}, annotations={}, starts_at_s=1.0)
        for name, group in (("A", ""), ("B", "critic"))
    ]
    nodes = tuple(
        Maintenance(node=node, reason="fan", at_ns=1, until_ns=2) for node in ("node-0", "node-9")
    )
    found = seen(run_of(liveness), alerts=alerts, maintenance=nodes)
    assert [alert["name"] for alert in found.alerts] == ["A"]
    assert [each.node for each in found.maintenance] == ["node-0"]


def test_a_run_of_which_nothing_is_known_has_one_group() -> None:
    assert groups_of(RunSeen(run_id="run")) == ("",)
    assert seen(RunSeen(run_id="run")).signs is None


@pytest.mark.usefixtures("hurried_threads")
def test_a_picture_may_be_made_while_the_world_changes() -> None:
    """The scoring thread never waits for who looks."""
    liveness = Liveness()
    for rank in range(300):
        liveness.take_heartbeat(beat(rank, 300), NOW_S)
    run = run_of(liveness)
    is_over = threading.Event()

    def change() -> None:
        session = 2
        while not is_over.is_set():
            session += 1
            size = 100 + 50 * (session % 5)
            for rank in range(0, size, 7):
                at_s = NOW_S + session
                liveness.take_heartbeat(beat(rank, size, session, sent_at_s=at_s), at_s)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(200):
            found = seen(run)
            assert found.signs is not None
            assert len(found.signs.nodes) == len(found.signs.ranks)
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("what", ["heartbeat", "alert", "maintenance"])
def test_the_state_changes_with_the_picture_only(what: str) -> None:
    liveness = Liveness()
    liveness.take_heartbeat(beat(0), NOW_S)

    def state(alerts: tuple[Alert, ...] = (), nodes: tuple[Maintenance, ...] = ()) -> str:
        return state_of_run(run_of(liveness), alerts, nodes, NOW_S)

    before, progress = state(), progress_of(run_of(liveness))
    assert state() == before
    assert progress_of(run_of(liveness)) == progress
    if what == "heartbeat":
        liveness.take_heartbeat(beat(0, sent_at_s=NOW_S + 5), NOW_S + 5)
        assert progress_of(run_of(liveness)) != progress
        assert state() != before
    elif what == "alert":
        alert = Alert(labels={"alertname": "A"}, annotations={}, starts_at_s=1.0)
        assert state(alerts=(alert,)) != before
    else:
        node = Maintenance(node="n", reason="", at_ns=1, until_ns=2)
        assert state(nodes=(node,)) != before


def test_a_run_that_only_gives_signs_of_life_is_kept_too(
    start: Any, kit: Any, tmp_path: Path
) -> None:
    """One that hangs from its first step has no rows: its picture is all that the history has."""
    path = tmp_path / "history.db"
    live = start(history__path=str(path), history__save_every_seconds=0.1)
    live.post(kit.beat_of(kit.rank(0), sent_at_s=NOW_S), "metrics")

    def is_kept() -> bool:
        if not path.exists():
            return False
        with HistoryReader(path) as history:
            return list(history.summaries("run")) == [""]

    kit.eventually(is_kept)
