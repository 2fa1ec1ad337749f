"""A save is written over a part of the interval, and at once if somebody waits."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.checkpoint import LocalTier, Manager
from otel_straggler.checkpoint.pacing import CHUNK_BYTES, Pacer
from otel_straggler.checkpoint.schedule import Schedule


class Time:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.urgent_from_s = float("inf")

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def pacer(self, spread_s: float) -> Pacer:
        return Pacer(
            spread_s,
            lambda: self.now_s >= self.urgent_from_s,
            monotonic_s=lambda: self.now_s,
            sleep=self.sleep,
        )


def test_half_of_the_bytes_take_half_of_the_time() -> None:
    time = Time()
    pacer = time.pacer(20.0)
    pacer.begin(1_000)
    pacer.add(500)
    assert time.now_s == pytest.approx(110.0)
    pacer.add(500)
    assert time.now_s == pytest.approx(120.0)


def test_what_is_behind_does_not_wait() -> None:
    time = Time()
    pacer = time.pacer(20.0)
    pacer.begin(1_000)
    time.now_s += 15.0
    pacer.add(500)
    assert time.now_s == 115.0


def test_it_goes_on_at_once_when_somebody_waits() -> None:
    time = Time()
    pacer = time.pacer(20.0)
    pacer.begin(1_000)
    time.urgent_from_s = 103.0
    pacer.add(1_000)
    assert time.now_s == pytest.approx(103.0, abs=0.11)


@pytest.mark.parametrize("total", [0, 1_000])
def test_without_a_spread_or_a_size_nothing_waits(total: int) -> None:
    time = Time()
    pacer = time.pacer(0.0 if total else 20.0)
    pacer.begin(total)
    pacer.add(500)
    assert time.now_s == 100.0


def test_a_large_write_is_hashed_and_written_in_pieces() -> None:
    pytest.importorskip("torch", reason="no torch: it would show how files are written")
    from otel_straggler.checkpoint.dcp_files import HashingFile

    pieces: list[int] = []

    class File(io.BytesIO):
        def write(self, content: Any) -> int:
            pieces.append(len(content))
            return super().write(content)

    file, content = File(), bytes(range(256)) * (CHUNK_BYTES // 128) + b"end"
    hashing = HashingFile(file, Time().pacer(0.0))
    assert hashing.write(content) == len(content)
    assert pieces == [CHUNK_BYTES, CHUNK_BYTES, 3]
    assert file.getvalue() == content
    assert hashing.entry().size_bytes == len(content)


def test_the_spread_is_a_quarter_of_the_interval_and_of_the_time_until_it_is_given_up() -> None:
    assert Schedule(None, 40.0, None, None).spread_s(600.0) == 10.0
    assert Schedule(None, 4_000.0, None, None).spread_s(600.0) == 150.0
    assert Schedule(10, None, None, None).spread_s(600.0) < 1.0  # steps have taken no time yet


@pytest.mark.parametrize(("is_on_nodes", "spread_s"), [(False, 60.0), (True, 0.0)])
def test_saves_to_nodes_are_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_on_nodes: bool, spread_s: float
) -> None:
    """Until one is complete with its copies, a lost node costs more."""
    monkeypatch.setattr(Schedule, "spread_s", lambda *_: 60.0)
    local = LocalTier(tmp_path / "node", every_steps=1, replicas=0) if is_on_nodes else None
    contexts: list[Any] = []
    with Manager(tmp_path / "saves", local=local, every_steps=1, handle_sigterm=False) as manager:
        begin = manager._saver.begin

        def recording_begin(context: Any, state: Any) -> Any:
            contexts.append(context)
            return begin(context, state)

        monkeypatch.setattr(manager._saver, "begin", recording_begin)
        manager.step(1, {"step": 1})
        assert manager.wait() is not None
    assert [each.spread_s for each in contexts] == [spread_s]
