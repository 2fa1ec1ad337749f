"""Who is stuck and who is lost, as a collector shows it: signs of life in, series and report out,
by a clock that the test moves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from otel_straggler import semconv
from otel_straggler.collector.api.decisions import Decisions, UnknownSubjectError
from otel_straggler.collector.ingest.intake import ByteBudget
from otel_straggler.collector.views.page_json import ResponseMeta, page_json
from otel_straggler.collector.worker import Worker
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.metric_rules import DecodedMetrics

RANKS = 4
BEAT_S = 5.0


class World:
    """Four ranks that send heartbeats to a worker, every five seconds of a clock of its own."""

    def __init__(self, kit: Any, **settings: Any) -> None:
        self.now_s = 1.79e9
        self.decisions = Decisions(lambda: int(self.now_s * 1e9))
        self.worker = Worker(
            kit.settings(**settings),
            ByteBudget(1 << 30),
            decisions=self.decisions,
            monotonic_ns=lambda: int(self.now_s * 1e9),
            wall_s=lambda: self.now_s,
        )
        self.worker.sign("c")
        self.beats: dict[int, dict[str, Any]] = {
            rank: {"step": 0, "open_section": "forward"} for rank in range(RANKS)
        }
        self.progress_at_s = dict.fromkeys(range(RANKS), self.now_s)
        self.attempt = 0
        self.model = ""

    def source(self, rank: int) -> Source:
        return Source(
            run_id="run",
            rank=rank,
            world_size=len(self.beats),
            node=f"node-{rank}",
            session_id=f"{self.attempt}-{rank}",
            attempt=self.attempt,
            device_model=self.model,
        )

    def live(self, seconds: float, *, moving: Any = (), silent: Any = ()) -> None:
        """Time passes. ``moving`` ranks progress by a step a second, the others stand still, and
        ``silent`` ones say nothing."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += BEAT_S
            for rank in moving:
                self.beats[rank]["step"] += int(BEAT_S)
                self.progress_at_s[rank] = self.now_s
            for rank in self.beats:
                if rank not in silent:
                    self.say(rank)
            self.worker.tick()

    def say(self, rank: int, **more: Any) -> None:
        beat = Heartbeat(
            source=self.source(rank),
            sent_at_s=self.now_s,
            progress_at_s=self.progress_at_s[rank],
            open_time_s=1.0,
            **{**self.beats[rank], **more},
        )
        self.worker.ingest(DecodedMetrics(heartbeats=(beat,), points={}), 0)
        self.worker.process_queued()

    def take(self, spans: bytes) -> None:
        """A request of spans."""
        self.worker.ingest(SpanDecoder().decode(spans), 0)
        self.worker.process_queued()

    def decide(self, action: str, subject_id: str = "hang:", **more: Any) -> None:
        """What a person asks of ``/v1/decisions``."""
        asked = {"action": action, "run_id": "run", "subject_id": subject_id, "reason": "seen"}
        self.decisions.decide(json.dumps({**asked, **more}).encode(), self.worker.snapshot.runs.get)

    def end(self, rank: int, outcome: Any) -> None:
        self.say(rank, finished_at_s=self.now_s, outcome=outcome)

    def look(self) -> dict[str, Any]:
        """The world in the report."""
        self.now_s += 0.2
        self.worker.show_soon()
        self.worker.request_page()
        self.worker.tick()
        (result,) = json.loads(self.worker.snapshot.report())["runs"]["run"]["liveness"]
        its: dict[str, Any] = result
        return its

    def lost_s(self) -> float:
        """GPU seconds lost, which series, report and verdicts tell alike."""
        (family,) = (
            each
            for each in text_string_to_metric_families(self.worker.snapshot.page.decode())
            if each.name == "straggler_run_gpu_time_lost_seconds"
        )
        (sample,) = (s for s in family.samples if s.name.endswith("_total"))
        report = json.loads(self.worker.snapshot.report())["runs"]["run"]["run"]
        assert report["worlds"][""]["on_gpu"] is bool(self.model)
        (reported,) = self.worker.snapshot.runs["run"].run_verdicts.worlds
        assert sample.value == report["gpu_seconds_lost"] == reported.gpu_seconds_lost
        return float(reported.gpu_seconds_lost)

    def series(self, metric: semconv.Metric) -> dict[str, str]:
        """State by rank, or of the run."""
        self.look()
        return {
            sample.labels.get("rank", ""): sample.labels["state"]
            for family in text_string_to_metric_families(self.worker.snapshot.page.decode())
            for sample in family.samples
            if sample.name == metric.prometheus_name and sample.value == 1
        }


@pytest.fixture
def world(kit: Any) -> World:
    result = World(kit)
    result.live(60.0, moving=range(RANKS))
    return result


def test_a_world_that_trains_is_said_to(world: World) -> None:
    """One series for each rank; of those of the run, one for each state, this one is 1."""
    assert world.series(semconv.RANK_STATE) == dict.fromkeys(["0", "1", "2", "3"], "ok")
    assert world.series(semconv.RUN_STATE) == {"": "training"}
    result = world.look()
    assert (result["why"], result["sentence"], result["ranks"]) == (None, None, {"ok": 4})


def test_a_rank_that_falls_silent_is_lost_and_the_others_wait_for_it(world: World) -> None:
    """It is named after 20 s; the others, which stand still, once their timeout has passed."""
    world.live(25.0, moving=(0, 1, 3), silent=(2,))
    assert world.series(semconv.RANK_STATE)["2"] == "lost"
    world.live(600.0, silent=(2,))
    result = world.look()
    assert (result["state"], result["why"], result["culprits"]) == ("partly_lost", "lost", [2])
    assert result["ranks"] == {"stuck": 3, "lost": 1}
    assert result["sentence"] == "Rank 2: no heartbeats; 3 ranks wait."


def test_a_rank_that_never_joined_is_told_from_those_that_wait(world: World) -> None:
    """All live; rank 1 is a step behind."""
    world.live(5.0, moving=(0, 2, 3))
    world.live(600.0)
    result = world.look()
    assert (result["state"], result["why"]) == ("stuck", "never_joined")
    assert (result["culprits"], result["victims"]) == ([1], 3)
    assert world.series(semconv.RUN_STATE) == {"": "stuck"}


def test_a_stuck_world_gets_on_again(world: World) -> None:
    """By progress alone."""
    world.live(600.0)
    assert world.look()["why"] == "joined_but_stuck"
    world.live(5.0, moving=range(RANKS))
    assert world.look()["state"] == "training"


def test_timeouts_are_learnt_from_spans(world: World, kit: Any) -> None:
    """After 40 steps of a tenth of a second thirty seconds are enough; the timeout is a series."""
    for rank in range(RANKS):
        world.take(kit.spans_of(world.source(rank), range(60), {"forward": 0.1}))
    world.now_s += 30.0
    world.worker.tick()
    for rank in range(RANKS):
        world.progress_at_s[rank] = world.now_s
    world.live(40.0)
    assert world.look()["state"] == "stuck"
    page = world.worker.snapshot.page.decode()
    assert "straggler_rank_timeout_seconds{" in page
    assert {
        line.rsplit(" ", 1)[1] for line in page.splitlines() if "rank_timeout_seconds{" in line
    } == {"30.0"}


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        ("ok", "finished"),
        ("cancelled", "cancelled"),
        ("preempted", "preempted"),
        ("failed", "failed"),
        ("unknown", "ended"),
    ],
)
def test_an_end_that_was_told_is_no_hang(world: World, outcome: Any, state: str) -> None:
    """However long nothing is heard after it."""
    for rank in range(RANKS):
        world.end(rank, outcome)
    world.now_s += 500.0
    assert (world.look()["state"], world.look()["why"]) == (state, None)


def test_ranks_of_a_run_that_failed_have_not_finished(world: World) -> None:
    """One raised, two got the launcher's SIGTERM, and one was killed: page, report and series say
    so; where all have ended well, all have finished."""
    world.end(1, "failed")
    world.end(0, "preempted")
    world.end(2, "preempted")
    world.now_s += 60.0
    result = world.look()
    assert (result["state"], result["ranks"]) == ("failed", {"failed": 1, "ended": 3})
    ends = {"0": "ended", "1": "failed", "2": "ended", "3": "ended"}
    assert world.series(semconv.RANK_STATE) == ends
    run = world.worker.snapshot.runs["run"].world("")
    page = page_json(run, ResponseMeta(version="1"))["ranks"]
    assert [page["states"][code] for code in page["state"]] == list(ends.values())


def test_ranks_of_a_run_that_ended_well_have_finished(world: World) -> None:
    for rank in range(RANKS):
        world.end(rank, "ok")
    assert world.look()["ranks"] == {"finished": RANKS}


def test_ranks_that_die_with_one_that_failed_are_explained_by_it(world: World) -> None:
    """The launcher kills them; nobody is called for a hang."""
    world.end(0, "failed")
    world.now_s += 60.0
    result = world.look()
    assert result["state"] == "failed"


def test_a_restart_begins_with_new_states(world: World) -> None:
    """Ranks of the attempt before are no ghosts, and a smaller world lacks nobody."""
    world.live(60.0, silent=range(RANKS))
    assert world.look()["state"] == "lost"
    world.attempt = 1
    del world.beats[3]
    world.live(10.0, moving=range(3))
    assert world.series(semconv.RANK_STATE) == {"0": "ok", "1": "ok", "2": "ok"}
    assert world.look()["state"] == "training"


def test_ranks_without_signs_of_life_are_not_judged(kit: Any) -> None:
    """Spans of another SDK say nothing about who lives."""
    alone = World(kit)
    for rank in range(RANKS):
        alone.take(kit.spans_of(alone.source(rank), range(10)))
    alone.now_s += 600.0
    alone.worker.tick()
    (run,) = json.loads(alone.worker.snapshot.report())["runs"].values()
    assert run["liveness"] == []


def test_a_person_acknowledges_a_hang_until_it_hangs_anew(world: World) -> None:
    """It is still shown as what it is; after progress another hang is another one."""
    world.live(600.0)
    assert world.look()["acknowledged"] is False
    world.decide("dismiss")
    result = world.look()
    assert (result["state"], result["acknowledged"]) == ("stuck", True)
    assert world.worker.snapshot.runs["run"].is_acknowledged("")
    world.live(60.0, silent=(1,))  # what becomes of it without progress is the same hang
    result = world.look()
    assert (result["state"], result["acknowledged"]) == ("partly_lost", True)
    world.live(10.0, moving=range(RANKS))
    assert world.look()["acknowledged"] is False
    world.live(600.0)
    assert (world.look()["state"], world.look()["acknowledged"]) == ("stuck", False)
    assert not world.worker.snapshot.runs["run"].is_acknowledged("")


def test_a_hang_is_muted_for_a_time_and_taken_back(world: World) -> None:
    """A mute holds whatever the world does; also before it hangs."""
    world.look()
    world.decide("mute", seconds=900)
    world.live(600.0)
    assert world.look()["acknowledged"] is True
    world.live(400.0)
    assert world.look()["acknowledged"] is False
    world.decide("dismiss")
    assert world.look()["acknowledged"] is True
    world.decide("restore")
    assert world.look()["acknowledged"] is False


@pytest.mark.parametrize("subject_id", ["hang:", "hang:critic"])
def test_only_what_hangs_can_be_dismissed(world: World, subject_id: str) -> None:
    """A dismissal in advance would hide the next hang."""
    world.look()
    with pytest.raises(UnknownSubjectError, match=r"stuck or lost|with heartbeats"):
        world.decide("dismiss", subject_id)


def test_a_hung_run_is_shown_until_monitoring_gives_up(kit: Any) -> None:
    """Idle runs go after an hour here; this one after three days, as forgotten for an hour."""
    world = World(kit, scoring__evict_run_s=3_600.0)
    world.live(60.0, moving=range(RANKS))
    for seconds in (60.0, 3 * 86_400.0 - 160.0):
        world.now_s += seconds
        assert world.look()["state"] == "lost"
    world.now_s += 200.0
    result = world.look()
    assert (result["state"], result["ranks"], result["culprits"]) == ("forgotten", {}, [])
    assert world.series(semconv.RUN_STATE) == {"": "forgotten"}
    assert world.series(semconv.RANK_STATE) == {}
    world.now_s += 3_700.0
    world.worker.tick()
    assert json.loads(world.worker.snapshot.report())["runs"] == {}


def test_an_acknowledged_run_is_forgotten_like_any_other(kit: Any) -> None:
    """Somebody knows of it."""
    world = World(kit, scoring__evict_run_s=3_600.0)
    world.live(60.0, moving=range(RANKS))
    world.now_s += 60.0
    assert world.look()["state"] == "lost"
    world.decide("dismiss")
    world.now_s += 3_600.0
    world.worker.tick()
    assert json.loads(world.worker.snapshot.report())["runs"] == {}


def test_a_world_says_whether_to_call_anybody_and_whose_it_is(kit: Any) -> None:
    """One rank that says no is enough; the team is that of the first rank that names one."""
    world = World(kit)
    world.live(5.0)
    world.look()
    known = world.worker.snapshot.runs["run"].worlds[""]
    assert (known.page, known.team) == (True, "")
    world.now_s += 5.0
    world.say(2, page=False, team="vision")
    world.say(3, page=True, team="speech")
    world.look()
    known = world.worker.snapshot.runs["run"].worlds[""]
    assert (known.page, known.team) == (False, "vision")


def test_a_rank_that_was_told_to_end_and_falls_silent_was_preempted(world: World) -> None:
    """Its own handler of SIGTERM saved a checkpoint until SIGKILL came."""
    for rank in range(RANKS):
        world.beats[rank]["is_ending"] = True
    world.live(10.0)
    world.now_s += 60.0
    assert (world.look()["state"], world.look()["why"]) == ("preempted", None)
    assert world.series(semconv.RANK_STATE) == dict.fromkeys("0123", "ended")


def test_a_rank_killed_before_its_launcher_ends_the_others_is_a_failed_run(world: World) -> None:
    """Its neighbours on the node say that they were preempted; it says nothing. And it stays so."""
    world.now_s += 2.0
    for rank in range(RANKS):
        world.end(rank, "preempted") if rank != 2 else None
    for _ in range(2):
        world.now_s += 60.0
        result = world.look()
        assert (result["state"], result["culprits"]) == ("failed", [])
    assert world.series(semconv.RANK_STATE)["2"] == "ended"


@pytest.mark.parametrize("model", ["", "NVIDIA H200"])
def test_what_a_hang_has_cost_stays_lost(world: World, model: str) -> None:
    """All ranks from the last progress to the next one, in series, report and verdicts; a second
    hang comes on top, and nothing that happens takes any of it away."""
    world.model = model
    world.live(5.0, moving=range(RANKS))
    began_s = world.now_s
    world.live(600.0)
    assert world.look()["state"] == "stuck"
    first_s = world.lost_s()
    assert first_s == pytest.approx(RANKS * (world.now_s - began_s), abs=RANKS * 2)
    totals = [first_s]
    world.live(30.0, moving=range(RANKS))
    assert world.look()["state"] == "training"
    totals.append(world.lost_s())
    world.live(600.0)
    world.live(60.0, silent=range(RANKS))
    assert world.look()["state"] == "lost"  # nobody knows whether they wait
    totals.append(world.lost_s())
    world.live(30.0, moving=range(RANKS))
    for rank in range(RANKS):
        world.end(rank, "ok")
    assert world.look()["state"] == "finished"
    totals.append(world.lost_s())
    assert totals == sorted(totals)
    assert totals[1] == pytest.approx(first_s, abs=RANKS * 2 * BEAT_S)
    assert totals[2] - totals[1] >= RANKS * 590
    assert totals[3] == totals[2]
