"""The summary of a world in a history: its encoding, and checked decoding."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from otel_straggler.collector.history.codec import read_verdict, unreadable, verdict_text
from otel_straggler.collector.views.numbers import coded
from otel_straggler.collector.views.world_view import Parallel, RankHeartbeats, WorldView
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.hangs.episodes import hang_value, read_hang
from otel_straggler.detect.hangs.states import RANK_STATES, Blame, HangKind, RunState
from otel_straggler.errors import InputError
from otel_straggler.model.alert import Maintenance, Mode
from otel_straggler.model.verdict import (
    ACTIONS,
    Decision,
    RankWaits,
    RunVerdicts,
    SectionCost,
    WorldSummary,
)
from otel_straggler.semconv import OUTCOMES


def _array(value: Any, kind: Any, n_ranks: int | None) -> npt.NDArray[Any]:
    array = _require(value, np.ndarray)
    if array.dtype != kind or array.ndim != 1 or n_ranks not in (None, len(array)):
        raise ValueError(f"an array of {array.dtype} {array.shape}; expected {n_ranks}")
    result: npt.NDArray[Any] = array
    return result


def _require(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.100} where {kind.__name__} is expected")
    return value


def _choice(value: Any, choices: Sequence[str] | Mapping[str, Any]) -> Any:
    if value not in choices:
        raise ValueError(f"{value!r:.100}; expected one of {', '.join(choices)}")
    return value


Value = dict[str, Any]
_NOT_IN: Final = -1
"""Place of a rank outside a dimension."""


def _layout_value(view: WorldView) -> Value:
    """A column for each dimension, of all ranks of any part."""
    reported: dict[int, Parallel] = {}
    for part in (view.table, view.heartbeats):
        if part is not None:
            reported.update(zip(part.ranks.tolist(), part.parallels, strict=True))
    ranks = sorted(rank for rank, parallel in reported.items() if parallel)
    dimensions = list(dict.fromkeys(name for rank in ranks for name, _ in reported[rank]))
    columns = {
        name: np.array([dict(reported[rank]).get(name, _NOT_IN) for rank in ranks], np.int32)
        for name in dimensions
    }
    return {"ranks": np.array(ranks, np.int64), "dimensions": columns}


def _read_layout(value: Mapping[str, Any]) -> dict[int, Parallel]:
    ranks = _array(value["ranks"], np.int64, None).tolist()
    names = [_require(name, str) for name in value["dimensions"]]
    columns = [_array(value["dimensions"][name], np.int32, len(ranks)).tolist() for name in names]
    return {
        rank: tuple((name, index) for name, index in zip(names, row, strict=True) if index >= 0)
        for rank, row in zip(ranks, zip(*columns, strict=True), strict=columns != [])
    }


_TEXTS: Final = (
    "nodes", "roles", "devices", "models", "open_section", "gpu_tier", "gpu_reason", "outcomes",
)  # fmt: skip
_HEARTBEATS: Final[dict[str, type]] = {
    "ranks": np.int64,
    "step": np.int64,
    "heartbeat_age_s": np.float64,
    "progress_age_s": np.float64,
    "ended_age_s": np.float64,
}
_HANG: Final[dict[str, type]] = {
    "ranks": np.int64,
    "rank_states": np.int32,
    "rank_since_s": np.float64,
    "timeout_s": np.float64,
}


def _arrays_value(part: RankHeartbeats | HangStatus, dtypes: Mapping[str, type]) -> Value:
    return {name: np.asarray(getattr(part, name), dtype) for name, dtype in dtypes.items()}


def _read_arrays(value: Mapping[str, Any], dtypes: Mapping[str, type]) -> Value:
    n_ranks = len(_require(value["ranks"], np.ndarray))
    return {name: _array(value[name], dtype, n_ranks) for name, dtype in dtypes.items()}


def _heartbeats_value(heartbeats: RankHeartbeats) -> Value:
    return {
        **_arrays_value(heartbeats, _HEARTBEATS),
        **{name: _coded(getattr(heartbeats, name)) for name in _TEXTS},
        "dropped": [[at, dict(each)] for at, each in enumerate(heartbeats.dropped) if each],
    }


def _read_heartbeats(value: Mapping[str, Any], layout: Mapping[int, Parallel]) -> RankHeartbeats:
    arrays = _read_arrays(value, _HEARTBEATS)
    ranks: list[int] = arrays["ranks"].tolist()
    dropped: list[dict[str, int]] = [{} for _ in ranks]
    for at, counts in value["dropped"]:
        dropped[at] = {_require(reason, str): _require(n, int) for reason, n in counts.items()}
    texts: Value = {name: _read_coded(value[name], len(ranks)) for name in _TEXTS}
    parallels = [layout.get(rank, ()) for rank in ranks]
    return RankHeartbeats(**arrays, **texts, parallels=parallels, dropped=dropped)


def _coded(texts: Sequence[str]) -> Value:
    table, codes = coded(texts)
    return {"table": table, "codes": codes.astype(np.int32)}


def _read_coded(value: Mapping[str, Any], n_ranks: int) -> list[str]:
    table = [_require(text, str) for text in value["table"]]
    codes = _array(value["codes"], np.int32, n_ranks)
    if n_ranks and codes.min() < 0:
        raise ValueError(f"code {codes.min()}")
    return [table[code] for code in codes.tolist()]


def _hang_value(hang: HangStatus) -> Value:
    blame = hang.blame
    return {
        "state": hang.state,
        "since_s": float(hang.since_s),
        "hung_since_s": float(hang.hung_since_s),
        **_arrays_value(hang, _HANG),
        "blame": blame and [blame.kind, blame.culprits, blame.victims],
        "before": [hang_value(each) for each in hang.before],
        "before_left_out": hang.before_left_out,
    }


def _read_hang(value: Mapping[str, Any]) -> HangStatus:
    arrays = _read_arrays(value, _HANG)
    states = arrays["rank_states"]
    if len(states) and not 0 <= states.min() <= states.max() < len(RANK_STATES):
        raise ValueError(f"states {states.min()} to {states.max()}")
    blame = None
    if value["blame"] is not None:
        kind, *masks = value["blame"]
        culprits, victims = (_array(mask, np.bool_, len(states)) for mask in masks)
        blame = Blame(_choice(kind, get_args(HangKind)), culprits, victims)
    return HangStatus(
        state=_choice(value["state"], get_args(RunState)),
        since_s=float(value["since_s"]),
        hung_since_s=float(value["hung_since_s"]),
        **arrays,
        blame=blame,
        before=tuple(read_hang(hang) for hang in value["before"]),
        before_left_out=int(value["before_left_out"]),
    )


_Kind = TypeVar("_Kind")
_VERSION: Final = 2
_MAX_VERDICTS: Final = 1_000
_MAX_DECISIONS: Final = 1_000
_PLAIN: Final = (
    "run_id", "job", "group", "attempt", "now_s", "began_at_s", "received_at_s", "finished_at_s",
    "outcome", "world_size", "is_acknowledged", "mode", "clock_s",
)  # fmt: skip
_FIGURES: Final = (
    "slowdown", "waste", "m_w", "m_s", "resolvable_slowdown", "coverage", "gpu_seconds_lost",
    "step_s",
)  # fmt: skip
_WRONG: Final = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)


def summary_value(view: WorldView) -> Value:
    """Encode for a blob. Cost: O(ranks), 10 ms for 10,000."""
    current = view.current[-_MAX_VERDICTS:]
    subjects = {verdict.subject_id for verdict in current}
    decisions = [each for each in view.run_verdicts.decisions if _is_about(each, subjects)]
    return {
        "version": _VERSION,
        **{name: getattr(view, name) for name in _PLAIN},
        "layout": _layout_value(view),
        "heartbeats": view.heartbeats and _heartbeats_value(view.heartbeats),
        "hang": view.hang and _hang_value(view.hang),
        "world": view.world and _world_value(view.world),
        "verdicts": [verdict_text(verdict) for verdict in current],
        "decisions": [dataclasses.asdict(each) for each in decisions[-_MAX_DECISIONS:]],
        "silenced": sorted(
            view.run_verdicts.silenced & ({d.subject_id for d in decisions} | subjects)
        ),
        "alerts": list(view.alerts),
        "maintenance": [dataclasses.asdict(each) for each in view.maintenance],
    }


def read_summary(value: Any, *, where: str) -> WorldView:
    """Decode the result of :func:`summary_value`: a view that is not live, without its window
    (``table``), and with only the newest verdict of every subject.

    Raises:
        InputError: it is another value.
    """
    try:
        if value["version"] != _VERSION:
            raise ValueError(f"version {value['version']!r}")
        return _view(value, where)
    except (*_WRONG, InputError) as error:
        value_text = f"{type(error).__name__}: {error}"
        remedy = "Another version of otel-straggler wrote it; it is skipped."
        raise unreadable(where, value_text, "the summary of a run", remedy) from None


def layout_of(value: Any) -> dict[int, Parallel]:
    """The place of each rank in every dimension, from a value that :func:`read_summary` accepts."""
    return _read_layout(value["layout"])


def _is_about(decision: Decision, subjects: set[str]) -> bool:
    return decision.subject_id in subjects or decision.subject_id.startswith("hang:")


def _view(value: Mapping[str, Any], where: str) -> WorldView:
    plain = {name: value[name] for name in _PLAIN}
    for name in ("run_id", "job", "group"):
        _require(plain[name], str)
    for name in ("attempt", "world_size"):
        _require(plain[name], int)
    for name in ("began_at_s", "received_at_s", "finished_at_s"):
        plain[name] = None if plain[name] is None else float(plain[name])
    for name in ("now_s", "clock_s"):
        plain[name] = float(plain[name])
    _choice(plain["mode"], get_args(Mode))
    if plain["outcome"] is not None:
        _choice(plain["outcome"], OUTCOMES)
    layout = _read_layout(value["layout"])
    world, heartbeats, hang = value["world"], value["heartbeats"], value["hang"]
    return WorldView(
        **plain,
        is_live=False,
        groups=(plain["group"],),
        heartbeats=None if heartbeats is None else _read_heartbeats(heartbeats, layout),
        hang=None if hang is None else _read_hang(hang),
        run_verdicts=RunVerdicts(
            changes=tuple(read_verdict(text, where=where) for text in value["verdicts"]),
            worlds=() if world is None else (_read_world(world, plain),),
            decisions=tuple(_read_decision(each) for each in value["decisions"]),
            silenced=frozenset(map(str, value["silenced"])),
        ),
        alerts=[_require(each, dict) for each in value["alerts"]],
        maintenance=[Maintenance(**each) for each in value["maintenance"]],
    )


# --- verdicts ------------------------------------------------------------------------------------


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
    heat = _array(value["heat"], np.float64, None).tolist()
    at = value["heat_at"]
    if at.shape != (len(heat), 2) or at.dtype != np.int32:
        raise ValueError(f"places of {at.shape} for {len(heat)} workers")
    return WorldSummary(
        run_id=plain["run_id"],
        group=plain["group"],
        attempt=_require(value["attempt"], int),
        cause=_require(value["cause"], str),
        on_gpu=_require(value["on_gpu"], bool),
        waits_inside=_require(value["waits_inside"], str),
        **{name: float(value[name]) for name in _FIGURES},
        heat=tuple((s, d, slow) for (s, d), slow in zip(at.tolist(), heat, strict=True)),
        ledger=tuple(_read_line(SectionCost, line) for line in value["ledger"]),
        waits=tuple(_read_line(RankWaits, line) for line in value["waits"]),
    )


def _read_line(kind: Callable[..., _Kind], line: Sequence[Any]) -> _Kind:
    """Check the fields, in the order of their class, against their annotations."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    if len(line) != len(fields):
        raise ValueError(f"{len(line)} fields; expected {len(fields)}")
    for each, reported in zip(fields, line, strict=True):
        name = "None" if reported is None else type(reported).__name__
        if name not in str(each.type):
            raise TypeError(f"{each.name} {reported!r}")
    return kind(**{each.name: reported for each, reported in zip(fields, line, strict=True)})


def _read_decision(value: Mapping[str, Any]) -> Decision:
    _choice(value["action"], ACTIONS)
    return Decision(**value)
