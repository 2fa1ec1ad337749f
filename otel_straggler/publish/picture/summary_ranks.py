"""The ranks of a summary: where they are, what they said, and the states that they are in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

import numpy as np

from otel_straggler.model.observation import Floats
from otel_straggler.publish.picture.seen import Parallel, RankSigns, Seen
from otel_straggler.publish.picture.summary_checks import array_of, choice, require
from otel_straggler.score.hangs.detector import HangStatus
from otel_straggler.score.hangs.episodes import hang_value, read_hang
from otel_straggler.score.hangs.states import RANK_STATES, Blame, HangKind, RunState

Value = dict[str, Any]
_NOBODY: Final = -1
"""Of a rank that has no place in a dimension."""


def layout_value(seen: Seen) -> Value:
    """Of all ranks that any part knows: a column for each dimension."""
    told: dict[int, Parallel] = {}
    for part in (seen.table, seen.signs):
        if part is not None:
            told.update(zip(part.ranks.tolist(), part.parallels, strict=True))
    ranks = sorted(rank for rank, parallel in told.items() if parallel)
    dimensions = list(dict.fromkeys(name for rank in ranks for name, _ in told[rank]))
    columns = {
        name: np.array([dict(told[rank]).get(name, _NOBODY) for rank in ranks], np.int32)
        for name in dimensions
    }
    return {"ranks": np.array(ranks, np.int64), "dimensions": columns}


def read_layout(value: Mapping[str, Any]) -> dict[int, Parallel]:
    ranks = array_of(value["ranks"], np.int64, None).tolist()
    names = [require(name, str) for name in value["dimensions"]]
    columns = [array_of(value["dimensions"][name], np.int32, len(ranks)).tolist() for name in names]
    return {
        rank: tuple((name, place) for name, place in zip(names, row, strict=True) if place >= 0)
        for rank, row in zip(ranks, zip(*columns, strict=True), strict=columns != [])
    }


_TEXTS: Final = (
    "nodes", "roles", "devices", "models", "open_section", "gpu_tier", "gpu_reason", "outcomes",
)  # fmt: skip
_NO_TEXTS: Final[Value] = {"table": [], "codes": np.empty(0, np.int32)}
"""Of a summary that was written before it was kept."""
_AGES: Final = ("heartbeat_age_s", "progress_age_s")


def signs_value(signs: RankSigns) -> Value:
    dropped = enumerate(signs.dropped)
    return {
        "ranks": signs.ranks.astype(np.int64),
        "step": signs.step.astype(np.int64),
        **{name: np.asarray(getattr(signs, name), np.float64) for name in _AGES},
        "ended_age_s": signs.ended_age_s.astype(np.float64),
        **{name: _coded(getattr(signs, name)) for name in _TEXTS},
        "dropped": [[at, dict(counts)] for at, counts in dropped if counts],
    }


def read_signs(value: Mapping[str, Any], layout: Mapping[int, Parallel]) -> RankSigns:
    ranks = array_of(value["ranks"], np.int64, None)
    n_ranks = len(ranks)
    dropped: list[dict[str, int]] = [{} for _ in range(n_ranks)]
    for at, counts in value["dropped"]:
        dropped[at] = {require(reason, str): require(n, int) for reason, n in counts.items()}
    ages: dict[str, Any] = {name: array_of(value[name], np.float64, n_ranks) for name in _AGES}
    texts: dict[str, Any] = {
        name: _read_coded(value.get(name, _NO_TEXTS), n_ranks) for name in _TEXTS
    }
    return RankSigns(
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
    told = value.get("ended_age_s", np.empty(0))
    return array_of(told, np.float64, n_ranks if len(told) else 0)


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


def found_value(found: HangStatus) -> Value:
    blame = found.blame
    return {
        "state": found.state,
        "since_s": float(found.since_s),
        "hung_since_s": float(found.hung_since_s),
        "ranks": np.asarray(found.ranks, np.int64),
        "rank_states": np.asarray(found.rank_states, np.int32),
        "rank_since_s": np.asarray(found.rank_since_s, np.float64),
        "timeout_s": np.asarray(found.timeout_s, np.float64),
        "blame": None
        if blame is None
        else {
            "kind": blame.kind,
            "culprits": np.asarray(blame.culprits, np.bool_),
            "victims": np.asarray(blame.victims, np.bool_),
        },
        "before": [hang_value(hang) for hang in found.before],
        "before_left_out": found.before_left_out,
    }


def read_found(value: Mapping[str, Any]) -> HangStatus:
    ranks = array_of(value["ranks"], np.int64, None)
    n_ranks = len(ranks)
    states = array_of(value["rank_states"], np.int32, n_ranks)
    if n_ranks and not 0 <= states.min() <= states.max() < len(RANK_STATES):
        raise ValueError(f"states {states.min()} to {states.max()}")
    told = value["blame"]
    blame = told and Blame(
        choice(told["kind"], get_args(HangKind)),
        array_of(told["culprits"], np.bool_, n_ranks),
        array_of(told["victims"], np.bool_, n_ranks),
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
