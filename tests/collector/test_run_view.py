"""From what the scoring thread follows to the neutral facts that pictures are made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.collector.history.reader import HistoryReader
from otel_straggler.collector.runs.liveness import Liveness
from otel_straggler.collector.views.answer import answer_of
from otel_straggler.collector.views.page_json import ResponseMeta, page_json
from otel_straggler.collector.views.run_summary import read_summary, summary_value
from otel_straggler.collector.views.run_view import RunView
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.model.alert import Alert, Maintenance
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.model.verdict import RunVerdicts, Verdict

from .watched_world import WatchedWorld

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


def run_of(liveness: Liveness, **changes: Any) -> RunView:
    worlds = {} if liveness.status is None else {"": liveness.status}
    return RunView(
        run_id="run", now_s=NOW_S + 3, jobs={"": "job"}, worlds=worlds, mode="observe", **changes
    )


def seen(run: RunView) -> WorldView:
    return run.world("")


def test_signs_of_life_become_columns() -> None:
    liveness = Liveness()
    liveness.observe_heartbeat(beat(1, open_section="forward", dropped={"queue_full": 2}), NOW_S)
    liveness.observe_heartbeat(beat(0, progress_at_s=NOW_S - 1, gpu_tier="events"), NOW_S)
    result = seen(run_of(liveness))
    assert result.heartbeats is not None
    assert result.heartbeats.ranks.tolist() == [0, 1]
    assert result.heartbeats.heartbeat_age_s.tolist() == [3.0, 3.0]
    assert result.heartbeats.progress_age_s[0] == 4.0
    assert list(result.heartbeats.open_section) == ["", "forward"]
    assert list(result.heartbeats.gpu_tier) == ["events", ""]
    assert result.heartbeats.dropped[1] == {"queue_full": 2}
    assert (result.job, result.world_size, result.expected, result.reporting) == ("job", 4, 4, 2)
    assert (result.received_at_s, result.finished_at_s, result.is_live) == (NOW_S, None, True)


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
        liveness.observe_heartbeat(beat(rank, sent_at_s=NOW_S + skew), NOW_S)
    slow = Verdict(
        run_id="run",
        subject_id="rank/0",
        scope="rank",
        rank=0,
        state="confirmed",
        since_ns=int((NOW_S + max(skews) - 1.0) * 1e9),
        at_ns=int((NOW_S + max(skews)) * 1e9),
    )
    run = run_of(liveness, run_verdicts=RunVerdicts(changes=(slow,)))
    result = seen(run)
    assert result.clock_s == clock_s
    assert result.began_at_s == pytest.approx(NOW_S, abs=0.5)
    shown = page_json(result, ResponseMeta(version="1"))
    assert shown["verdicts"][0]["since_s"] == pytest.approx(NOW_S - 1.0, abs=0.5)
    assert read_summary(summary_value(result), where="x").clock_s == clock_s


def test_a_run_ends_when_all_its_ranks_have() -> None:
    liveness = Liveness()
    for rank in range(2):
        liveness.observe_heartbeat(beat(rank, 2, finished_at_s=NOW_S, outcome="failed"), NOW_S)
    result = seen(run_of(liveness))
    assert (result.finished_at_s, result.outcome) == (NOW_S, "failed")


def test_only_what_concerns_the_world_is_shown_of_it() -> None:
    """Alerts of its group or of the whole run, maintenance of its nodes."""
    liveness = Liveness()
    liveness.observe_heartbeat(beat(0), NOW_S)
    alerts = [
        Alert(labels={"alertname": name, "group": group}, annotations={}, starts_at_s=1.0)
        for name, group in (("A", ""), ("B", "critic"))
    ]
    nodes = tuple(
        Maintenance(node=node, reason="fan", at_ns=1, until_ns=2) for node in ("node-0", "node-9")
    )
    result = seen(run_of(liveness, alerts=tuple(alerts), maintenance=nodes))
    assert [alert["name"] for alert in result.alerts] == ["A"]
    assert [each.node for each in result.maintenance] == ["node-0"]


def test_a_run_of_which_nothing_is_known_has_one_group() -> None:
    assert RunView(run_id="run").groups == ("",)
    assert seen(RunView(run_id="run")).heartbeats is None


def test_a_view_stays_as_it_is_while_the_world_changes() -> None:
    """The scoring thread goes on; who looks has all the time."""
    liveness = Liveness()
    for rank in range(4):
        liveness.observe_heartbeat(beat(rank, step=1, dropped={"queue_full": 2}), NOW_S)
    before, same = run_of(liveness), run_of(liveness)
    assert before.worlds[""] is same.worlds[""]
    for rank in range(2):
        more = {"sent_at_s": NOW_S + 5, "step": 9, "dropped": {"queue_full": 3}}
        liveness.observe_heartbeat(beat(rank, 2, session=2, **more), NOW_S + 5)
    result = seen(before)
    assert result.heartbeats is not None
    assert result.heartbeats.step.tolist() == [1, 1, 1, 1]
    assert list(result.heartbeats.dropped) == [{"queue_full": 2}] * 4
    after = run_of(liveness)
    assert list(after.worlds[""].ranks) == [0, 1]


@pytest.mark.parametrize("what", ["heartbeat", "alert", "maintenance"])
def test_the_content_changes_with_what_is_shown_only(what: str) -> None:
    liveness = Liveness()
    liveness.observe_heartbeat(beat(0), NOW_S)
    before = run_of(liveness).content()
    assert run_of(liveness).content() == before
    if what == "heartbeat":
        liveness.observe_heartbeat(beat(0, sent_at_s=NOW_S + 5), NOW_S + 5)
        assert run_of(liveness).content() != before
    elif what == "alert":
        alert = Alert(labels={"alertname": "A"}, annotations={}, starts_at_s=1.0)
        assert run_of(liveness, alerts=(alert,)).content() != before
    else:
        node = Maintenance(node="n", reason="", at_ns=1, until_ns=2)
        assert run_of(liveness, maintenance=(node,)).content() != before


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


class Alone(WatchedWorld):
    """Processes that all report as rank 0 of 1."""

    session = ""

    def source(self, group: str, rank: int) -> Source:
        return replace(super().source(group, rank), session_id=self.session)


def test_processes_that_do_not_know_their_rank_are_shown_and_logged_once(
    kit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As where configure() runs before init_process_group(); "One rank is training" hid them."""
    world = Alone(kit.settings(), 1)
    for _ in range(6):
        world.now_s += 5.0
        for world.session in "abc":
            world.now_s += 0.1
            world.say(0)
        world.look()
    shown = answer_of(world.worker.snapshot.runs["run"].world(""))
    assert shown["headline"] == "3 processes report as rank 0 of 1"
    logged = [record.getMessage() for record in caplog.records if "rank 0 of 1" in record.message]
    assert len(logged) == 1
    assert logged[0].startswith("run 'run': 3 processes report as rank 0 of 1")
