"""Many ranks: what pages read is new more often than the text of /metrics, which costs more, and is
rendered for whoever scrapes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from otel_straggler.collector import worker as worker_module
from otel_straggler.collector.ingest.intake import ByteBudget
from otel_straggler.collector.settings import CollectorSettings
from otel_straggler.collector.worker import Worker
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.throttle import Throttle

from .watched_world import WatchedWorld

START_S = 1_790_000_000.0


class Times:
    """Clocks that a test sets, and processor time by what is made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *costs_s: float) -> None:
        self.now_s = 100.0
        costs = iter(costs_s)
        monkeypatch.setattr(
            worker_module,
            "Throttle",
            lambda *rates, **clocks: Throttle(*rates, **clocks, cpu_s=self._cpu_s(next(costs))),
        )

    def worker(self) -> Worker:
        return Worker(
            CollectorSettings(),
            ByteBudget(1 << 20),
            monotonic_ns=lambda: int(self.now_s * 1e9),
            wall_s=lambda: START_S + self.now_s,
        )

    @staticmethod
    def _cpu_s(cost_s: float) -> Callable[[], float]:
        took_s = 0.0

        def read() -> float:
            nonlocal took_s
            took_s += cost_s
            return took_s

        return read

    def beat(self, worker: Worker, run_id: str, *, is_scraped: bool = True) -> None:
        """A sign of life, taken at once."""
        source = Source(run_id=run_id, rank=0, session_id="1", world_size=1)
        beat = Heartbeat(source=source, sent_at_s=START_S + self.now_s)
        worker.ingest(DecodedMetrics(heartbeats=(beat,), points={}), 0)
        if is_scraped:
            worker.request_page()
        worker.process_queued()
        worker.tick()


def test_a_text_that_costs_much_does_not_hold_up_what_pages_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The text takes a second, so it is made again after ten; the rest takes no time."""
    times = Times(monkeypatch, 0.0, 1.0)
    worker = times.worker()
    times.beat(worker, "one")
    times.now_s += 1.0
    times.beat(worker, "two")
    assert set(worker.snapshot.runs) == {"one", "two"}
    assert b'run_id="one"' in worker.snapshot.page
    assert b'run_id="two"' not in worker.snapshot.page
    times.now_s += 9.0
    worker.tick()
    assert b'run_id="two"' in worker.snapshot.page


def test_what_pages_read_takes_a_tenth_of_the_time_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes half a second, so it is made again after five."""
    times = Times(monkeypatch, 0.5, 0.0)
    worker = times.worker()
    times.beat(worker, "one")
    times.now_s += 4.9
    times.beat(worker, "two")
    assert list(worker.snapshot.runs) == ["one"]
    times.now_s += 0.2
    worker.tick()
    assert list(worker.snapshot.runs) == ["one", "two"]


def test_the_last_text_has_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short before the end another one was made."""
    times = Times(monkeypatch, 0.0, 1.0)
    worker = times.worker()
    times.beat(worker, "one")
    times.now_s += 1.0
    times.beat(worker, "two")
    worker.finish()
    assert b'run_id="two"' in worker.snapshot.page


def test_a_text_that_nobody_scrapes_is_not_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views are published all the same; the first scrape gets everything."""
    times = Times(monkeypatch, 0.0, 0.0)
    worker = times.worker()
    times.beat(worker, "one", is_scraped=False)
    assert (list(worker.snapshot.runs), worker.snapshot.page) == (["one"], b"")
    scrape = worker.request_page()
    worker.tick()
    assert scrape.done()
    assert b'run_id="one"' in worker.snapshot.page


def test_worlds_are_looked_at_by_the_clock_and_not_for_every_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of seven rounds within a moment the first looks what is due, that with a scrape, and the
    last one."""
    worker = Times(monkeypatch, 0.0, 0.0).worker()
    rounds: list[list[Any]] = [[None], [], [], [], [], [], []]
    looked: list[int] = []

    def wait() -> list[Any]:
        if len(rounds) == 4:
            worker.request_page()
        return rounds.pop()

    monkeypatch.setattr(worker_module, "_ROUND_S", 0.0)
    monkeypatch.setattr(worker_module.time, "perf_counter", lambda: 100.0)
    monkeypatch.setattr(worker, "_wait_for_items", wait)
    tick = worker.tick
    monkeypatch.setattr(worker, "tick", lambda: (looked.append(len(rounds)), tick()))
    worker._run()
    assert looked == [6, 3, 0]


def test_a_text_of_kept_lines_is_the_one_that_is_made_anew() -> None:
    """Lines of signs of life are kept while nobody speaks; a word, a silence and an end show."""
    world = WatchedWorld(CollectorSettings(), 3)
    world.live(20.0)
    for happens in (
        lambda: None,
        lambda: world.say(1, open_section="data_loading"),
        lambda: world.live(40.0, silent=[2]),
        lambda: world.end("ok", [0]),
    ):
        happens()
        world.look()
        snapshot = world.worker.snapshot
        world.worker._store.runs["run"].shown._series.clear()
        assert snapshot.page == world.worker._publisher.metrics.text(snapshot)
