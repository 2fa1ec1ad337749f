"""A collector that is told to end does so in a stated time, whatever waits; what is lost is
counted, and what its history has is whole."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.cli import main
from otel_straggler.cli.collector import has_ended
from otel_straggler.collector.history.history import History
from otel_straggler.collector.history.reader import HistoryReader
from otel_straggler.collector.ingest.intake import ByteBudget
from otel_straggler.collector.stopping import Stopping
from otel_straggler.collector.worker import Worker
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.decode_spans import SpanDecoder

Start = Callable[..., Any]
LONG_S = 120.0


def kept(path: Path) -> tuple[list[str], int]:
    """Runs of the windows, and parts of the state, that a collector that starts now would find."""
    with HistoryReader(path) as reader:
        runs = [run.run_id for run in reader.runs()]
    history = History(path)
    try:
        return runs, len(history.open())
    finally:
        history.close()


def test_what_there_is_no_time_for_is_given_up_and_counted(kit: Any) -> None:
    """What was taken before the time was over is scored, what is left is not; the bytes of all are
    given back, and the thread ends."""
    admission = ByteBudget(1 << 30)
    now_ns = [0]
    worker = Worker(kit.settings(), admission, monotonic_ns=lambda: now_ns[0])
    worker.sign("c")
    spans = SpanDecoder().decode(kit.spans_of(kit.rank(0, 1), range(8)))
    beat = MetricDecoder().decode(kit.beat_of(kit.rank(0, 1), sent_at_s=1.0))

    def take_some() -> None:
        for content in [spans, beat] * 3:
            assert admission.reserve(10, "traces")
            worker.ingest(content, 10)

    worker._give_up_at_ns = 1_000
    take_some()
    worker.process_queued()
    now_ns[0] = 1_000
    take_some()
    assert admission.waiting_bytes == 60
    worker._queue.put(None)
    worker._thread.start()
    worker._thread.join(LONG_S)
    assert worker.given_up == (6, 24)
    assert admission.waiting_bytes == 0
    rows = worker.counts().rows
    assert rows.pop("unscored") == 24
    assert sum(rows.values()) == 24


@pytest.mark.parametrize(("until_ns", "unevaluated"), [(1, 3), (10**18, 0)])
def test_a_collector_that_is_behind_scores_all_rows_before_any_verdict(
    kit: Any, until_ns: int, unevaluated: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Verdicts take ten times as long: where there is no time for them, windows are scored all the
    same, and it is said. No view is made in between."""
    worker = Worker(kit.settings(), ByteBudget(1 << 30), monotonic_ns=lambda: 1)
    worker.sign("c")
    decoder = SpanDecoder()
    for step in range(300):
        for run in "abc":
            worker.ingest(decoder.decode(kit.spans_of(kit.rank(0, 1, run_id=run), [step])), 0)
    worker._queue.put(None)
    worker._is_behind, worker._evaluate_until_ns = True, until_ns
    published = []
    evaluate = worker._publisher.evaluate
    worker._publisher.evaluate = lambda *a, **k: published.append(1) or evaluate(*a, **k)  # type: ignore[method-assign,func-returns-value]
    worker._run()
    assert worker.counts().rows["scored"] == 900
    assert worker.given_up == (0, 0)
    assert worker._scorer.unevaluated == unevaluated
    assert bool(unevaluated) == ("verdicts on the last steps of 3 groups" in caplog.text)
    assert len(published) == 1


def test_a_scoring_thread_that_does_not_end_is_not_waited_for(
    start: Start,
    kit: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is said, everything else is stopped, and what was written before is there."""
    path = tmp_path / "history.db"
    live = start(history__path=str(path))
    live.post(kit.spans_of(kit.rank(0, 1), range(16)))
    kit.eventually(live.windows)  # which are handed to the history before they are shown
    assert live.collector._history._history.flush(LONG_S)
    released, is_stuck = threading.Event(), threading.Event()

    def sticks(_: object) -> None:
        is_stuck.set()
        released.wait()

    monkeypatch.setattr(live.collector._worker, "_process", sticks)
    live.post(kit.spans_of(kit.rank(0, 1), range(16, 24)))
    assert is_stuck.wait(LONG_S)
    live.is_stopped = True
    live.collector.stop(within_s=1.0)
    assert "scoring did not end in time" in caplog.text
    live.collector._history.close(LONG_S)  # on a busy machine its part of a second is short
    assert kept(path)[0] == ["run"]
    released.set()
    live.collector._worker._thread.join(LONG_S)


@pytest.mark.parametrize("spools", [False, True])
def test_what_a_thread_that_does_not_end_still_had_to_score_is_counted(
    start: Start,
    kit: Any,
    tmp_path: Path,
    spools: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What it was at, and what waited for it; a spool has all of it."""
    where = {"history__path": str(tmp_path / "h.db"), "history__spool": str(tmp_path / "spool")}
    live = start(**(where if spools else {}))
    released, is_stuck = threading.Event(), threading.Event()
    score = live.collector._worker._observer.score

    def sticks(waiting: object) -> None:
        is_stuck.set()
        released.wait()
        score(waiting)

    monkeypatch.setattr(live.collector._worker._observer, "score", sticks)
    body = kit.spans_of(kit.rank(0, 1), range(8))
    live.post(body)
    assert is_stuck.wait(LONG_S)
    for _ in range(3):
        live.post(body)
    live.post(kit.beat_of(kit.rank(0, 1)), "metrics")
    live.is_stopped = True
    live.collector.stop(within_s=1.0)
    ending = (
        "they are in the spool, and the next start scores them"
        if spools
        else "they are counted as unscored and lost. A spool (history.spool) keeps them"
    )
    rows = 4 * len(SpanDecoder().decode(body).batch)
    assert live.collector.unfinished == (
        f"no time left to score 5 accepted requests with {rows} section executions; {ending}"
    )
    assert live.collector.unfinished in caplog.messages
    if spools:
        live.collector._history.close(LONG_S)
        start(**where)
        assert "5 requests of the spool were replayed" in caplog.text
    released.set()
    live.collector._worker._thread.join(LONG_S)
    assert not live.collector._worker._thread.is_alive()


@pytest.mark.parametrize("unfinished", ["", "no time left to score 3 accepted requests"])
def test_the_last_line_of_a_process_says_what_is_lost(
    unfinished: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error; nothing where nothing is. The exit code is that of an orderly end."""

    class Ended(SimpleNamespace):
        def start(self) -> dict[str, str]:
            return {"metrics": "127.0.0.1:1"}

        def stop(self) -> None:
            self.unfinished = unfinished

    monkeypatch.setattr("otel_straggler.collector.service.Collector", lambda _: Ended())
    for name in ("serve_until", "freeze_garbage_collector", "exit_without_waiting"):
        monkeypatch.setattr(f"otel_straggler.cli.collector.{name}", lambda *_: None)
    monkeypatch.setattr("otel_straggler.cli.collector.start_serving", lambda _: None)
    assert main(["collector"]) == 0
    assert capsys.readouterr().err == (f"collector: {unfinished}.\n" if unfinished else "")


def test_what_there_is_no_time_for_is_in_the_spool_and_scored_by_the_next(
    start: Start, kit: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All of it once: windows of which one rank was scored stay open for what is left of the
    other."""
    where: dict[str, Any] = {"history__path": str(tmp_path / "h.db"), "scoring__grace_s": 60.0}
    where["history__spool"] = str(tmp_path / "spool")
    first = start(**where)

    def send(to: Any, number: int, steps: range) -> None:
        assert to.post(kit.spans_of(kit.rank(number, 2), steps)).status == 200

    for number, steps in ((0, range(40)), (1, range(30))):
        send(first, number, steps)
    kit.eventually(lambda: first.collector._worker._through == 2)
    first.collector._worker._give_up_at_ns = 0  # as when the time to stop is over
    for number, steps in ((1, range(30, 40)), (0, range(40, 90)), (1, range(40, 90))):
        send(first, number, steps)
    kit.eventually(lambda: first.collector._worker.spooled[0] == 3)
    first.stop(LONG_S)
    assert first.collector.unfinished == (
        "no time left to score 3 accepted requests with 110 section executions; they are in the "
        "spool, and the next start scores them"
    )
    assert first.collector._worker.counts().rows["unscored"] == 0
    second = start(**where)
    assert "3 requests of the spool were replayed" in caplog.text
    for number in (0, 1):
        send(second, number, range(90, 130))

    def columns() -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = second.get("/v1/timeline").json().get("columns", [])
        return result

    kit.eventually(lambda: columns() and columns()[-1]["last_step"] >= 119)
    shown = [n for each in columns() for n in range(each["first_step"], each["last_step"] + 1)]
    assert shown[:120] == list(range(120))
    lost = {"duplicate", "superseded", "late", "unfinished", "unscored"}
    assert {n for name, n in second.collector._worker.counts().rows.items() if name in lost} == {0}


def test_what_fails_when_stopping_takes_nothing_else_with_it(
    start: Start, kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Receivers that cannot be stopped and windows that cannot be closed: the state is saved."""
    path = tmp_path / "history.db"
    live = start(history__path=str(path))
    live.post(kit.spans_of(kit.rank(0, 1), range(16)))
    kit.eventually(live.windows)

    stop_receiving = live.collector._servers.stop_receiving

    def stops_and_fails(within_s: float) -> None:
        stop_receiving(within_s)
        raise TimeoutError

    def fails() -> None:
        raise IndexError

    monkeypatch.setattr(live.collector._servers, "stop_receiving", stops_and_fails)
    monkeypatch.setattr(live.collector._worker._scorer, "close_all", fails)
    live.is_stopped = True
    live.collector.stop(LONG_S)
    runs, states = kept(path)
    assert runs == ["run"]
    assert states


def test_parts_share_the_time_and_what_one_leaves_the_next_one_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever the first ones take, the last one ends in time."""
    now_s = [100.0]
    stopping = Stopping(20.0, lambda: now_s[0])
    given = []

    def takes(seconds: float) -> Callable[[float], None]:
        def stop(within_s: float) -> None:
            given.append(within_s)
            now_s[0] += min(within_s, seconds)

        return stop

    def fails(_: float) -> None:
        raise OSError("it does not stop")

    for share, seconds in [(0.25, 1.0), (0.6, 99.0), (0.7, 99.0), (1.0, 99.0)]:
        stopping.step("a part", share, takes(seconds))
    stopping.step("the last", 1.0, fails)
    assert given == [5.0, 11.0, 2.0, 6.0]
    assert now_s == [120.0]
    assert "the last could not be stopped in order" in caplog.text


def test_who_is_still_at_work_is_known() -> None:
    """So that a process ends although a thread decodes a large request for another minute."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    assert not has_ended([thread], 0.0)
    done.set()
    assert has_ended([thread], LONG_S)


def test_unscored_rows_are_shown_from_the_beginning(start: Start) -> None:
    """As a series that is 0, so that a rate of it is defined."""
    assert start().value(semconv.COLLECTOR_ROWS, outcome="unscored") == 0


def test_a_flood_of_names_does_not_delay_the_end(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is folded into <other> is gone through once a batch, not once a name: with 2,000 names
    in each request a stop took minutes."""
    from otel_straggler.detect.scores import sources

    passes = []
    keep_apart = sources._keep_apart

    def counted(*arguments: Any) -> Any:
        passes.append(1)
        return keep_apart(*arguments)

    monkeypatch.setattr(sources, "_keep_apart", counted)
    worker = Worker(kit.settings(), ByteBudget(1 << 30))
    decoder = SpanDecoder()
    for step in range(4):
        flood = {f"{step}-{n}": 0.1 for n in range(300)}
        worker.ingest(decoder.decode(kit.spans_of(kit.rank(0, 1), [step], flood)), 0)
        worker.process_queued()
    assert worker.counts().names_folded == 4 * 300 - 200
    assert len(passes) == 4


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
