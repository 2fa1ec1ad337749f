"""When faults begin and end, and what is reported of them, by a clock that the test moves."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.inject.effects import Surroundings
from otel_straggler.inject.faults import Fault, Place
from otel_straggler.inject.injector import Injection, Injector
from otel_straggler.inject.plan import InjectionPlan


class Rank:
    """An injector whose steps and seconds the test counts."""

    def __init__(self, plan: str, rank: int = 1) -> None:
        self.step: int | None = None
        self.now_s = 100.0
        self.reported: list[Injection] = []
        self.injector = Injector(
            Surroundings(Place(rank=rank, world_size=4), InjectionPlan.parse(plan), object),
            step=lambda: self.step,
            report=self.reported.append,
            now_s=lambda: self.now_s,
        )

    def due(self, *, step: int | None = None, after_s: float = 0.0) -> list[str]:
        self.step, self.now_s = step, 100.0 + after_s
        return [str(fault) for fault in self.injector.take_due()]


def test_a_fault_begins_with_its_step_or_its_second_and_once():
    """A step that was skipped begins it, too."""
    rank = Rank("data:1@rank1:step5 data:2@rank1:3s data:3@rank2:step5")
    assert rank.due() == []
    assert rank.due(step=4, after_s=2.9) == []
    assert rank.due(step=4, after_s=3.0) == ["data:2@rank1:3s"]
    assert rank.due(step=7, after_s=3.1) == ["data:1@rank1:step5"]
    assert rank.due(step=8, after_s=9.0) == []
    assert rank.injector.pending == []


def test_a_fault_whose_end_has_passed_does_not_begin():
    """A run that goes on from a later checkpoint has skipped it."""
    rank = Rank("data:1@rank1:step5-9")
    assert rank.due(step=9) == []


def test_a_rank_without_faults_starts_no_thread():
    """And so do those of other attempts."""
    for plan in ("data:1@rank2:step5", "data:1@rank1:step5:attempt1"):
        before = threading.active_count()
        rank = Rank(plan)
        rank.injector.start()
        assert threading.active_count() == before


def test_stopping_ends_what_lasts_and_reports_it(tmp_path: Path):
    """As an orderly end of the training does."""
    rank = Rank("memory_leak:1@rank1:0s")
    rank.injector.start()
    while rank.injector.pending:
        pass
    rank.injector.stop()
    (injection,) = rank.reported
    assert str(injection.fault) == "memory_leak:1@rank1:0s"
    assert injection.end_ns > injection.start_ns
    assert injection.reason == ""


def test_a_fault_that_cannot_be_injected_is_reported_with_the_reason(
    caplog: pytest.LogCaptureFixture,
):
    """Training goes on."""
    rank = Rank("xid:79@rank1:0s")
    rank.injector.inject(rank.injector.pending[0])
    (injection,) = rank.reported
    assert "kernel_log=FILE" in injection.reason
    assert "has not xid:79@rank1:0s" in caplog.text


def test_a_stopped_rank_is_not_continued_before_its_time(monkeypatch: pytest.MonkeyPatch):
    """The thread that sends SIGSTOP runs on for a moment, if another thread takes the signal."""
    from otel_straggler.inject import effects

    closed = threading.Event()

    class Keeper:
        def __init__(self, *_: object) -> None: ...

        def close(self) -> None:
            closed.set()

    monkeypatch.setattr(effects, "Keeper", Keeper)
    monkeypatch.setattr(effects.os, "kill", lambda *_: None)
    rank = Rank("rank_hung@rank1:0s+20s")
    thread = threading.Thread(target=rank.injector.inject, args=(rank.injector.pending[0],))
    thread.start()
    assert not closed.wait(0.05)
    rank.injector.stop()
    thread.join()
    assert closed.is_set()


def test_what_ends_a_rank_is_reported_before(monkeypatch: pytest.MonkeyPatch):
    """A killed rank sends nothing."""
    from otel_straggler.inject import effects

    order: list[Any] = []
    monkeypatch.setattr(effects.os, "kill", lambda *_: order.append("killed"))
    rank = Rank("rank_killed@rank1:0s")
    rank.injector._report = order.append
    rank.injector.inject(Fault.parse("rank_killed@rank1:0s"))
    injection, killed = order
    assert killed == "killed"
    assert injection.end_ns == injection.start_ns + 1
