"""The GPU of one rank: sensors as the rank or DCGM exporter reports them, and kernels.

DCGM exporter knows no ranks; its series are joined to a rank by the UUID of the GPU in
``straggler_rank_info``.
"""

from __future__ import annotations

from typing import Final

from otel_straggler import semconv
from otel_straggler.dashboards import panels as p
from otel_straggler.dashboards import queries as q

_GPU: Final = f"{q.RANK}, hw_id"
_PART: Final = f"{_GPU}, hw_sensor_location"
_KERNEL: Final = f"{q.RANK}, kernel"
_MAX_KERNELS: Final = 10
CLOCK, MEMORY_CLOCK = "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK"
POWER, HEAT_OF_GPU = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP"
HEAT_OF_MEMORY, XID = "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_XID_ERRORS"
BUSY, MEMORY_USED = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"


_TEXT: Final = p.texts(
    """
13 Clocks [hertz]. A clock that fell when the scores did is the cause: see heat, power and
throttling next to it. A low clock without them: it was capped, see nvidia-smi -q -d CLOCK.
Empty: Neither the rank nor DCGM exporter reports its GPU.

14 Power [watt]. Far below its peers while it works: it waits, or it is throttled. At its limit all
the time: that is normal under load; a lower limit than its peers is a setting.
Empty: Neither the rank nor DCGM exporter reports its GPU.

15 Temperature [celsius]. Above about 85 degrees GPUs begin to hold themselves back. One hot GPU:
its cooler; all of a host: fans or air; all of a rack: the room.
Empty: Neither the rank nor DCGM exporter reports its GPU.

16 Held back [percentunit]. Share of time in which the GPU lowered its clocks, by reason. thermal:
cool it. power: look at its limit. board or reliability: have the host looked at.
Empty: The rank does not report it; DCGM exporter counts violations of power and heat.

17 Busy [percentunit]. Part of the time in which any kernel ran. Near 1 says little, waiting for
others is busy too; gaps mean that the host does not keep up.
Empty: Neither the rank nor DCGM exporter reports its GPU.

18 Memory [bytes]. In use, and what there is. Close to the limit, allocations are retried and steps
become uneven: reserve less, or split the model further.
Empty: Neither the rank nor DCGM exporter reports its GPU.

19 Faults of the GPU. Since its driver was loaded. xid_79, xid_48, xid_94 and uncorrected errors:
drain the host and see NVIDIA's list of Xid errors. Corrected ones alone need nothing.
Empty: No fault was reported.

20 Kernels that take most [percentunit]. Share of time in each of the 10 kernels that take most.
Compare with a rank that is well: one kernel that grew is a shape or a version, all that grew is the
GPU.
Empty: No kernels here: the rank has ended, times none (docs/recipes/gpu-timing.md), or the budget
of series has folded them.

21 Mean time of a kernel [s]. Of the same kernels. All longer than on other ranks: the GPU is slow.
Those of NCCL only: the rank waits, look at who it waits for.
Empty: No kernels here: the rank has ended, times none (docs/recipes/gpu-timing.md), or the budget
of series has folded them.
"""
)


def sensors() -> list[p.Panel]:
    part = "{{hw_sensor_location}} {{group}}"
    return [
        p.lines(
            _TEXT[13],
            [
                (part, q.newest(semconv.GPU_CLOCK, _PART, q.OF_RANK)),
                ("sm, DCGM", f"1e6 * {from_dcgm(CLOCK)}"),
                ("memory, DCGM", f"1e6 * {from_dcgm(MEMORY_CLOCK)}"),
            ],
        ),
        p.lines(
            _TEXT[14],
            [
                ("GPU {{group}}", q.newest(semconv.HW_POWER, _GPU, q.OF_RANK)),
                ("GPU, DCGM", from_dcgm(POWER)),
            ],
        ),
        p.lines(
            _TEXT[15],
            [
                (part, q.newest(semconv.HW_TEMPERATURE, _PART, q.OF_RANK)),
                ("gpu, DCGM", from_dcgm(HEAT_OF_GPU)),
                ("memory, DCGM", from_dcgm(HEAT_OF_MEMORY)),
            ],
            steps=p.HEAT,
        ),
        p.lines(
            _TEXT[16],
            [("{{reason}} {{group}}", q.rate(semconv.GPU_THROTTLED, f"{_GPU}, reason", q.OF_RANK))],
            steps=p.PART_IS_ODD,
        ),
        p.lines(
            _TEXT[17],
            [
                ("GPU {{group}}", q.newest(semconv.HW_GPU_UTILIZATION, _GPU, q.OF_RANK)),
                ("GPU, DCGM", f"{from_dcgm(BUSY)} / 100"),
            ],
        ),
        p.lines(
            _TEXT[18],
            [
                ("in use {{group}}", q.newest(semconv.HW_GPU_MEMORY, _GPU, q.OF_RANK)),
                ("limit {{group}}", q.newest(semconv.HW_GPU_MEMORY_LIMIT, _GPU, q.OF_RANK)),
                ("in use, DCGM", f"2 ^ 20 * {from_dcgm(MEMORY_USED)}"),
            ],
        ),
        _faults(),
    ]


def _faults() -> p.Panel:
    kind = f"{_GPU}, error_type"
    return p.rows(
        _TEXT[19],
        [
            ("faults", "short", f"{q.newest(semconv.HW_ERRORS, kind, q.OF_RANK)} > 0", p.PLAIN),
            ("last XID, DCGM", "short", f"{from_dcgm(XID)} > 0", p.NONE_IS_GOOD),
        ],
        dropped=("rank", *p.OF_ONE_RUN),
        links=p.next_steps("StragglerGpuSlow", is_table=True, of_run=True),
    )


def kernels() -> list[p.Panel]:
    spent = q.rate(semconv.KERNEL_TIME, _KERNEL, q.OF_RANK)
    ran = q.rate(semconv.KERNEL_RUNS, _KERNEL, q.OF_RANK)
    return [
        p.lines(
            _TEXT[20], [("{{kernel}} {{group}}", f"topk({_MAX_KERNELS}, {spent})")], stacked=True
        ),
        p.lines(
            _TEXT[21], [("{{kernel}} {{group}}", f"topk({_MAX_KERNELS}, {spent} / ({ran} > 0))")]
        ),
    ]


def from_dcgm(name: str) -> str:
    """A gauge of DCGM exporter, of the GPU of the chosen rank.

    >>> from_dcgm("DCGM_FI_DEV_SM_CLOCK")[:62]
    '(max by (hw_id) (label_replace(DCGM_FI_DEV_SM_CLOCK, "hw_id", '
    """
    named = f'label_replace({name}, "hw_id", "$1", "UUID", "(.+)")'
    uuid = 'hw_id!=""'
    of_rank = f"max by (hw_id) ({q.series(semconv.RANK_INFO, q.OF_RANK, uuid)})"
    return f"(max by (hw_id) ({named}) and on (hw_id) {of_rank})"
