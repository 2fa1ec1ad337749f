"""What sensors say about a verdict, in sentences with the numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from otel_straggler.detect.verdicts.hardware import (
    HardwareReading,
    hardware_text,
    with_hardware,
)
from otel_straggler.model.verdict import RunVerdicts, Verdict

SLOW = Verdict(
    run_id="r", subject_id="x", scope="rank", rank=9, node="n1", state="confirmed",
    cause="slow_gpu", slowdown=1.4, on_gpu=True, sentence="Rank 9 is slow.",
)  # fmt: skip


def world(**changed: Any) -> dict[int, HardwareReading]:
    """Two hosts of eight ranks; rank 9 differs, and rank 8 reports its host."""
    readings = {
        rank: HardwareReading(
            node=f"n{rank // 8}", sm_clock_hz=1.98e9, utilization=0.9, pcie_lanes=16
        )
        for rank in range(16)
    }
    for rank in (0, 8):
        readings[rank] = replace(
            readings[rank], load_per_cpu=0.4, memory_pressure=0.0, disk_busy=0.1
        )
    of_host = {"load_per_cpu", "memory_pressure", "disk_busy"}
    own = {name: value for name, value in changed.items() if name not in of_host}
    hosts = {name: value for name, value in changed.items() if name in of_host}
    readings[9] = replace(readings[9], **own)
    readings[8] = replace(readings[8], **hosts)
    return readings


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"sm_clock_hz": 1.41e9},
            "Its GPU runs at 1,410 MHz, those of its peers at 1,980 MHz.",
        ),
        (
            {"sm_clock_hz": 1.41e9, "throttled": {"thermal": 0.4, "power": 0.6}},
            ("Its GPU runs at 1,410 MHz, those of its peers at 1,980 MHz; it is throttled for "
            "power."),
        ),
        ({"throttled": {"thermal": 0.4}}, ("Its GPU is throttled for heat, those of its peers are "
         "not.")),
        ({}, "Its GPU runs at 1,980 MHz like those of its peers, so its clock is not the cause."),
        (
            {"sm_clock_hz": 1.95e9, "errors": {"xid_79": 1, "ecc_corrected": 5}},
            ("Its GPU has reported XID 79. Its GPU runs at 1,950 MHz like those of its peers, so "
            "its clock is not the cause."),
        ),
        (
            {"sm_clock_hz": float("nan"), "errors": {"ecc_uncorrected": 3}},
            "Its GPU has 3 uncorrected memory errors, those of its peers none.",
        ),
        (
            {"sm_clock_hz": float("nan"), "pcie_lanes": 8},
            "Its PCIe link has 8 lanes, those of its peers 16.",
        ),
        (
            {"sm_clock_hz": float("nan"), "memory_pressure": 0.34},
            "Tasks on its host wait for memory 34 % of the time (0 % on the other hosts).",
        ),
        (
            {"sm_clock_hz": float("nan"), "load_per_cpu": 3.0},
            "The load of its host is 3.0 per CPU (0.4 on the other hosts).",
        ),
        (
            {"sm_clock_hz": float("nan"), "disk_busy": 0.97},
            "The busiest disk of its host works 97 % of the time (10 % on the other hosts).",
        ),
    ],
)  # fmt: skip
def test_the_subject_is_compared_with_its_peers(changed: dict[str, Any], expected: str) -> None:
    assert hardware_text(SLOW, world(**changed)) == expected


def test_a_clock_says_nothing_against_another_cause() -> None:
    """A rank that is slow in data loading has the clock of its peers."""
    assert hardware_text(replace(SLOW, cause="slow_host"), world()) == ""


def test_the_clock_of_an_idle_gpu_says_nothing_against_it() -> None:
    """As before the first step."""
    assert hardware_text(SLOW, world(utilization=0.0)) == ""


def test_a_host_is_compared_with_the_other_hosts() -> None:
    """The lowest clock of its GPUs."""
    host = replace(SLOW, scope="host", rank=None)
    text = hardware_text(host, world(sm_clock_hz=1.2e9))
    assert text == "Its GPU runs at 1,200 MHz, those of its peers at 1,980 MHz."


def test_without_peers_or_numbers_nothing_is_said() -> None:
    alone = {9: world(sm_clock_hz=1.0e9)[9]}
    assert hardware_text(SLOW, alone) == hardware_text(SLOW, {}) == ""
    assert hardware_text(SLOW, {rank: HardwareReading() for rank in range(16)}) == ""


def test_only_the_newest_sentence_about_a_subject_is_added_to() -> None:
    """And of nobody who has recovered."""
    well = replace(SLOW, subject_id="y", state="recovered")
    changes = (replace(SLOW, state="suspect"), SLOW, well)
    explained = with_hardware(RunVerdicts(changes=changes), {"": world(sm_clock_hz=1.41e9)})
    assert explained.changes[0] is changes[0]
    assert explained.changes[1].sentence == (
        "Rank 9 is slow. Its GPU runs at 1,410 MHz, those of its peers at 1,980 MHz."
    )
    assert explained.changes[2] is well
