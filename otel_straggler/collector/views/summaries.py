"""What the history keeps of a run alongside windows and verdicts, so that it can be shown later."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from otel_straggler.collector.history.file import Summary
from otel_straggler.collector.runs.store import Run
from otel_straggler.collector.views.run_summary import summary_value
from otel_straggler.collector.views.run_view import RunView
from otel_straggler.collector.views.snapshot import Snapshot
from otel_straggler.detect.hangs.states import HANGS

_GIVEN_UP: Final = "forgotten"


def new_summaries(runs: Mapping[str, Run], snapshot: Snapshot) -> list[Summary]:
    """Of the runs of which there is anything new since it was asked for last, or that hang: one
    that is silent is still followed. What monitoring has given up keeps what was seen before. Cost:
    O(groups); the rest is done on the thread of the history, when they are written."""
    summaries: list[Summary] = []
    for view in snapshot.runs.values():
        run = runs.get(view.run_id)
        progress = view.progress()
        is_new = run is None or run.shown.summarized != progress
        if run is not None:
            run.shown.summarized = progress
        for group in view.groups:
            state = view.found[group].state if group in view.found else ""
            if state != _GIVEN_UP and (is_new or state in HANGS):
                summaries.append(_summary(view, group))
    return summaries


def _summary(view: RunView, group: str) -> Summary:
    make = partial(_value, view, group)
    return Summary(run_id=view.run_id, job=view.jobs.get(group, ""), group=group, make=make)


def _value(view: RunView, group: str) -> dict[str, Any]:
    return summary_value(view.world(group))
