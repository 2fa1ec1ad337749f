"""The operators that a rank ran in some steps, by torch.profiler, and their JSON.

Untrusted where it is read: types, lengths and numbers are checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler.model.names import clean_name
from otel_straggler.setting import is_number

VERSION: Final = 1
MAX_OPERATORS: Final = 200
MAX_NAME: Final = 200
MAX_STEPS: Final = 1_000
MAX_REASON: Final = 300
TABLE_SUFFIX, STACKS_SUFFIX, FLOPS_SUFFIX = ".profiler_list.dat", ".stacks.txt", ".profiler_ds.txt"
NOT_TRACES: Final = (TABLE_SUFFIX, STACKS_SUFFIX, FLOPS_SUFFIX)
"""Ends of the files that ``profile()`` writes for people, next to its traces; whoever reads a
folder of traces passes them over."""
OUTSIDE: Final = "(outside of operators)"
"""The time of a step in which the thread of the loop ran no operator: Python, and waits."""
_LONGEST_S: Final = 1e7
_MAX_CALLS: Final = 2**53

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """One operator, summed over the steps of its table, without what it calls.

    Attributes:
        host_s, device_s: seconds on the CPU, and of the kernels that it launched.
    """

    name: str
    calls: int
    host_s: float
    device_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTable:
    """The costliest operators of one rank.

    Attributes:
        n_steps: steps that were recorded, at least 1; ``first_step``: the number of the first.
        operators: at most 200, the costliest first; ``left_out``: how many more there were.
    """

    rank: int
    first_step: int
    n_steps: int
    operators: tuple[OperatorTime, ...]
    left_out: int = 0

    @property
    def has_device(self) -> bool:
        """Whether any kernel was recorded."""
        return any(each.device_s > 0.0 for each in self.operators)


def costliest_operators(
    operators: Iterable[OperatorTime], *, rank: int, first_step: int, n_steps: int
) -> OperatorTable:
    """The table of what was recorded. Cost: O(operators log operators)."""
    ordered = sorted(operators, key=lambda each: -max(each.host_s, each.device_s))
    return OperatorTable(
        rank=rank,
        first_step=first_step,
        n_steps=n_steps,
        operators=tuple(ordered[:MAX_OPERATORS]),
        left_out=max(0, len(ordered) - MAX_OPERATORS),
    )


def operator_table_json(table: OperatorTable) -> Json:
    """Seconds are rounded to nanoseconds."""
    return {
        "version": VERSION,
        "first_step": table.first_step,
        "n_steps": table.n_steps,
        "operators": [
            [each.name[:MAX_NAME], each.calls, round(each.host_s, 9), round(each.device_s, 9)]
            for each in table.operators[:MAX_OPERATORS]
        ],
        "left_out": table.left_out,
    }


def read_operator_table(body: Any, rank: int) -> OperatorTable:
    """The table of ``rank``, from decoded JSON.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(body, dict) or body.get("version") != VERSION:
        raise ValueError(f"no operator table of version {VERSION}")
    rows = body.get("operators")
    if not isinstance(rows, list) or len(rows) > MAX_OPERATORS:
        raise ValueError(f"a list of up to {MAX_OPERATORS} operators is expected")
    return OperatorTable(
        rank=rank,
        first_step=_count(body.get("first_step"), 0, 2**63 - 1),
        n_steps=_count(body.get("n_steps"), 1, MAX_STEPS),
        operators=tuple(map(_operator, rows)),
        left_out=_count(body.get("left_out", 0), 0, _MAX_CALLS),
    )


def _operator(row: Any) -> OperatorTime:
    if not isinstance(row, list) or len(row) != 4 or not isinstance(row[0], str):
        raise ValueError("an operator is its name, calls, host and device seconds")
    name, calls, host_s, device_s = row
    return OperatorTime(
        name=clean_name(name, MAX_NAME),
        calls=_count(calls, 0, _MAX_CALLS),
        host_s=_seconds(host_s),
        device_s=_seconds(device_s),
    )


def _count(value: Any, lowest: int, highest: int) -> int:
    if type(value) is not int or not lowest <= value <= highest:
        raise ValueError(f"{str(value)[:20]} where a number from {lowest} is expected")
    return value


def _seconds(value: Any) -> float:
    if not is_number(value) or not 0.0 <= value <= _LONGEST_S or math.isnan(value):
        raise ValueError(f"{str(value)[:20]} where seconds are expected")
    return float(value)
