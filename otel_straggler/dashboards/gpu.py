"""The GPU of one rank: sensors as the rank or DCGM exporter reports them, and kernels.

DCGM exporter knows no ranks; its series are joined to a rank by the UUID of the GPU, which the rank
reports (``straggler_rank_info``).
"""

from __future__ import annotations

from typing import Final

from otel_straggler import semconv
from otel_straggler.dashboards.panels import (
    HEAT,
    NONE_IS_GOOD,
    OF_ONE_RUN,
    PART_IS_ODD,
    PLAIN,
    Panel,
    lines,
    rows,
)
from otel_straggler.dashboards.queries import OF_RANK, RANK, newest, rate, series
from otel_straggler.semconv import Metric

_GPU: Final = f"{RANK}, hw_id"
_PART: Final = f"{_GPU}, hw_sensor_location"
_KERNEL: Final = f"{RANK}, kernel"
_MAX_KERNELS: Final = 10
_NO_SENSORS: Final = "Neither the rank nor DCGM exporter reports its GPU."
_NO_KERNELS: Final = (
    "No kernels here: the rank has ended, times none (docs/recipes/gpu-timing.md), or the budget "
    "of series has folded them."
)
CLOCK, MEMORY_CLOCK = "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK"
POWER, HEAT_OF_GPU = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP"
HEAT_OF_MEMORY, XID = "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_XID_ERRORS"
BUSY, MEMORY_USED = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"


def sensors() -> list[Panel]:
    part = "{{hw_sensor_location}} {{group}}"
    return [
        lines(
            13,
            "Clocks",
            "A clock that fell when the scores did is the cause: see heat, power and throttling "
            "next to it. A low clock without them: it was capped, see nvidia-smi -q -d CLOCK.",
            "hertz",
            [
                (part, newest(semconv.GPU_CLOCK, _PART, OF_RANK)),
                ("sm, DCGM", f"1e6 * {from_dcgm(CLOCK)}"),
                ("memory, DCGM", f"1e6 * {from_dcgm(MEMORY_CLOCK)}"),
            ],
            empty=_NO_SENSORS,
        ),
        lines(
            14,
            "Power",
            "Far below its peers while it works: it waits, or it is throttled. At its limit all "
            "the time: that is normal under load; a lower limit than its peers is a setting.",
            "watt",
            [
                ("GPU {{group}}", newest(semconv.HW_POWER, _GPU, OF_RANK)),
                ("GPU, DCGM", from_dcgm(POWER)),
            ],
            empty=_NO_SENSORS,
        ),
        lines(
            15,
            "Temperature",
            "Above about 85 degrees GPUs begin to hold themselves back. One hot GPU: its cooler; "
            "all of a host: fans or air; all of a rack: the room.",
            "celsius",
            [
                (part, newest(semconv.HW_TEMPERATURE, _PART, OF_RANK)),
                ("gpu, DCGM", from_dcgm(HEAT_OF_GPU)),
                ("memory, DCGM", from_dcgm(HEAT_OF_MEMORY)),
            ],
            steps=HEAT,
            empty=_NO_SENSORS,
        ),
        lines(
            16,
            "Held back",
            "Share of time in which the GPU lowered its clocks, by reason. thermal: cool it. "
            "power: look at its limit. board or reliability: have the host looked at.",
            "percentunit",
            [("{{reason}} {{group}}", rate(semconv.GPU_THROTTLED, f"{_GPU}, reason", OF_RANK))],
            steps=PART_IS_ODD,
            empty="The rank does not report it; DCGM exporter counts violations of power and heat.",
        ),
        lines(
            17,
            "Busy",
            "Part of the time in which any kernel ran. Near 1 says little, waiting for others is "
            "busy too; gaps mean that the host does not keep up.",
            "percentunit",
            [
                ("GPU {{group}}", newest(semconv.HW_GPU_UTILIZATION, _GPU, OF_RANK)),
                ("GPU, DCGM", f"{from_dcgm(BUSY)} / 100"),
            ],
            empty=_NO_SENSORS,
        ),
        lines(
            18,
            "Memory",
            "In use, and what there is. Close to the limit, allocations are retried and steps "
            "become uneven: reserve less, or split the model further.",
            "bytes",
            [
                ("in use {{group}}", newest(semconv.HW_GPU_MEMORY, _GPU, OF_RANK)),
                ("limit {{group}}", newest(semconv.HW_GPU_MEMORY_LIMIT, _GPU, OF_RANK)),
                ("in use, DCGM", f"2 ^ 20 * {from_dcgm(MEMORY_USED)}"),
            ],
            empty=_NO_SENSORS,
        ),
        _faults(),
    ]


def _faults() -> Panel:
    kind = f"{_GPU}, error_type"
    return rows(
        19,
        "Faults of the GPU",
        "Since its driver was loaded. xid_79, xid_48, xid_94 and uncorrected errors: drain the "
        "host and see NVIDIA's list of Xid errors. Corrected ones alone need nothing.",
        [
            ("faults", "short", f"{newest(semconv.HW_ERRORS, kind, OF_RANK)} > 0", PLAIN),
            ("last XID, DCGM", "short", f"{from_dcgm(XID)} > 0", NONE_IS_GOOD),
        ],
        dropped=("rank", *OF_ONE_RUN),
        empty="No fault was reported.",
    )


def kernels() -> list[Panel]:
    spent = rate(semconv.KERNEL_TIME, _KERNEL, OF_RANK)
    ran = rate(semconv.KERNEL_RUNS, _KERNEL, OF_RANK)
    return [
        lines(
            20,
            "Kernels that take most",
            "Share of time in each of the 10 kernels that take most. Compare with a rank that is "
            "well: one kernel that grew is a shape or a version, all that grew is the GPU.",
            "percentunit",
            [("{{kernel}} {{group}}", f"topk({_MAX_KERNELS}, {spent})")],
            stacked=True,
            empty=_NO_KERNELS,
        ),
        lines(
            21,
            "Mean time of a kernel",
            "Of the same kernels. All longer than on other ranks: the GPU is slow. Those of NCCL "
            "only: the rank waits, look at who it waits for.",
            "s",
            [("{{kernel}} {{group}}", f"topk({_MAX_KERNELS}, {spent} / ({ran} > 0))")],
            empty=_NO_KERNELS,
        ),
    ]


def from_dcgm(name: str) -> str:
    """A gauge of DCGM exporter, of the GPU that the chosen rank names.

    >>> from_dcgm("DCGM_FI_DEV_SM_CLOCK")[:62]
    '(max by (hw_id) (label_replace(DCGM_FI_DEV_SM_CLOCK, "hw_id", '
    """
    named = f'label_replace({name}, "hw_id", "$1", "UUID", "(.+)")'
    return f"(max by (hw_id) ({named}) and on (hw_id) {_of_rank(semconv.RANK_INFO)})"


def _of_rank(info: Metric) -> str:
    uuid = 'hw_id!=""'
    return f"max by (hw_id) ({series(info, OF_RANK, uuid)})"
