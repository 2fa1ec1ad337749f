"""A collector with a spool: what it has acknowledged survives its end, whatever ends it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest

from otel_straggler import semconv
from otel_straggler.collector.history.reader import HistoryReader
from otel_straggler.collector.history.spool import Spool
from otel_straggler.collector.history.writer import HistoryWriter
from otel_straggler.collector.ingest.intake import PROTOBUF as CONTENT_TYPE
from otel_straggler.collector.ingest.intake import ByteBudget, Intake, Request
from otel_straggler.collector.settings_file import load_settings
from otel_straggler.collector.worker import Worker
from otel_straggler.demo.processes import Collector
from otel_straggler.errors import ConfigError, UnavailableError

from .conftest import PROTOBUF, ask

HUGE = 2**40
TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@pytest.fixture
def where(tmp_path: Path) -> dict[str, str]:
    return {
        "history__path": str(tmp_path / "history.db"),
        "history__spool": str(tmp_path / "spool"),
    }


def test_a_spool_needs_a_history(tmp_path: Path) -> None:
    """Without one nothing would ever be removed from it."""
    with pytest.raises(ConfigError, match=r"--spool.*--history"):
        load_settings(None, {"history.spool": str(tmp_path)})


@pytest.mark.parametrize("protocol", ["http", "large http", "grpc"])
def test_a_request_is_acknowledged_once_it_is_on_the_disk(
    start: Any, kit: Any, where: dict[str, str], protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer waits for the disk; others are served meanwhile."""
    may_go, syncs = threading.Event(), []

    def slow(file: int) -> None:
        syncs.append(file)
        may_go.wait(30)

    live = start(**where)
    monkeypatch.setattr(os, "fdatasync", slow)
    body = kit.spans_of(kit.rank(0, 1), range(4), {"forward": 0.1})
    if protocol == "large http":
        body *= (1 << 20) // len(body) + 1
    answers: list[Any] = []

    def send() -> None:
        if protocol == "grpc":
            with grpc.insecure_channel(live.addresses["otlp_grpc"]) as channel:
                answers.append(channel.unary_unary(TRACES)(body))
        else:
            answers.append(live.post(body).status)

    sender = threading.Thread(target=send)
    sender.start()
    kit.eventually(lambda: syncs)
    assert ask(live.addresses["metrics"], "GET", "/healthz").status == 200
    assert answers == []
    may_go.set()
    sender.join(30)
    assert answers in ([200], [b""])


def counted(path: Path) -> dict[tuple[int, str], int]:
    result: dict[tuple[int, str], int] = {}
    with HistoryReader(path) as reader:
        for entry in reader.windows("run"):
            window = reader.window(entry.id)
            assert window is not None
            for line, rank in enumerate(window.ranks.tolist()):
                for column, section in enumerate(window.sections):
                    key = rank, section.name
                    result[key] = result.get(key, 0) + int(window.count[line, column])
    return result


def test_every_acknowledged_span_is_in_one_window_after_kills(
    kit: Any, where: dict[str, str], tmp_path: Path
) -> None:
    """A sender that repeats what was not acknowledged, and sometimes what was; a rank that ends;
    kills before, within and after a window."""
    config = tmp_path / "collector.yaml"
    config.write_text("history: {save_every_seconds: 0.05}\nscoring: {window_steps: 10}\n")
    flags = (
        "--config", str(config), "--history", where["history__path"],
        "--spool", where["history__spool"],
    )  # fmt: skip
    collector = Collector(*flags)
    try:
        for step in range(60):
            bodies = [
                kit.spans_of(kit.rank(rank, 2), [step], {"forward": 0.1, "backward": 0.2})
                for rank in range(2)
            ]
            for body in bodies:
                address = collector.addresses["otlp_http"]
                headers = {"Content-Type": PROTOBUF}
                assert ask(address, "POST", "/v1/traces", body, headers).status == 200
            if step in (7, 41):
                collector.kill()
                collector = Collector(*flags)
                for body in bodies:  # the answer was lost with its collector
                    address = collector.addresses["otlp_http"]
                    assert ask(address, "POST", "/v1/traces", body, headers).status == 200
        page = ask(collector.addresses["metrics"], "GET", "/metrics").body.decode()
        assert semconv.COLLECTOR_SPOOL_SIZE.prometheus_name in page
    finally:
        collector.close()
    sections = [(rank, section) for rank in range(2) for section in ("forward", "backward")]
    assert counted(Path(where["history__path"])) == dict.fromkeys(sections, 60)
    assert not list(Path(where["history__spool"]).glob("*.spool"))


class Life:
    """A collector without threads of its own, from its start until it is killed."""

    def __init__(self, kit: Any, where: dict[str, str]) -> None:
        settings = kit.settings(**where, scoring__window_steps=10)
        self.now_s = 1.79e9
        self.spool = Spool(Path(where["history__spool"]), max_bytes=1 << 24, syncs=False)
        self.spool.open()
        self.history = HistoryWriter(settings.history, 100, spool=self.spool)
        self.history.open()
        budget = ByteBudget(1 << 30)
        self.worker = Worker(
            settings,
            budget,
            monotonic_ns=lambda: int(self.now_s * 1e9),
            wall_s=lambda: self.now_s,
            history=self.history,
        )
        self.worker.sign("c")
        self.history.restore(self.worker._scorer, self.worker._decisions, store=self.worker._store)
        self.worker._through = self.history.through
        self.intake = Intake(self.worker.ingest, lambda *_: None, budget, spool=self.spool)
        replayed = self.spool.replay(after=self.history.through, also=self.history.held)
        self.replayed = self.intake.replay(replayed)
        self.worker.process_queued()
        self.spool.begin()

    def send(self, body: bytes) -> None:
        self.now_s += 1.0
        request = Request(
            signal="traces", content_type=CONTENT_TYPE, body=body, raw_body=b"", content_encoding=""
        )
        assert self.intake.handle(request).status == "ok"
        self.worker.process_queued()

    def save(self) -> None:
        worker = self.worker
        self.history.save(worker._scorer, worker._store, through=worker._through)
        self.history._history.flush()  # type: ignore[union-attr]

    def kill(self) -> None:
        self.history.close(5.0)
        self.spool.close()

    def end(self) -> None:
        self.worker.finish()
        self.kill()


def test_what_waits_for_a_quorum_survives_kills(kit: Any, where: dict[str, str]) -> None:
    """A restart of the world (attempt 1) that half of its ranks have not reported yet when the
    collector is killed, twice, after saves; and what one wrong process says is still set aside."""

    def spans(rank: int, steps: range, attempt: int = 1) -> bytes:
        return kit.spans_of(kit.rank(rank, 4, attempt=attempt), steps, {"forward": 0.1})

    life = Life(kit, where)
    for rank in range(4):
        life.send(spans(rank, range(10), attempt=0))
    life.send(spans(3, range(1), attempt=HUGE))
    life.send(spans(0, range(100, 105)) + spans(0, range(105, 110), attempt=0))
    for _ in range(2):
        life.save()
        life.kill()
        life = Life(kit, where)
        assert life.replayed == 2
    life.send(spans(1, range(100, 110)))
    for rank in (2, 3):
        life.send(spans(rank, range(100, 110)))
    life.send(spans(0, range(105, 110)))
    assert life.worker._store.world("run", "").claims.attempt == 1
    life.end()
    counts = counted(Path(where["history__path"]))
    assert counts == {(0, "forward"): 25, **{(rank, "forward"): 20 for rank in (1, 2, 3)}}


def test_a_collector_that_cannot_listen_leaves_the_spool_to_the_next(
    start: Any, kit: Any, where: dict[str, str]
) -> None:
    """The address is taken: nothing is lost, and neither file is locked."""
    live = start()
    taken = live.addresses["otlp_http"]
    with pytest.raises(UnavailableError, match="--otlp-http"):
        start(**where, receivers__otlp_http=taken)
    other = start(**where)
    body = kit.spans_of(kit.rank(0, 1), range(4), {"forward": 0.1})
    assert other.post(body).status == 200
