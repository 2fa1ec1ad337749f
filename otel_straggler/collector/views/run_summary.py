"""Checks of what a history gives back: a part that is not what was written is an error."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from otel_straggler.collector.history.codec import read_verdict, verdict_text
from otel_straggler.collector.history.file import Summary
from otel_straggler.collector.views.world_view import Parallel, RankHeartbeats, WorldView
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.hangs.episodes import hang_value, read_hang
from otel_straggler.detect.hangs.states import RANK_STATES, Blame, HangKind, RunState
from otel_straggler.errors import InputError, describe
from otel_straggler.model.alert import Maintenance, Mode
from otel_straggler.model.observation import Floats
from otel_straggler.model.verdict import (
    ACTIONS,
    Decision,
    RankWaits,
    RunVerdicts,
    SectionCost,
    WorldSummary,
)
from otel_straggler.semconv import OUTCOMES


def array_of(value: Any, kind: Any, n_ranks: int | None) -> npt.NDArray[Any]:
    array = require(value, np.ndarray)
    if array.dtype != kind or array.ndim != 1 or n_ranks not in (None, len(array)):
        raise ValueError(f"an array of {array.dtype} {array.shape}; expected {n_ranks}")
    result: npt.NDArray[Any] = array
    return result


def require(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.100} where {kind.__name__} is expected")
    return value


def choice(value: Any, choices: Sequence[str] | Mapping[str, Any]) -> Any:
    if value not in choices:
        raise ValueError(f"{value!r:.100}; expected one of {', '.join(choices)}")
    return value


Value = dict[str, Any]
_NOBODY: Final = -1
"""Of a rank that has no place in a dimension."""


def layout_value(view: WorldView) -> Value:
    """Of all ranks that any part knows: a column for each dimension."""
    reported: dict[int, Parallel] = {}
    for part in (view.table, view.heartbeats):
        if part is not None:
            reported.update(zip(part.ranks.tolist(), part.parallels, strict=True))
    ranks = sorted(rank for rank, parallel in reported.items() if parallel)
    dimensions = list(dict.fromkeys(name for rank in ranks for name, _ in reported[rank]))
    columns = {
        name: np.array([dict(reported[rank]).get(name, _NOBODY) for rank in ranks], np.int32)
        for name in dimensions
    }
    return {"ranks": np.array(ranks, np.int64), "dimensions": columns}


def read_layout(value: Mapping[str, Any]) -> dict[int, Parallel]:
    ranks = array_of(value["ranks"], np.int64, None).tolist()
    names = [require(name, str) for name in value["dimensions"]]
    columns = [array_of(value["dimensions"][name], np.int32, len(ranks)).tolist() for name in names]
    return {
        rank: tuple((name, index) for name, index in zip(names, row, strict=True) if index >= 0)
        for rank, row in zip(ranks, zip(*columns, strict=True), strict=columns != [])
    }


_TEXTS: Final = (
    "nodes", "roles", "devices", "models", "open_section", "gpu_tier", "gpu_reason", "outcomes",
)  # fmt: skip
_NO_TEXTS: Final[Value] = {"table": [], "codes": np.empty(0, np.int32)}
"""Of a summary that was written before it was kept."""
_AGES: Final = ("heartbeat_age_s", "progress_age_s")


def heartbeats_value(heartbeats: RankHeartbeats) -> Value:
    dropped = enumerate(heartbeats.dropped)
    return {
        "ranks": heartbeats.ranks.astype(np.int64),
        "step": heartbeats.step.astype(np.int64),
        **{name: np.asarray(getattr(heartbeats, name), np.float64) for name in _AGES},
        "ended_age_s": heartbeats.ended_age_s.astype(np.float64),
        **{name: _coded(getattr(heartbeats, name)) for name in _TEXTS},
        "dropped": [[at, dict(counts)] for at, counts in dropped if counts],
    }


def read_heartbeats(value: Mapping[str, Any], layout: Mapping[int, Parallel]) -> RankHeartbeats:
    ranks = array_of(value["ranks"], np.int64, None)
    n_ranks = len(ranks)
    dropped: list[dict[str, int]] = [{} for _ in range(n_ranks)]
    for at, counts in value["dropped"]:
        dropped[at] = {require(reason, str): require(n, int) for reason, n in counts.items()}
    ages: dict[str, Any] = {name: array_of(value[name], np.float64, n_ranks) for name in _AGES}
    texts: dict[str, Any] = {
        name: _read_coded(value.get(name, _NO_TEXTS), n_ranks) for name in _TEXTS
    }
    return RankHeartbeats(
        ranks=ranks,
        parallels=[layout.get(rank, ()) for rank in ranks.tolist()],
        step=array_of(value["step"], np.int64, n_ranks),
        **ages,
        **texts,
        ended_age_s=_ended_ages(value, n_ranks),
        dropped=dropped,
    )


def _ended_ages(value: Mapping[str, Any], n_ranks: int) -> Floats:
    """Of no rank in a summary that was written before it was kept."""
    reported = value.get("ended_age_s", np.empty(0))
    return array_of(reported, np.float64, n_ranks if len(reported) else 0)


def _coded(texts: Sequence[str]) -> Value:
    """A table of the texts, and each one's place there; nothing where nothing was told."""
    table: dict[str, int] = {}
    codes = [table.setdefault(text, len(table)) for text in texts]
    return {"table": list(table), "codes": np.array(codes, np.int32)}


def _read_coded(value: Mapping[str, Any], n_ranks: int) -> list[str]:
    table = [require(text, str) for text in value["table"]]
    codes = value["codes"]
    codes = array_of(codes, np.int32, n_ranks if len(codes) else 0)
    if len(codes) and codes.min() < 0:
        raise ValueError(f"code {codes.min()}")
    return [table[code] for code in codes.tolist()]


# --- states --------------------------------------------------------------------------------------


def hang_status_value(result: HangStatus) -> Value:
    blame = result.blame
    return {
        "state": result.state,
        "since_s": float(result.since_s),
        "hung_since_s": float(result.hung_since_s),
        "ranks": np.asarray(result.ranks, np.int64),
        "rank_states": np.asarray(result.rank_states, np.int32),
        "rank_since_s": np.asarray(result.rank_since_s, np.float64),
        "timeout_s": np.asarray(result.timeout_s, np.float64),
        "blame": None
        if blame is None
        else {
            "kind": blame.kind,
            "culprits": np.asarray(blame.culprits, np.bool_),
            "victims": np.asarray(blame.victims, np.bool_),
        },
        "before": [hang_value(hang) for hang in result.before],
        "before_left_out": result.before_left_out,
    }


def read_hang_status(value: Mapping[str, Any]) -> HangStatus:
    ranks = array_of(value["ranks"], np.int64, None)
    n_ranks = len(ranks)
    states = array_of(value["rank_states"], np.int32, n_ranks)
    if n_ranks and not 0 <= states.min() <= states.max() < len(RANK_STATES):
        raise ValueError(f"states {states.min()} to {states.max()}")
    reported = value["blame"]
    blame = reported and Blame(
        choice(reported["kind"], get_args(HangKind)),
        array_of(reported["culprits"], np.bool_, n_ranks),
        array_of(reported["victims"], np.bool_, n_ranks),
    )
    return HangStatus(
        state=choice(value["state"], get_args(RunState)),
        since_s=float(value["since_s"]),
        hung_since_s=float(value["hung_since_s"]),
        ranks=ranks,
        rank_states=states,
        rank_since_s=array_of(value["rank_since_s"], np.float64, n_ranks),
        timeout_s=array_of(value["timeout_s"], np.float64, n_ranks),
        blame=blame or None,
        before=tuple(read_hang(hang) for hang in value.get("before", ())),
        before_left_out=int(value.get("before_left_out", 0)),
    )


_Kind = TypeVar("_Kind")
VERSION: Final = 1
MAX_VERDICTS: Final = 1_000
MAX_DECISIONS: Final = 1_000
_PLAIN: Final = (
    "run_id", "job", "group", "attempt", "now_s", "began_at_s", "received_at_s", "finished_at_s",
    "outcome", "world_size", "is_acknowledged", "mode",
)  # fmt: skip
_FIGURES: Final = (
    "slowdown", "waste", "m_w", "m_s", "resolvable_slowdown", "coverage", "gpu_seconds_lost",
    "step_s",
)  # fmt: skip
_WRONG: Final = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)


def summary_of(view: WorldView) -> Summary:
    """For :meth:`History.put`. ``view`` must not change afterwards. Cost: none before it is made;
    then O(ranks), 10 ms for 10,000."""
    return Summary(
        run_id=view.run_id, job=view.job, group=view.group, make=lambda: summary_value(view)
    )


def summary_value(view: WorldView) -> Value:
    """For a blob."""
    current = view.current[-MAX_VERDICTS:]
    subjects = {verdict.subject_id for verdict in current}
    decisions = [each for each in view.run_verdicts.decisions if _is_about(each, subjects)]
    return {
        "version": VERSION,
        **{name: getattr(view, name) for name in _PLAIN},
        "clock_s": view.clock_s,
        "layout": layout_value(view),
        "heartbeats": None if view.heartbeats is None else heartbeats_value(view.heartbeats),
        "hang": None if view.hang is None else hang_status_value(view.hang),
        "world": None if view.world is None else _world_value(view.world),
        "verdicts": [verdict_text(verdict) for verdict in current],
        "decisions": [dataclasses.asdict(each) for each in decisions[-MAX_DECISIONS:]],
        "silenced": sorted(
            view.run_verdicts.silenced & ({d.subject_id for d in decisions} | subjects)
        ),
        "alerts": list(view.alerts),
        "maintenance": [dataclasses.asdict(each) for each in view.maintenance],
    }


def read_summary(value: Any, *, where: str) -> WorldView:
    """What was seen, without a window (``table``), and of the changes of verdicts the newest of
    every subject. It is not live.

    Raises:
        InputError: it is not what :func:`summary_value` gives.
    """
    try:
        if value["version"] != VERSION:
            raise ValueError(f"version {value['version']!r}")
        return _view(value, where)
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


def _view(value: Mapping[str, Any], where: str) -> WorldView:
    plain = {name: value[name] for name in _PLAIN}
    for name in ("run_id", "job", "group"):
        require(plain[name], str)
    for name in ("attempt", "world_size"):
        require(plain[name], int)
    for name in ("began_at_s", "received_at_s", "finished_at_s"):
        plain[name] = None if plain[name] is None else float(plain[name])
    plain["now_s"] = float(plain["now_s"])
    plain["clock_s"] = float(value.get("clock_s", 0.0))  # an older collector did not keep it
    choice(plain["mode"], get_args(Mode))
    if plain["outcome"] is not None:
        choice(plain["outcome"], OUTCOMES)
    layout = read_layout(value["layout"])
    world = value["world"]
    return WorldView(
        **plain,
        is_live=False,
        groups=(plain["group"],),
        heartbeats=None
        if value["heartbeats"] is None
        else read_heartbeats(value["heartbeats"], layout),
        hang=None if value["hang"] is None else read_hang_status(value["hang"]),
        run_verdicts=RunVerdicts(
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
    for each, reported in zip(fields, line, strict=True):
        name = "None" if reported is None else type(reported).__name__
        if name not in str(each.type):
            raise TypeError(f"{each.name} {reported!r}")
    return kind(**{each.name: reported for each, reported in zip(fields, line, strict=True)})


def _read_decision(value: Mapping[str, Any]) -> Decision:
    choice(value["action"], ACTIONS)
    return Decision(**value)
