"""A collector that starts again knows which runs hang, have failed, or are given up, though none of
their ranks reports: by a clock that the test moves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from otel_straggler.collector.api.decisions import Decisions
from otel_straggler.collector.history.writer import HistoryWriter
from otel_straggler.collector.ingest.intake import ByteBudget
from otel_straggler.collector.runs.hangs import NamedCulprits
from otel_straggler.collector.settings import CollectorSettings, HistorySettings
from otel_straggler.collector.views.page_json import ResponseMeta, page_json
from otel_straggler.collector.worker import Worker
from otel_straggler.detect.hangs.collectives import Cause, HangFindings
from otel_straggler.model.flight_records import Collective, FlightRecord, ProcessGroup
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_failure import RankFailure
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.model.verdict import RunVerdicts
from otel_straggler.otlp.metric_rules import DecodedMetrics

RANKS = 4
BEAT_S = 5.0
DAY_S = 86_400.0


class Restarting:
    """A collector with a history that is killed and started again, and four ranks."""

    def __init__(self, path: Path) -> None:
        self.now_s = 1.79e9
        self._path = path
        self.beats: dict[int, dict[str, Any]] = {
            rank: {"step": 0, "open_section": "forward", "progress_at_s": self.now_s}
            for rank in range(RANKS)
        }
        self._start()

    def _start(self) -> None:
        history = HistorySettings(path=str(self._path), save_every_seconds=10.0)
        settings = CollectorSettings(history=history)
        monotonic_ns = lambda: int(self.now_s * 1e9)  # noqa: E731 - a clock
        self.decisions = Decisions(monotonic_ns)
        self.history = HistoryWriter(history, 100, monotonic_ns)
        self.history.open()
        self.worker = Worker(
            settings,
            ByteBudget(1 << 30),
            monotonic_ns=monotonic_ns,
            wall_s=lambda: self.now_s,
            history=self.history,
            decisions=self.decisions,
        )
        self.worker._thread.start = lambda: None  # type: ignore[method-assign]  # by hand
        self.worker.start("c")

    def kill(self, away_s: float = 0.0) -> None:
        """What was not saved by now is lost."""
        self.history.close(5.0)
        self.now_s += away_s
        self._start()

    def source(self, rank: int) -> Source:
        return Source(
            run_id="run",
            job="job",
            rank=rank,
            world_size=RANKS,
            node=f"node-{rank // 2}",
            session_id=f"session-{rank}",
            attempt=1,
            parallel=(("data", rank),),
        )

    def live(self, seconds: float, *, moving: Any = (), silent: Any = ()) -> None:
        """Time passes. ``moving`` ranks progress by a step a second, the others stand still, and
        ``silent`` ones say nothing."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += BEAT_S
            for rank in moving:
                its = self.beats[rank]
                its["step"] += int(BEAT_S)
                its["progress_at_s"] = self.now_s
            for rank in self.beats:
                if rank not in silent:
                    self.say(rank)
            self.worker.tick()

    def say(self, rank: int, **more: Any) -> None:
        values = {"sent_at_s": self.now_s, "team": "vision", **self.beats[rank], **more}
        beat = Heartbeat(source=self.source(rank), open_time_s=1.0, **values)
        self.worker.ingest(DecodedMetrics(heartbeats=(beat,), points={}), 0)
        self.worker.process_queued()

    def wait(self, seconds: float) -> None:
        """Nobody says anything."""
        self.live(seconds, silent=range(RANKS))

    def look(self, after_s: float = 1.0) -> None:
        self.now_s += after_s
        self.worker.show_soon()
        self.worker.request_page()
        self.worker.tick()

    def decide(self, action: str) -> None:
        asked = {"action": action, "run_id": "run", "subject_id": "hang:", "reason": "seen"}
        self.decisions.decide(json.dumps(asked).encode(), self.worker.snapshot.runs.get)
        self.history.put("decisions", self.decisions.state())

    # --- what is seen ---

    def seen(self, after_s: float = 1.0) -> dict[str, Any]:
        """What report, series, page, and alerts know of the run; empty without one."""
        self.look(after_s)
        snapshot = self.worker.snapshot
        if "run" not in snapshot.runs:
            return {}
        page = page_json(snapshot.runs["run"].world(""), ResponseMeta(version="1"))
        (watched,) = snapshot.watched.runs
        return {
            "hang": json.loads(snapshot.report())["runs"]["run"]["liveness"][0],
            "series": {
                f"{sample.name}{sorted(sample.labels.items())}": sample.value
                for family in text_string_to_metric_families(snapshot.page.decode())
                for sample in family.samples
                if family.name.startswith(("straggler_run_", "straggler_rank_"))
            },
            "page": page,
            "watched": watched,
        }

    @property
    def state(self) -> str:
        return str(self.seen()["hang"]["state"])


@pytest.fixture
def its(tmp_path: Path) -> Iterator[Restarting]:
    result = Restarting(tmp_path / "history.db")
    result.live(60.0, moving=range(RANKS))
    yield result
    result.history.close(5.0)


def all_silent(its: Restarting) -> None:
    its.wait(600.0)


def one_lost(its: Restarting) -> None:
    its.live(600.0, silent=(3,))


def one_behind(its: Restarting) -> None:
    its.live(10.0, moving=(0, 1, 3))
    its.live(3_600.0)


def all_stand(its: Restarting) -> None:
    its.live(3_600.0)


def one_failed(its: Restarting) -> None:
    failure = RankFailure(kind="raised", type="ValueError", message="bad sample")
    its.say(2, finished_at_s=its.now_s, outcome="failed", failure=failure)
    for rank in (0, 1, 3):
        its.say(rank, finished_at_s=its.now_s + 2.0, outcome="failed")
    its.wait(60.0)


def given_up(its: Restarting) -> None:
    its.wait(60.0)
    its.now_s += 3 * DAY_S
    its.wait(60.0)


LASTING = {
    all_silent: "lost",
    one_lost: "partly_lost",
    one_behind: "stuck",
    all_stand: "stuck",
    one_failed: "failed",
    given_up: "forgotten",
}


@pytest.mark.parametrize("happens", LASTING)
def test_a_restart_changes_nothing_in_what_is_shown_of_a_run_that_hangs(
    its: Restarting, happens: Callable[[Restarting], None]
) -> None:
    """Report, series, page, and input of the alerts, at the first look, though no rank has said
    anything since."""
    happens(its)
    before = its.seen()
    its.kill()
    after = its.seen(0.0)
    assert before["hang"]["state"] == LASTING[happens]
    for part in before:
        assert after.get(part) == before[part], part


@pytest.mark.parametrize("happens", [all_silent, one_behind, one_lost])
def test_a_run_that_goes_on_after_a_restart_hangs_no_more(
    its: Restarting, happens: Callable[[Restarting], None]
) -> None:
    """Ranks come back with the sessions that they had, and nobody takes them for others."""
    happens(its)
    its.kill(away_s=120.0)
    its.live(60.0, moving=range(RANKS))
    assert its.state == "training"
    view = its.worker.snapshot.runs["run"]
    assert not view.clashes
    assert view.worlds[""].ranks.keys() == set(range(RANKS))
    (hang,) = view.hangs[""].before
    assert hang.end == "went_on"
    its.kill(away_s=120.0)
    assert its.seen() == {}


def test_what_windows_have_shown_before_a_restart_is_shown_until_one_closes(
    its: Restarting,
) -> None:
    """Slowdown and loss; what the hang has cost counts once, and goes on counting."""
    one_behind(its)
    (known,) = its.worker.snapshot.runs["run"].run_verdicts.worlds
    assert known.gpu_seconds_lost > 0.0
    scored = replace(known, slowdown=1.25, gpu_seconds_lost=known.gpu_seconds_lost + 100.0)
    view = its.worker.snapshot.runs["run"].world("")
    view = replace(view, run_verdicts=RunVerdicts(worlds=(scored,)))
    its.kill()
    its.worker._store.put_before(view, ())
    its.look(0.0)
    (summary,) = its.worker.snapshot.runs["run"].run_verdicts.worlds
    assert summary.slowdown == 1.25
    assert summary.gpu_seconds_lost == pytest.approx(scored.gpu_seconds_lost, abs=RANKS * 15.0)
    its.live(600.0)
    its.look()
    (later,) = its.worker.snapshot.runs["run"].run_verdicts.worlds
    assert later.gpu_seconds_lost - summary.gpu_seconds_lost == pytest.approx(RANKS * 601.0)


def test_ranks_that_spoke_are_silent_from_the_restart_on(its: Restarting) -> None:
    """The collector was away for longer than after which a rank is lost: three of four ranks could
    not be heard. They are lost if they do not report now."""
    one_lost(its)
    its.kill(away_s=600.0)
    assert its.seen()["hang"]["ranks"] == {"stuck": 3, "lost": 1}
    its.live(30.0, silent=(3,))
    assert its.seen()["hang"]["ranks"] == {"stuck": 3, "lost": 1}
    its.kill(away_s=600.0)
    its.wait(15.0)
    assert its.seen()["hang"]["ranks"] == {"stuck": 3, "lost": 1}
    its.wait(15.0)
    assert its.seen()["hang"]["ranks"] == {"lost": 4}


def test_a_run_that_ends_after_a_restart_has_ended(its: Restarting) -> None:
    """The last word of one rank explains the silence of the others."""
    all_silent(its)
    its.kill()
    its.say(1, finished_at_s=its.now_s, outcome="cancelled")
    assert its.state == "cancelled"


def test_the_next_attempt_of_a_run_that_hung_before_a_restart_is_the_run(its: Restarting) -> None:
    """Its ranks find nobody who speaks for the one before."""
    all_silent(its)
    its.kill()
    source = its.source
    its.source = lambda rank: replace(source(rank), attempt=2, session_id=f"new-{rank}")  # type: ignore[method-assign]
    its.live(60.0, moving=range(RANKS))
    seen = its.seen()
    assert (seen["hang"]["state"], seen["page"]["run"]["attempt"]) == ("training", 2)


def test_an_acknowledged_hang_stays_so_over_a_restart_and_is_evicted_as_ever(
    its: Restarting,
) -> None:
    """Before the restart or after it."""
    all_silent(its)
    its.kill()
    assert its.seen()["watched"].is_hung
    its.decide("dismiss")
    assert not its.seen()["watched"].is_hung
    its.kill()
    seen = its.seen()
    assert (seen["hang"]["acknowledged"], seen["watched"].is_hung) == (True, False)
    its.now_s += DAY_S
    its.wait(30.0)
    assert its.seen() == {}
    its.kill()
    assert its.seen() == {}


def test_a_run_that_was_given_up_goes_an_hour_later_for_good(its: Restarting) -> None:
    """A restart does not begin that hour again, and what is gone does not come back."""
    given_up(its)
    its.now_s += 3_000.0
    its.kill()
    assert its.state == "forgotten"
    its.now_s += 600.0
    its.wait(30.0)
    assert its.seen() == {}
    its.kill()
    assert its.seen() == {}


def test_a_run_that_trained_is_not_known_to_hang(its: Restarting) -> None:
    """Nobody has seen it hang: it may have ended while the collector was away."""
    its.kill(away_s=3_600.0)
    its.wait(60.0)
    assert its.seen() == {}


def test_culprits_that_are_named_stay_so(tmp_path: Path) -> None:
    """Of more than twenty, those that were first; an alert ends with its rank's name."""
    named = NamedCulprits()
    named.select(np.arange(50, 70))
    assert named.select(np.arange(0, 70)) == list(range(50, 70))
    assert NamedCulprits.restored(named.named).select(np.arange(0, 70)) == list(range(50, 70))
    assert NamedCulprits().select(np.arange(0, 70)) == list(range(20))


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.update(version=2),
        lambda state: state.pop("worlds"),
        lambda state: state["worlds"][0]["ranks"].update(step=[1, 2]),
        lambda state: state["worlds"][0]["newest"].update(state="tired"),
        lambda state: state["worlds"][0].pop("present"),
        lambda state: state["worlds"][0]["sources"].update(node=[7] * RANKS),
    ],
)
def test_a_damaged_state_is_left_out_with_one_line(
    its: Restarting, change: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The collector starts, and waits for reports."""
    all_silent(its)
    state = its.worker._store.hung_state()()
    change(state)
    its.history.put("hung", state)
    its.kill()
    assert its.seen() == {}
    assert len([message for message in caplog.messages if "state hung" in message]) == 1


def test_what_flight_records_have_shown_holds_until_as_many_have_come_again(
    its: Restarting,
) -> None:
    """Records are not kept, but what they have proven: it names another culprit than heartbeats
    do, and an alert on that rank must not end because the collector was restarted."""
    one_behind(its)
    group = ProcessGroup("data_parallel", tuple(range(RANKS)))
    call = Collective(group=group, sequence=7, name="all_reduce")
    cause = Cause(rank=3, why="never_joined", call=call, waiting=(0, 1, 2), is_silent=False)
    found = HangFindings(ranks=(0, 1, 2, 3), causes=(cause,))
    its.worker._store.world("run", "").collectives.resume(found, its.now_s)
    before = its.seen()
    assert before["hang"]["culprits"] == [3]
    its.live(10.0)
    its.kill()
    assert its.seen(0.0)["hang"] == before["hang"]
    its.worker.receive_flight_record(("run", "", 0), FlightRecord(rank=0), 0.0)
    its.live(BEAT_S)
    assert its.seen()["hang"]["culprits"] == [3]
    its.live(BEAT_S, moving=(0,))
    assert its.seen()["hang"]["culprits"] == [2]
