"""Sensors that a rank sends: of its GPU, and of its host if it is the first there."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.client import hardware
from otel_straggler.client.gpu.nvml import Reading, SensorsGoneError
from otel_straggler.client.hardware import INTERVAL_S, HardwareReports
from otel_straggler.client.host import HostSensors, finds_dcgm, memory_pressure
from otel_straggler.client.settings import resolve_settings
from otel_straggler.client.topology import RankContext, Topology
from otel_straggler.client.worker import Clock
from otel_straggler.otlp.decode_metrics import MetricDecoder

GPU = "GPU-1"


class FakeGpu:
    uuid = GPU

    def __init__(self, _: str = "") -> None:
        self.is_gone = self.is_closed = False

    def read(self) -> Iterator[Reading]:
        if self.is_gone:
            raise SensorsGoneError("it has fallen off the bus")
        yield semconv.GPU_CLOCK, {str(semconv.HW_SENSOR): "sm"}, 1.98e9

    def close(self) -> None:
        self.is_closed = True


class FakeHost:
    def read(self, now_s: float) -> Iterator[Reading]:
        yield semconv.HOST_LOAD, {}, now_s


class Reports:
    """Reports of one rank, with the bodies that it sends."""

    def __init__(self, monkeypatch: Any, settings: Any, **sensors: Any) -> None:
        self.sent: list[bytes] = []
        self.gpu_uuid = GPU
        monkeypatch.setattr(
            hardware.sender, "post_metrics", lambda *args: self.sent.append(args[2])
        )
        recorder: Any = SimpleNamespace(session=SimpleNamespace(session_id="s"))
        rank = RankContext(settings, recorder, Clock(), lambda: Topology(gpu_uuid=self.gpu_uuid))
        made: dict[str, Any] = {
            "gpu": FakeGpu, "host": FakeHost, "has_dcgm": lambda: False, **sensors
        }  # fmt: skip
        self.reports = HardwareReports(rank, **made)
        self.first_s = self.reports.tick(0.0)

    def names(self, now_s: float = 10.0) -> list[str]:
        """Of the metrics of one reading, as the collector decodes them."""
        self.sent.clear()
        self.reports.tick(now_s)
        found = [
            each.metric.name for b in self.sent for each in MetricDecoder().decode(b).passthrough
        ]
        return sorted(found)


@pytest.fixture
def settings() -> Any:
    return resolve_settings({"rank": 0, "world_size": 8, "run_id": "r"}, {})


BOTH = ["straggler.gpu.clock", "system.cpu.load_average.1m"]


def test_the_first_reading_comes_an_interval_after_the_start(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    reports = Reports(monkeypatch, settings)
    assert reports.sent == []
    assert reports.names() == BOTH


def test_one_rank_of_a_host_reports_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    second = resolve_settings({"rank": 3, "world_size": 8, "run_id": "r", "local_rank": 1}, {})
    assert Reports(monkeypatch, second).names() == BOTH[:1]


def test_a_rank_without_a_gpu_reads_its_host(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Until it uses one: some trainings move to the GPU late."""
    reports = Reports(monkeypatch, settings)
    reports.gpu_uuid = ""
    assert reports.names() == BOTH[1:]
    reports.gpu_uuid = GPU
    assert reports.names() == BOTH


def test_neighboring_ranks_do_not_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    firsts = [
        Reports(
            monkeypatch, resolve_settings({"rank": rank, "world_size": 8, "run_id": "r"}, {})
        ).first_s
        for rank in range(4)
    ]
    assert all(INTERVAL_S <= first < 2 * INTERVAL_S for first in firsts)
    assert min(abs(a - b) for a, b in pairwise(sorted(firsts))) > 1


def test_gpus_that_dcgm_reads_are_left_to_it(
    monkeypatch: pytest.MonkeyPatch, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "otel_straggler")
    reports = Reports(monkeypatch, settings, has_dcgm=lambda: True)
    assert [reports.names(), reports.names()] == [BOTH[1:], BOTH[1:]]
    assert caplog.text.count("DCGM runs on this host") == 1


def test_a_gpu_that_goes_is_said_once_and_the_host_goes_on(
    monkeypatch: pytest.MonkeyPatch, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "otel_straggler")
    gpu = FakeGpu()
    reports = Reports(monkeypatch, settings, gpu=lambda _: gpu)
    assert reports.names() == BOTH
    gpu.is_gone = True
    assert [reports.names(), reports.names()] == [BOTH[1:], BOTH[1:]]
    assert gpu.is_closed
    assert caplog.text.count("fallen off the bus") == 1


def test_a_reading_that_costs_much_is_made_less_often(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    times = iter([0.0, 0.05])
    reports = Reports(monkeypatch, settings)
    monkeypatch.setattr(hardware.time, "thread_time", lambda: next(times))
    assert reports.reports.tick(100.0) == pytest.approx(150.0)


def test_a_forked_child_reads_nothing(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    reports = Reports(monkeypatch, settings)
    reports.reports.leave_to_parent()
    assert reports.names() == []


def test_the_host_says_load_memory_disks_and_network(tmp_path: Path) -> None:
    pytest.importorskip("psutil", reason="psutil is not installed: it reads the host")
    pressure = tmp_path / "memory"
    pressure.write_text("some avg10=12.50 avg60=3.00 avg300=1.00 total=9\nfull avg10=0.00\n")
    host = HostSensors(pressure)
    list(host.read(0.0))
    found = {metric.name: value for metric, _, value in host.read(10.0)}
    assert found["straggler.host.memory.pressure"] == 0.125
    assert found["system.linux.memory.available"] > 0
    assert found["system.cpu.logical.count"] >= 1
    assert 0 <= found.get("straggler.host.disk.busy", 0) <= 1
    assert found["system.network.errors"] >= 0


@pytest.mark.parametrize("text", ["", "full avg10=1", "some avg10=x", "some"])
def test_a_kernel_that_says_nothing_of_pressure_has_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "memory").write_text(text)
    assert memory_pressure(tmp_path / "memory") is None
    assert memory_pressure(tmp_path / "none") is None


def test_dcgm_is_found_by_the_name_of_its_process(tmp_path: Path) -> None:
    (tmp_path / "17").mkdir()
    (tmp_path / "17" / "comm").write_text("python\n")
    (tmp_path / "18").mkdir()  # has just ended
    assert not finds_dcgm(tmp_path)
    (tmp_path / "17" / "comm").write_text("nv-hostengine\n")
    assert finds_dcgm(tmp_path)
