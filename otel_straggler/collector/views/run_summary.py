"""The summary of a world in a history: its encoding, and checked decoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

import numpy as np

from otel_straggler.collector.views.world_view import Parallel, RankHeartbeats, WorldView
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.hangs.states import RANK_STATES
from otel_straggler.errors import InputError
from otel_straggler.model.decoding import plain, read_as
from otel_straggler.model.verdict import Decision, RunVerdicts

Value = dict[str, Any]
_VERSION: Final = 3
_MAX_VERDICTS: Final = 1_000
_MAX_DECISIONS: Final = 1_000
_WRONG: Final = (KeyError, TypeError, ValueError, AttributeError)


def summary_value(view: WorldView) -> Value:
    """Encode for a blob. Cost: O(ranks)."""
    heartbeats = view.heartbeats and replace(view.heartbeats, parallels=())
    summarized = replace(
        view,
        is_live=False,
        groups=(view.group,),
        table=None,
        awaited=None,
        heartbeats=heartbeats,
        run_verdicts=_newest_verdicts(view),
    )
    return {**plain(summarized), "version": _VERSION, "layout": _layout(view)}


def read_summary(value: Any, *, where: str) -> WorldView:
    """Decode the result of :func:`summary_value`: a view that is not live, without its window
    (``table``), and with only the newest verdict of every subject.

    Raises:
        InputError: it is another value.
    """
    try:
        if value["version"] != _VERSION:
            raise ValueError(f"version {value['version']!r}")
        return _view(value)
    except _WRONG as error:
        value_text = f"{type(error).__name__}: {error}"
        remedy = "Another version of otel-straggler wrote it; it is skipped."
        raise InputError.of(where, value_text, "the summary of a run", remedy) from None


def layout_of(value: Any) -> dict[int, Parallel]:
    """The place of each rank in every dimension, from a value that :func:`read_summary` accepts."""
    return dict(read_as(list[tuple[int, Parallel]], value["layout"]))


def _newest_verdicts(view: WorldView) -> RunVerdicts:
    """Those of this world, and what people decided about them."""
    current = view.current[-_MAX_VERDICTS:]
    subjects = {verdict.subject_id for verdict in current}
    decisions = [each for each in view.run_verdicts.decisions if _is_about(each, subjects)]
    return RunVerdicts(
        changes=current,
        worlds=() if view.world is None else (view.world,),
        decisions=tuple(decisions[-_MAX_DECISIONS:]),
        silenced=view.run_verdicts.silenced & ({d.subject_id for d in decisions} | subjects),
    )


def _is_about(decision: Decision, subjects: set[str]) -> bool:
    return decision.subject_id in subjects or decision.subject_id.startswith("hang:")


def _layout(view: WorldView) -> list[tuple[int, Parallel]]:
    """Of all ranks of any part that have a place."""
    layout: dict[int, Parallel] = {}
    for part in (view.table, view.heartbeats):
        if part is not None:
            layout.update(zip(part.ranks.tolist(), part.parallels, strict=True))
    return [(rank, layout[rank]) for rank in sorted(layout) if layout[rank]]


def _view(value: Mapping[str, Any]) -> WorldView:
    view: WorldView = read_as(WorldView, value)
    layout, heartbeats, hang = layout_of(value), view.heartbeats, view.hang
    if heartbeats is not None:
        parallels = [layout.get(rank, ()) for rank in heartbeats.ranks.tolist()]
        heartbeats = replace(heartbeats, parallels=parallels)
        _check_lengths(heartbeats)
    if hang is not None:
        _check_lengths(hang)
        states = hang.rank_states
        masks = [] if hang.blame is None else [hang.blame.culprits, hang.blame.victims]
        is_known = np.isin(states, range(len(RANK_STATES))).all()
        if not is_known or any(mask.shape != states.shape for mask in masks):
            raise ValueError(f"states {set(states.tolist())}; blame {masks}")
    return replace(view, heartbeats=heartbeats)


def _check_lengths(part: RankHeartbeats | HangStatus) -> None:
    """All columns must have a row for each rank, but those that may be missing."""
    known = ((getattr(part, field.name), field.default == ()) for field in fields(part))
    columns = (each for each, is_optional in known if not is_optional or len(each))
    shapes = {np.shape(each)[:1] for each in columns if isinstance(each, np.ndarray | list)}
    if shapes != {(len(part.ranks),)}:
        raise ValueError(f"columns of {shapes} for {len(part.ranks)} ranks")
