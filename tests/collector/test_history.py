"""A collector that starts again goes on from what it knew."""

from __future__ import annotations

import json
import logging
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_straggler import semconv
from otel_straggler.collector.api.decisions import Decisions
from otel_straggler.collector.api.maintenance import MaintenanceBook
from otel_straggler.collector.history.codec import decode_blob
from otel_straggler.collector.history.failures import REASONS
from otel_straggler.collector.history.reader import HistoryReader
from otel_straggler.collector.history.writer import HistoryWriter
from otel_straggler.collector.runs.store import RunStore
from otel_straggler.collector.settings import HistorySettings
from otel_straggler.detect.scores.scorer import ScorerCounts
from otel_straggler.errors import InputError, UnavailableError
from otel_straggler.model.alert import Maintenance
from otel_straggler.model.observation import Section
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.model.step_table import StepTable
from otel_straggler.model.verdict import Verdict

FREE = ["--otlp-http", "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
DEVICES = {"a": ("node", 0), "b": ("node", 1), "c": ("node", 2)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "history.db"


def send(live: Any, kit: Any, order: str, seconds: dict[str, float], **changes: Any) -> None:
    """Four windows of four steps; ``order`` says which device has which rank."""
    for number, device in enumerate(order):
        node, local_rank = DEVICES[device]
        source = kit.rank(number, len(order), node=node, local_rank=local_rank, **changes)
        body = kit.spans_of(source, range(16), {"forward": seconds[device]})
        assert live.post(body).status == 200


def individual_scores(live: Any, kit: Any, run_id: str = "run") -> dict[str, float]:
    """By rank, of the newest window, once there is one."""
    (window,) = kit.eventually(lambda: live.windows(run_id))
    scores: dict[str, float] = window["section_individual_scores"]["forward"]
    return scores


def test_individual_scores_go_on_over_a_restart_of_the_collector_and_of_the_job(
    start: Callable[..., Any], kit: Any, path: Path
) -> None:
    """The job starts again with other rank numbers and another run id: each device is compared
    with its own past."""
    settings = {
        "history__path": str(path),
        "scoring__min_reference_samples": 4,
        "scoring__grace_s": 20.0,
    }
    first = start(**settings)
    send(first, kit, "abc", {"a": 0.1, "b": 0.2, "c": 0.4})
    assert set(individual_scores(first, kit).values()) == {1.0}
    first.stop()
    second = start(**settings)
    assert second.windows() == []
    send(second, kit, "cab", {"a": 0.2, "b": 0.2, "c": 0.4}, run_id="next", attempt=1)
    scores = individual_scores(second, kit, "next")
    assert scores == pytest.approx({"0": 1.0, "1": 0.5, "2": 1.0}, rel=1e-3)


def test_without_a_path_nothing_is_kept(start: Callable[..., Any], kit: Any, path: Path) -> None:
    """As in the demo: a restarted collector knows nothing of before, and has no metrics of it."""
    for _ in range(2):
        live = start()
        send(live, kit, "abc", {"a": 0.1, "b": 0.1, "c": 0.2})
        assert set(individual_scores(live, kit).values()) == {1.0}
        assert live.samples("straggler_collector_history_size_bytes") == {}
        live.stop()
    assert not path.parent.exists()


def test_windows_are_kept_and_the_metrics_say_how_much(
    start: Callable[..., Any], kit: Any, path: Path
) -> None:
    """Readers see them while the collector runs."""
    live = start(
        history__path=str(path),
        history__save_every_seconds=0.05,
        scoring__grace_s=20.0,
    )
    send(live, kit, "abc", {"a": 0.1, "b": 0.1, "c": 0.2})
    kit.eventually(lambda: path.exists() and windows_of(path) >= 3)
    with HistoryReader(path) as reader:
        (run,) = reader.runs()
        assert (run.run_id, run.job) == ("run", "job")
        entry = reader.windows("run")[0]
        window = reader.window(entry.id)
    assert window is not None
    assert window.ranks.tolist() == [0, 1, 2]
    np.testing.assert_allclose(window.median_s[:, 0], [0.1, 0.1, 0.2], rtol=1e-5)
    np.testing.assert_allclose(window.relative[:, 0], [1.0, 1.0, 0.5], rtol=1e-5)
    kit.eventually(lambda: (live.value(semconv.COLLECTOR_HISTORY_OLDEST) or 0) > 1e9)
    assert live.value(semconv.COLLECTOR_HISTORY_SIZE) > 4096
    failures = live.samples(semconv.COLLECTOR_HISTORY_FAILURES.prometheus_name)
    assert set(failures.values()) == {0.0}
    assert len(failures) == len(REASONS)
    live.stop()
    assert windows_of(path) == 4


def windows_of(path: Path) -> int:
    with HistoryReader(path) as reader:
        return sum(run.windows for run in reader.runs())


def test_a_second_collector_on_the_file_does_not_start(
    start: Callable[..., Any], kit: Any, path: Path
) -> None:
    """The first goes on; where ports are taken the file is free again."""
    first = start(history__path=str(path))
    with pytest.raises(UnavailableError, match="in use by process"):
        start(history__path=str(path))
    taken = first.addresses["otlp_http"]
    other = path.with_name("other.db")
    for _ in range(2):
        with pytest.raises(UnavailableError, match=taken):
            start(history__path=str(other), receivers__otlp_http=taken)
    send(first, kit, "abc", {"a": 0.1, "b": 0.1, "c": 0.2})
    individual_scores(first, kit)


def test_a_file_that_cannot_be_used_stops_nothing(
    start: Callable[..., Any], kit: Any, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Here its folder is a file: scores and pages as ever, one line in the log, and a metric."""
    path.parent.write_text("not a folder")
    live = start(history__path=str(path), history__save_every_seconds=0.05)
    send(live, kit, "abc", {"a": 0.1, "b": 0.1, "c": 0.2})
    individual_scores(live, kit)

    def lost() -> float:
        return live.value(semconv.COLLECTOR_HISTORY_FAILURES, reason="read_only") or 0

    kit.eventually(lambda: lost() > 3)
    live.stop()
    printed = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(printed) == 1
    assert "cannot be written" in printed[0].getMessage()


# --- kill -9 --------------------------------------------------------------------------------------


class Process:
    """``otel-straggler collector`` with a history."""

    def __init__(self, kit: Any, path: Path, folder: Path) -> None:
        config = folder / "collector.yaml"
        config.write_text(
            "history: {save_every_seconds: 0.05}\n"
            "scoring: {grace_seconds: 10, min_reference_samples: 4}\n"
        )
        self._kit = kit
        self.process = subprocess.Popen(
            [sys.executable, "-m", "otel_straggler.cli", "collector", "--config", str(config),
             "--history", str(path), "--window-steps", "4",
             *FREE],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.addresses = json.loads(self.process.stdout.readline())

    def post(self, body: bytes) -> Any:
        headers = {"Content-Type": "application/x-protobuf"}
        return self._kit.ask(self.addresses["otlp_http"], "POST", "/v1/traces", body, headers)

    def windows(self, run_id: str) -> Any:
        report = self._kit.ask(self.addresses["metrics"], "GET", "/v1/report").json()
        return report["runs"].get(run_id, {}).get("windows", [])

    def end(self, number: signal.Signals) -> str:
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=60)
        return str(err)


@pytest.fixture
def begin(kit: Any, path: Path, tmp_path: Path) -> Iterator[Callable[[], Process]]:
    running: list[Process] = []

    def one() -> Process:
        running.append(Process(kit, path, tmp_path))
        return running[-1]

    yield one
    for started in running:
        if started.process.poll() is None:
            started.process.kill()
            started.process.communicate()


def test_a_collector_that_is_killed_while_it_writes_loses_seconds_at_most(
    begin: Callable[[], Process], kit: Any, path: Path
) -> None:
    """kill -9, three times, in the middle of it: the file is whole, references and windows are
    there, and the next collector goes on."""
    known = 0
    for turn in range(3):
        collector = begin()
        sender = Sender(collector, kit, turn)
        sender.start()
        kit.eventually(lambda minimum=known + 20: path.exists() and windows_of(path) > minimum)
        collector.end(signal.SIGKILL)
        sender.join()
        known = windows_of(path)
        assert integrity(path) == "ok"
    references = state(path, "references")["sections"]
    assert references["subjects"][4] == ["node-0", "node-1", "node-2"]
    assert references["best_s"][:, 0].tolist() == pytest.approx([0.1, 0.1, 0.1], rel=1e-6)

    last = begin()
    for number in range(3):
        seconds = {"forward": 0.2 if number == 1 else 0.1}
        last.post(kit.spans_of(kit.rank(number, 3, run_id="last", local_rank=0), range(8), seconds))
    (window,) = kit.eventually(lambda: last.windows("last"))
    scores = window["section_individual_scores"]["forward"]
    assert scores == pytest.approx({"0": 1.0, "1": 0.5, "2": 1.0}, rel=1e-3)
    assert "cannot be written" not in last.end(signal.SIGTERM)


class Sender(threading.Thread):
    """Sends windows until nobody listens."""

    def __init__(self, collector: Process, kit: Any, turn: int) -> None:
        super().__init__()
        self._collector, self._kit, self._turn = collector, kit, turn

    def run(self) -> None:
        for first_step in range(0, 1_000_000, 8):
            for number in range(3):
                source = self._kit.rank(number, 3, run_id=f"turn-{self._turn}", local_rank=0)
                steps = range(first_step, first_step + 8)
                try:
                    self._collector.post(self._kit.spans_of(source, steps))
                except OSError:
                    return
                except Exception:  # noqa: BLE001 - an answer cut off in the middle
                    return


def integrity(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        connection.close()


def state(path: Path, key: str) -> Any:
    connection = sqlite3.connect(path)
    try:
        result = connection.execute("SELECT blob FROM state WHERE key = ?", (key,)).fetchone()
        return decode_blob(result[0], where=key)
    finally:
        connection.close()


def test_the_command_refuses_a_history_in_use_and_one_of_another_program(
    begin: Callable[[], Process], path: Path, tmp_path: Path
) -> None:
    """Exit code 2, one sentence, no traceback."""
    first = begin()
    foreign = tmp_path / "bookmarks.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    for file, expected in (path, f"process {first.process.pid}"), (foreign, "another program"):
        ended = subprocess.run(
            [sys.executable, "-m", "otel_straggler.cli", "collector", "--history", str(file),
             *FREE],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (ended.returncode, ended.stdout) == (2, "")
        assert expected in ended.stderr
        assert "Traceback" not in ended.stderr


# --- what is given to the scorer, and taken from it -----------------------------------------------


class RunVerdicts:
    """Stands for a scorer whose parts a test chooses."""

    def __init__(self, refuses: str = "") -> None:
        self.counts = ScorerCounts()
        self.given: list[dict[str, Any]] = []
        self.changes: list[Verdict] = []
        self._refuses = refuses

    def state(self) -> dict[str, Any]:
        return {"references": {"r": 1}, "judges": {"x": {"n": 1}, "y": {"n": 2}}}

    def restore(self, state: dict[str, Any]) -> None:
        self.given.append(state)
        if self._refuses in state:
            raise InputError("no such state")

    def drain_changes(self) -> list[Verdict]:
        new, self.changes = self.changes, []
        return new


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def keep(path: Path) -> Iterator[Callable[..., tuple[HistoryWriter, Clock]]]:
    opened: list[HistoryWriter] = []

    def one(max_runs: int = 100) -> tuple[HistoryWriter, Clock]:
        clock = Clock()
        keeper = HistoryWriter(HistorySettings(path=str(path)), max_runs, clock)
        keeper.open()
        opened.append(keeper)
        return keeper, clock

    yield one
    for keeper in opened:
        keeper.close(5.0)


def test_a_state_is_saved_when_it_is_time_and_there_is_news(
    keep: Any, path: Path, kit: Any
) -> None:
    """Not every tick, and not while nobody trains; changes of verdicts go with the state."""
    keeper, clock = keep()
    scorer: Any = RunVerdicts()
    clock.now_ns = 60 * 10**9
    keeper.tick(scorer)
    assert keys(path) == set()
    scorer.counts.observed = 5
    change = Verdict(run_id="run", subject_id="s", scope="rank", state="confirmed")
    scorer.changes.append(change)
    keeper.tick(scorer)
    keeper._history.flush()
    assert keys(path) == {"references", "judges/x", "judges/y"}
    with HistoryReader(path) as reader:
        assert [v.subject_id for v in reader.changes("run")] == ["s"]
    scorer.counts.observed = 6
    scorer.state = lambda: {"references": {}, "more": 1, "judges": {}}
    clock.now_ns += 9 * 10**9
    keeper.tick(scorer)
    keeper._history.flush()
    assert "more" not in keys(path)
    clock.now_ns += 10**9
    keeper.tick(scorer)
    keeper._history.flush()
    assert "more" in keys(path)


def test_a_state_that_takes_long_to_copy_is_saved_less_often(keep: Any, path: Path) -> None:
    """The thread that scores has better things to do."""
    keeper, clock = keep()
    scorer: Any = RunVerdicts()
    saved: list[int] = []

    def slow() -> dict[str, Any]:
        clock.now_ns += 2 * 10**9
        saved.append(clock.now_ns)
        return {}

    scorer.state = slow
    for second in range(100):
        clock.now_ns = max(clock.now_ns, second * 10**9)
        scorer.counts.observed += 1
        keeper.tick(scorer)
    assert len(saved) == 3


def test_each_judge_is_restored_for_itself_and_only_the_newest(keep: Any) -> None:
    """Runs of last week come back only as far as there is room."""
    keeper, _ = keep()
    keeper.save(RunVerdicts())
    keeper.close(5.0)
    keeper, _ = keep(max_runs=1)
    scorer: Any = RunVerdicts()
    keeper.restore(scorer, Decisions(time.time_ns))
    assert scorer.given == [{"judges": {"x": {"n": 1}}}, {"references": {"r": 1}}]


def learnt(run_id: str, seconds: float, ranks: int = 2) -> StepTable:
    """Forty steps of one section."""
    times = np.full((40, ranks, 1), seconds)
    return StepTable(
        steps=np.arange(100, 140),
        sources=tuple(Source(run_id=run_id, rank=r, session_id=f"{r}") for r in range(ranks)),
        sections=(Section("forward"),),
        seconds=times,
        runs=np.ones(times.shape, np.int32),
        run_cv=np.full((ranks, 1), np.nan),
        tokens=np.full((40, ranks), np.nan),
        start_ns=np.zeros((40, ranks), np.int64),
        end_ns=(times[:, :, 0] * 1e9).astype(np.int64),
    )


def timeout_of(store: RunStore, run_id: str, *, step: int = 200) -> float:
    """Of a rank of that run which is in the section."""
    world = store.world(run_id, "")
    for number, now_s in ((step, 1_000.0), (step + 5, 1_010.0)):
        source = Source(run_id=run_id, rank=0, session_id="0", world_size=1)
        beat = Heartbeat(
            source=source,
            sent_at_s=now_s,
            progress_at_s=now_s,
            step=number,
            open_section="forward",
            open_time_s=0.0,
        )
        world.liveness.observe_heartbeat(beat, now_s)
        assert world.liveness.status is not None
        result = world.hangs.evaluate(world.liveness.status, now_s)
    assert result is not None
    return float(result.timeout_s[0])


def test_learned_timeouts_survive_a_restart(keep: Any) -> None:
    """A section of 50 s is known after it; without that it would have the 480 s of an unknown
    one. The hundred worlds that learnt last are kept."""
    store = RunStore()
    for number in range(101):
        for step in (0, 40):  # the first steps teach nothing
            store.learn(replace(learnt(f"run-{number}", 50.0), steps=np.arange(40) + step))
    assert timeout_of(store, "run-100") == pytest.approx(150.0)
    keeper, _ = keep()
    keeper.save(RunVerdicts(), store)
    keeper.close(5.0)
    keeper, _ = keep()
    again = RunStore()
    keeper.restore(RunVerdicts(), Decisions(time.time_ns), store=again)
    assert timeout_of(again, "run-100") == pytest.approx(150.0)
    assert timeout_of(again, "run-0") == 480.0
    assert timeout_of(RunStore(), "run-100") == 480.0


def stands_for(store: RunStore, from_s: float, to_s: float) -> Any:
    """Rank 0 of a run sends heartbeats from within a step, and gets no further."""
    world = store.world("run", "")
    for now_s in np.arange(from_s, to_s, 10.0).tolist():
        beat = Heartbeat(
            source=Source(run_id="run", rank=0, session_id="0", node="node-0", world_size=1),
            sent_at_s=now_s,
            progress_at_s=from_s,
            step=200,
            open_section="forward",
            open_time_s=now_s - from_s,
        )
        world.liveness.observe_heartbeat(beat, now_s)
        assert world.liveness.status is not None
        result = world.hangs.evaluate(world.liveness.status, now_s)
    return result


def test_earlier_hangs_survive_a_restart_and_that_a_run_is_forgotten(keep: Any) -> None:
    """A run that comes back, in another process of the collector, has hung before."""
    store = RunStore()
    store.learn(learnt("run", 1.0, ranks=1))
    timeout_of(store, "run")
    assert stands_for(store, 2_000.0, 8_000.0).is_hung
    [hang] = stands_for(store, 8_000.0, 8_020.0).before
    store.evict("run")
    keeper, _ = keep()
    keeper.save(RunVerdicts(), store)
    keeper.close(5.0)
    keeper, _ = keep()
    again = RunStore()
    keeper.restore(RunVerdicts(), Decisions(time.time_ns), store=again)
    result = stands_for(again, 90_000.0, 90_020.0)
    assert result.before == (hang,)
    assert (hang.since_s, hang.end) == (2_000.0, "went_on")


@pytest.mark.parametrize(
    "state",
    [
        {"version": 2, "worlds": []},
        {"worlds": []},
        {"version": 1, "worlds": [{"run_id": "run", "group": "", "order": [], "judge": {}}]},
        {"version": 1, "worlds": 7},
        [],
    ],
)
def test_a_damaged_state_of_hang_judges_is_left_out_with_one_line(
    keep: Any, state: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The collector starts, and learns timeouts anew."""
    keeper, _ = keep()
    keeper._history.put(states={"hangs": state})
    keeper.close(5.0)
    keeper, _ = keep()
    keeper.restore(RunVerdicts(), Decisions(time.time_ns), store=RunStore())
    assert [message for message in caplog.messages if "hangs" in message] == caplog.messages
    assert len(caplog.messages) == 1


def test_maintenance_is_written_again_with_every_save(keep: Any, path: Path) -> None:
    """A history drops what nobody has written for a week; maintenance may last for a month."""
    work = Maintenance(node="n", reason="r", at_ns=0, until_ns=time.time_ns() + 10**15)
    book = MaintenanceBook(time.time_ns)
    book.record(work)
    keeper, _ = keep()
    keeper.put("maintenance", book.state())
    keeper.close(5.0)
    keeper, _ = keep()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM state")
    connection.close()
    restored = MaintenanceBook(time.time_ns)
    keeper.restore(RunVerdicts(), Decisions(time.time_ns), maintenance=restored)
    keeper.save(RunVerdicts())
    keeper.close(5.0)
    assert restored.in_force() == (work,)
    assert "maintenance" in keys(path)


def test_a_state_that_the_scorer_refuses_is_left_out_and_counted(
    keep: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are restored, and the collector starts."""
    keeper, _ = keep()
    keeper.save(RunVerdicts())
    keeper.close(5.0)
    keeper, _ = keep()
    scorer: Any = RunVerdicts(refuses="judges")
    keeper.restore(scorer, Decisions(time.time_ns))
    assert len(scorer.given) == 3
    assert keeper.counts().failures["damaged"] == 2
    assert "state judges/x: InputError: no such state" in caplog.text


def keys(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    try:
        return {row[0] for row in connection.execute("SELECT key FROM state")}
    finally:
        connection.close()


def test_a_scorer_whose_state_fails_still_scores(
    start: Callable[..., Any], kit: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in what is to be kept costs what is kept, not the pages."""
    live = start(history__path=str(path), history__save_every_seconds=1e-6)

    def broken() -> dict[str, Any]:
        raise RuntimeError("mistake")

    monkeypatch.setattr(live.collector._worker._scorer, "state", broken)
    send(live, kit, "abc", {"a": 0.1, "b": 0.1, "c": 0.2})
    individual_scores(live, kit)
    kit.eventually(lambda: live.value(semconv.COLLECTOR_FAILURES) >= 1)
    assert live.get("/healthz").status == 200
