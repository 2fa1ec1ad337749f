"""What is seen of a world as a value for the history, and back.

Windows and changes of verdicts are in the history anyway; kept here is what the picture needs
beside them: who the ranks are and what they last said, states, figures of the run, ledger, waits,
heat, alerts, decisions, how it ended.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, get_args

import numpy as np

from otel_straggler.errors import InputError, describe
from otel_straggler.model.alert import Maintenance, Mode
from otel_straggler.model.verdict import (
    ACTIONS,
    Decision,
    RankWaits,
    RunVerdicts,
    SectionCost,
    WorldSummary,
)
from otel_straggler.publish.history import Summary
from otel_straggler.publish.history.codec import read_verdict, verdict_text
from otel_straggler.publish.picture.seen import Parallel, Seen
from otel_straggler.publish.picture.summary_checks import array_of, choice, require
from otel_straggler.publish.picture.summary_ranks import (
    found_value,
    layout_value,
    read_found,
    read_layout,
    read_signs,
    signs_value,
)
from otel_straggler.semconv import OUTCOMES

Value = dict[str, Any]
_Kind = TypeVar("_Kind")
VERSION: Final = 1
MOST_VERDICTS: Final = 1_000
MOST_DECISIONS: Final = 1_000
_PLAIN: Final = (
    "run_id", "job", "group", "attempt", "now_s", "began_at_s", "heard_at_s", "finished_at_s",
    "outcome", "world_size", "is_acknowledged", "mode",
)  # fmt: skip
_FIGURES: Final = (
    "slowdown", "waste", "m_w", "m_s", "resolvable_slowdown", "coverage", "gpu_seconds_lost",
    "step_s",
)  # fmt: skip
_WRONG: Final = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)


def summary_of(seen: Seen) -> Summary:
    """For :meth:`History.put`. ``seen`` must not change afterwards. Cost: none before it is made;
    then O(ranks), 10 ms for 10,000."""
    return Summary(
        run_id=seen.run_id, job=seen.job, group=seen.group, make=lambda: summary_value(seen)
    )


def summary_value(seen: Seen) -> Value:
    """For a blob."""
    current = seen.current[-MOST_VERDICTS:]
    subjects = {verdict.subject_id for verdict in current}
    decisions = [each for each in seen.judged.decisions if _is_about(each, subjects)]
    return {
        "version": VERSION,
        **{name: getattr(seen, name) for name in _PLAIN},
        "clock_s": seen.clock_s,
        "layout": layout_value(seen),
        "signs": None if seen.signs is None else signs_value(seen.signs),
        "found": None if seen.found is None else found_value(seen.found),
        "world": None if seen.world is None else _world_value(seen.world),
        "verdicts": [verdict_text(verdict) for verdict in current],
        "decisions": [dataclasses.asdict(each) for each in decisions[-MOST_DECISIONS:]],
        "silenced": sorted(seen.judged.silenced & ({d.subject_id for d in decisions} | subjects)),
        "alerts": list(seen.alerts),
        "maintenance": [dataclasses.asdict(each) for each in seen.maintenance],
    }


def read_summary(value: Any, *, where: str) -> Seen:
    """What was seen, without a window (``table``), and of the changes of verdicts the newest of
    every subject. It is not live.

    Raises:
        InputError: it is not what :func:`summary_value` gives.
    """
    try:
        if value["version"] != VERSION:
            raise ValueError(f"version {value['version']!r}")
        return _seen(value, where)
    except (*_WRONG, InputError) as error:
        raise InputError(
            describe(
                where=where,
                value=f"{type(error).__name__}: {error}",
                expected="the picture of a run",
                remedy="It was written by another otel-straggler; it is left out.",
            )
        ) from None


def layout_of(value: Any) -> dict[int, Parallel]:
    """The place of each rank in every dimension, from what :func:`read_summary` has taken."""
    return read_layout(value["layout"])


def _is_about(decision: Decision, subjects: set[str]) -> bool:
    return decision.subject_id in subjects or decision.subject_id.startswith("hang:")


def _seen(value: Mapping[str, Any], where: str) -> Seen:
    plain = {name: value[name] for name in _PLAIN}
    for name in ("run_id", "job", "group"):
        require(plain[name], str)
    for name in ("attempt", "world_size"):
        require(plain[name], int)
    for name in ("began_at_s", "heard_at_s", "finished_at_s"):
        plain[name] = None if plain[name] is None else float(plain[name])
    plain["now_s"] = float(plain["now_s"])
    plain["clock_s"] = float(value.get("clock_s", 0.0))  # an older collector did not keep it
    choice(plain["mode"], get_args(Mode))
    if plain["outcome"] is not None:
        choice(plain["outcome"], OUTCOMES)
    layout = read_layout(value["layout"])
    world = value["world"]
    return Seen(
        **plain,
        is_live=False,
        groups=(plain["group"],),
        signs=None if value["signs"] is None else read_signs(value["signs"], layout),
        found=None if value["found"] is None else read_found(value["found"]),
        judged=RunVerdicts(
            changes=tuple(read_verdict(text, where=where) for text in value["verdicts"]),
            worlds=() if world is None else (_read_world(world, plain),),
            decisions=tuple(_read_decision(each) for each in value["decisions"]),
            silenced=frozenset(map(str, value["silenced"])),
        ),
        alerts=[require(each, dict) for each in value["alerts"]],
        maintenance=[Maintenance(**each) for each in value["maintenance"]],
    )


# --- what layer 2 says ---------------------------------------------------------------------------


def _world_value(world: WorldSummary) -> Value:
    heat = np.array(world.heat, np.float64).reshape(-1, 3)
    return {
        "attempt": world.attempt,
        "cause": world.cause,
        "on_gpu": world.on_gpu,
        "waits_inside": world.waits_inside,
        **{name: float(getattr(world, name)) for name in _FIGURES},
        "heat_at": heat[:, :2].astype(np.int32),
        "heat": heat[:, 2].copy(),
        "ledger": [list(dataclasses.astuple(line)) for line in world.ledger],
        "waits": [list(dataclasses.astuple(line)) for line in world.waits],
    }


def _read_world(value: Mapping[str, Any], plain: Mapping[str, Any]) -> WorldSummary:
    heat = array_of(value["heat"], np.float64, None).tolist()
    at = value["heat_at"]
    if at.shape != (len(heat), 2) or at.dtype != np.int32:
        raise ValueError(f"places of {at.shape} for {len(heat)} workers")
    return WorldSummary(
        run_id=plain["run_id"],
        group=plain["group"],
        attempt=require(value["attempt"], int),
        cause=require(value["cause"], str),
        on_gpu=require(value.get("on_gpu", False), bool),  # not told by an older collector
        waits_inside=require(value.get("waits_inside", ""), str),
        **{name: float(value[name]) for name in _FIGURES},
        heat=tuple((s, d, slow) for (s, d), slow in zip(at.tolist(), heat, strict=True)),
        ledger=tuple(_read_line(SectionCost, line) for line in value["ledger"]),
        waits=tuple(_read_line(RankWaits, line) for line in value["waits"]),
    )


def _read_line(kind: Callable[..., _Kind], line: Sequence[Any]) -> _Kind:
    """Fields in the order of their class, of the types that are told there."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    if len(line) != len(fields):
        raise ValueError(f"{len(line)} fields; expected {len(fields)}")
    for each, told in zip(fields, line, strict=True):
        name = "None" if told is None else type(told).__name__
        if name not in str(each.type):
            raise TypeError(f"{each.name} {told!r}")
    return kind(**{each.name: told for each, told in zip(fields, line, strict=True)})


def _read_decision(value: Mapping[str, Any]) -> Decision:
    choice(value["action"], ACTIONS)
    return Decision(**value)
