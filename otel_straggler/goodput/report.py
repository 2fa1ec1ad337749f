"""The account of a run as JSON types, for files, pages and other programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from otel_straggler.goodput.account import Account
from otel_straggler.goodput.checkpoint_formula import CheckpointGoodput
from otel_straggler.goodput.launches import disruptions
from otel_straggler.goodput.windows import rolling_goodput, timeline
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.model.observation import Floats
from otel_straggler.semconv import BADPUT, EXCLUDED, PRODUCTIVE

Json = dict[str, Any]
TIMELINE_BINS: Final = 240
_MIN_WINDOWS: Final = 2.0
"""A rolling window must fit so often into the run to say more than its total."""


def account_json(
    of: Account,
    *,
    run_id: str,
    group: str,
    windows_s: Sequence[float],
    checkpoints: CheckpointGoodput | None = None,
    launches: Sequence[LaunchEvent] = (),
) -> Json:
    """All of an account; times in seconds, those in ``time_ns`` exact. NaN is null.

    Args:
        windows_s: lengths of rolling windows; those that are longer than half of the run are left
            out.
        checkpoints: the second method, where an event log was read.
        launches: events of launchers, which name the reasons of disruptions.
    """
    wall_ns = of.wall_ns
    line = timeline(of, TIMELINE_BINS)
    return {
        "run_id": run_id,
        "group": group,
        "start_s": of.start_ns / 1e9,
        "end_s": of.end_ns / 1e9,
        "elapsed_s": of.elapsed_ns / 1e9,
        "wall_s": wall_ns / 1e9,
        "goodput": _number(of.goodput),
        "categories": {
            name: {
                "seconds": ns / 1e9,
                "share": ns / wall_ns if wall_ns and name != EXCLUDED else None,
                "meaning": _meaning(name),
            }
            for name, ns in zip(of.categories, of.run_ns.tolist(), strict=True)
        },
        "time_ns": dict(zip(of.categories, of.run_ns.tolist(), strict=True)),
        "recovery_s": of.recovery_ns / 1e9,
        "steps": {
            **{name: _number(value) for name, value in asdict(of.steps).items()},
            "slowdown": _number(of.steps.slowdown),
        },
        "replicas": {
            "stepping_part": _number(of.stepping_part),
            "available_part": _number(of.available_part),
        },
        "attempts": [at_ns / 1e9 for at_ns in of.starts_ns.tolist()],
        "disruptions": [
            {
                "attempt": each.attempt,
                "at_s": each.at_ns / 1e9,
                "reason": each.reason or None,
                "text": each.text or None,
                "recovery_s": each.recovery_ns / 1e9,
                "redone_s": each.redone_ns / 1e9,
            }
            for each in disruptions(of, launches)
        ],
        "ranks": _ranks(of),
        "rolling": [
            _rolling(of, window_s, line.edges_ns[1:])
            for window_s in windows_s
            if of.elapsed_ns >= _MIN_WINDOWS * window_s * 1e9
        ],
        "timeline": {
            "edges_s": [edge / 1e9 for edge in line.edges_ns.tolist()],
            "share": {
                name: _shares(row, line.time_ns.sum(axis=0))
                for name, row in zip(of.categories, line.time_ns, strict=True)
                if row.any()
            },
        },
        "checkpoints": None
        if checkpoints is None
        else {name: _number(value) for name, value in asdict(checkpoints).items()},
    }


def _ranks(of: Account) -> list[Json]:
    used = [code for code in range(len(of.categories)) if of.time_ns[:, code].any()]
    return [
        {
            "rank": rank,
            "goodput": _number(goodput),
            "time_ns": {of.categories[code]: int(row[code]) for code in used if row[code]},
        }
        for rank, goodput, row in zip(
            of.ranks.tolist(), of.goodput_of_ranks().tolist(), of.time_ns, strict=True
        )
    ]


def _rolling(of: Account, window_s: float, ends_ns: Any) -> Json:
    values = rolling_goodput(of, round(window_s * 1e9), ends_ns)
    return {
        "window_s": window_s,
        "end_s": [end / 1e9 for end in ends_ns.tolist()],
        "goodput": [_number(value) for value in values.tolist()],
    }


def _shares(row: Any, whole: Any) -> list[float]:
    shares: Floats = row / np.maximum(whole, 1)
    return [round(share, 5) for share in shares.tolist()]


def _meaning(name: str) -> str:
    if name == PRODUCTIVE:
        return "steps that count"
    if name == EXCLUDED:
        return "counts neither way"
    return BADPUT.get(name, "a category of your own")


def _number(value: float) -> float | int | None:
    return value if math.isfinite(value) else None
