"""When the GPU's sensors are read, what a window makes of them, and how it ends."""

from __future__ import annotations

import logging
import os

import pytest

from otel_straggler import semconv
from otel_straggler.model.throttling import throttle_sentence
from otel_straggler.record.gpu.nvml_signals import GpuReading, SensorsGoneError
from otel_straggler.record.gpu.nvml_watch import GpuWatch

from .scripted import ScriptedSensors

S = 1_000_000_000


def test_readings_come_once_a_second_and_faults_every_half_minute() -> None:
    """However often it is asked to look."""
    sensors = ScriptedSensors()
    watch = GpuWatch(lambda: sensors)
    for tenth in range(10 * 61):
        watch.tick(tenth * S // 10)
    asked = [(what, at // S) for what, at in sensors.asked]
    assert [at for what, at in asked if what == "reading"] == list(range(61))
    assert [at for what, at in asked if what == "health"] == [0, 30, 60]


def test_ranks_of_a_node_ask_at_different_moments() -> None:
    """Each is later by its own part of a second."""
    sensors = ScriptedSensors()
    watch = GpuWatch(lambda: sensors, offset_ns=S // 4)
    for tenth in range(20):
        watch.tick(tenth * S // 10)
    assert [at for what, at in sensors.asked if what == "reading"] == [3 * S // 10, 13 * S // 10]


def test_a_window_knows_how_long_the_gpu_was_held_back() -> None:
    """The difference of two counters: nothing between two readings is missed."""
    sensors = ScriptedSensors()
    watch = GpuWatch(lambda: sensors)
    assert watch.throttling(0) is None
    for second in range(5):
        sensors.says = GpuReading(
            at_ns=0, throttled_ns={"thermal": 7 * S + second * S // 2, "power": 9}
        )
        watch.tick(second * S)
    found = watch.throttling(2 * S + 1)
    assert found is not None
    assert (found.window_ns, dict(found.throttled_ns)) == (2 * S, {"thermal": S, "power": 0})
    sentence = throttle_sentence(found.window_ns, found.throttled_ns, "GPU-1 of rank 3")
    assert sentence == ("GPU-1 of rank 3 was throttled for 50 % of the window, by its temperature.")
    assert watch.throttling(10 * S) is None


@pytest.mark.parametrize(
    ("window_ns", "throttled_ns", "sentence"),
    [
        (S, {}, ""),
        (0, {"power": S}, ""),
        (100, {"power": 5}, ""),
        (100, {"power": 6}, "The GPU was throttled for 6 % of the window, by its power limit."),
        (
            100,
            {"power": 40, "thermal": 90, "board": 10, "sync_boost": 1},
            (
                "The GPU was throttled for 90 % of the window, by its temperature, its power limit "
                "and the limits of its board."
            ),
        ),
        (100, {"new": 300}, "The GPU was throttled for 100 % of the window, by new."),
    ],
)
def test_throttling_is_worth_a_sentence_above_a_twentieth(
    window_ns: int, throttled_ns: dict[str, int], sentence: str
) -> None:
    """Reasons overlap, so the longest counts; the others that matter are named."""
    assert throttle_sentence(window_ns, throttled_ns) == sentence


def test_all_signals_have_names_of_the_conventions() -> None:
    """With the GPU that they are of; what a GPU does not say is left out."""
    sensors = ScriptedSensors(errors={"pcie_replay": 3})
    sensors.says = GpuReading(
        at_ns=0,
        throttled_ns={"power": 2 * S},
        sm_clock_hz=1_980_000_000,
        power_w=700.0,
        energy_j=5.0,
        temperature_c=55,
    )
    watch = GpuWatch(lambda: sensors)
    assert watch.points() == []
    watch.tick(0)
    points = watch.points()
    assert {point[1]["hw.id"] for point in points} == {"GPU-1"}
    assert {point[1]["hw.type"] for point in points} == {"gpu"}
    assert {(metric.name, value) for metric, _, value in points} == {
        ("straggler.gpu.clock", 1_980_000_000),
        ("hw.power", 700.0),
        ("hw.energy", 5.0),
        ("hw.temperature", 55),
        ("straggler.gpu.throttled", 2.0),
        ("hw.errors", 3),
    }
    assert {metric for metric, _, _ in points} <= set(semconv.HARDWARE_METRICS)


def test_what_goes_wrong_is_said_once_and_not_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line with the remedy; what was read before stays."""
    sensors = ScriptedSensors()
    watch = GpuWatch(lambda: sensors)
    watch.tick(0)
    sensors.gone = "the GPU has fallen off the bus; drain the node"
    with caplog.at_level(logging.WARNING, "otel_straggler"):
        for second in range(1, 9):
            watch.tick(second * S)
    assert [record.getMessage() for record in caplog.records] == [
        "the GPU's sensors are not read any more: the GPU has fallen off the bus; drain the node"
    ]
    assert len([what for what, _ in sensors.asked if what == "reading"]) == 2
    assert watch.is_gone
    assert watch.latest is not None


def test_sensors_that_cannot_be_opened_are_tried_once() -> None:
    """A machine without NVML pays for one look."""
    tries = []

    def no_sensors() -> ScriptedSensors:
        tries.append(1)
        raise SensorsGoneError("libnvidia-ml.so.1 is missing")

    watch = GpuWatch(no_sensors)
    for second in range(5):
        watch.tick(second * S)
    assert (len(tries), watch.points()) == (1, [])


def test_critical_errors_are_counted_by_number(caplog: pytest.LogCaptureFixture) -> None:
    """By a thread that waits; it ends with the GPU or with the watch."""
    sensors = ScriptedSensors()
    watch = GpuWatch(lambda: sensors)
    watch.watch_xids()  # nothing was read yet: nothing to wait for
    watch.tick(0)
    with caplog.at_level(logging.WARNING, "otel_straggler"):
        for xid in (79, 13, 13, -1):
            sensors.xids.put(xid)
        watch.watch_xids()
        assert watch._xid_thread is not None
        watch._xid_thread.join(30)
    assert watch.xids() == {79: 1, 13: 2}
    assert watch.is_gone
    assert {(metric.name, more["error.type"]) for metric, more, _ in watch.points()} == {
        ("hw.errors", "xid_79"),
        ("hw.errors", "xid_13"),
    }
    watch.close()
    assert sensors.is_closed


def test_in_a_forked_child_nothing_is_read() -> None:
    """DataLoader workers leave the GPU alone, and do not shut NVML down."""
    sensors = ScriptedSensors()
    watch = GpuWatch(lambda: sensors)
    watch.tick(0)
    child = os.fork()
    if child == 0:
        watch.tick(9 * S)
        watch.close()
        os._exit(len(sensors.asked) + 100 * sensors.is_closed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
