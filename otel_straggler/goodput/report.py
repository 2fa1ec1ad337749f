"""The account of a run as JSON types, for files, pages and other programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from otel_straggler.goodput.account import Account
from otel_straggler.goodput.checkpoint_formula import CheckpointGoodput
from otel_straggler.goodput.launches import disruptions
from otel_straggler.goodput.live import GoodputView
from otel_straggler.goodput.windows import rolling_goodput, timeline
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.model.observation import Floats
from otel_straggler.semconv import BADPUT, CUSTOM_PREFIX, EXCLUDED, PRODUCTIVE

Json = dict[str, Any]
TIMELINE_BINS: Final = 240
_CAUSES: Final = {
    "stragglers": "slow ranks",
    "slow_steps": "slow steps",
    "checkpoint": "checkpoints",
    "checkpoint_load": "loading checkpoints",
    "hang": "waiting without progress",
    "restart": "restarts",
    "reinitialization": "restarts",
    "redone": "steps done again",
    "scheduling": "scheduling",
    "initialization": "starting up",
    "preparation": "starting up",
    "start_up": "starting up",
    "data": "waiting for data",
    "eval": "evaluation",
    "replica_down": "missing replicas",
    "scale_up": "waiting for replicas",
    "shutdown": "shutting down",
    "other": "time between steps",
}
"""What a loss is, in the sentence; some categories are one there."""
_MAX_CAUSES: Final = 3
_MIN_SHOWN_NS: Final = 1_000_000
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
                "meaning": meaning(name),
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


def goodput_json(view: GoodputView) -> Json:
    """Of a run that goes on, for ``/v1/run``; shares are of the wall time. NaN is null."""
    wall_ns = view.wall_ns
    badput = {name: ns for name, ns in view.time_ns.items() if name not in (PRODUCTIVE, EXCLUDED)}
    return {
        "goodput": _rounded(view.goodput),
        "sentence": goodput_sentence(view.time_ns),
        "start_s": round(view.start_ns / 1e9, 3),
        "end_s": round(view.end_ns / 1e9, 3),
        "productive_s": round(view.time_ns.get(PRODUCTIVE, 0) / 1e9, 3),
        "excluded_s": round(view.time_ns.get(EXCLUDED, 0) / 1e9, 3),
        "lost": [
            {"reason": name, "seconds": round(ns / 1e9, 3), "share": _rounded(ns / wall_ns)}
            for name, ns in sorted(badput.items(), key=lambda each: (-each[1], each[0]))
            if ns >= _MIN_SHOWN_NS and wall_ns
        ],
        "rolling": [
            {"window_s": length_s, "goodput": _rounded(goodput)}
            for length_s, goodput in view.rolling
        ],
        "attempts": view.attempts,
    }


def goodput_sentence(time_ns: Mapping[str, int]) -> str:
    """Time by category for people; empty without any that counts.

    >>> goodput_sentence({"productive": 930, "stragglers": 40, "checkpoint": 20, "restart": 10})
    'Goodput 93 %: 4 % lost to slow ranks, 2 % to checkpoints, 1 % to restarts.'
    >>> goodput_sentence({"productive": 1000})
    'Goodput 100 %.'
    """
    wall_ns = sum(time_ns.values()) - time_ns.get(EXCLUDED, 0)
    if not wall_ns:
        return ""
    lost: dict[str, int] = {}
    for name, ns in time_ns.items():
        if name not in (PRODUCTIVE, EXCLUDED):
            cause = _CAUSES.get(name, name.removeprefix(CUSTOM_PREFIX))
            lost[cause] = lost.get(cause, 0) + ns
    text = f"Goodput {_percent(time_ns.get(PRODUCTIVE, 0) / wall_ns)}"
    shares = sorted(((ns / wall_ns, cause) for cause, ns in lost.items()), reverse=True)
    shown = [each for each in shares if each[0] >= _SHOWN][:_MAX_CAUSES]
    parts = [f"{_percent(share)} lost to {cause}" for share, cause in shown[:1]]
    parts += [f"{_percent(share)} to {cause}" for share, cause in shown[1:]]
    return f"{text}: {', '.join(parts)}." if parts else f"{text}."


_SHOWN: Final = 0.005
"""A smaller loss is no percent."""


def _percent(share: float) -> str:
    """Never 100 % of what is not all."""
    percent = round(100 * share)
    return f"{percent if percent < 100 or share == 1.0 else 99} %"


def _rounded(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None


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


def meaning(name: str) -> str:
    """What a category of time is, in words."""
    if name == PRODUCTIVE:
        return "steps that count"
    if name == EXCLUDED:
        return "counts neither way"
    return BADPUT.get(name, "a category of your own")


def _number(value: float) -> float | int | None:
    return value if math.isfinite(value) else None
