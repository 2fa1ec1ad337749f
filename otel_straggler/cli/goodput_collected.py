"""The goodput of a run by a collector: what it has accounted for so far, group by group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from otel_straggler.cli.report_source import LiveRunViews, choose_run
from otel_straggler.errors import InputError
from otel_straggler.goodput.report import meaning
from otel_straggler.semconv import EXCLUDED, PRODUCTIVE

Json = dict[str, Any]
_NOT_KEPT: Final = (
    "time_ns",
    "recovery_s",
    "steps",
    "replicas",
    "attempts",
    "disruptions",
    "ranks",
    "timeline",
    "checkpoints",
)
"""Of the account of a recording; null here."""


def collected_goodput(collector: str, run_id: str | None) -> list[Json]:
    """Accounts of all groups of a run, in the shape of those of a recording; what a collector does
    not keep is null.

    Args:
        run_id: None: the run that needs attention most.

    Raises:
        ConfigError: it has no such run.
        InputError: it answers as no collector, or has not seen a step or a phase of the run yet.
        UnavailableError: it does not answer.
    """
    views = LiveRunViews(collector)
    chosen = choose_run(views, run_id)["run_id"]
    first = views.run_view(chosen, None)["run"]
    groups = [
        first if group == first["group"] else views.run_view(chosen, group)["run"]
        for group in first["groups"]
    ]
    accounts = list(_accounts(groups))
    if not accounts:
        value = f"{chosen} without a step or a phase"
        remedy = "The account begins with the first window, of some 20 steps; try again then."
        raise InputError.of(views.where, value, "a run whose steps were scored", remedy)
    return accounts


def _accounts(groups: list[Json]) -> Iterator[Json]:
    for run in groups:
        known = run["goodput"]
        if known is None:
            continue
        elapsed_s = known["end_s"] - known["start_s"]
        wall_s = elapsed_s - known["excluded_s"]
        seconds = {PRODUCTIVE: known["productive_s"], EXCLUDED: known["excluded_s"]}
        seconds |= {each["reason"]: each["seconds"] for each in known["lost"]}
        yield {
            "run_id": run["run_id"],
            "group": run["group"],
            **{name: known[name] for name in ("start_s", "end_s", "goodput", "sentence")},
            "elapsed_s": elapsed_s,
            "wall_s": wall_s,
            "is_over": run["finished_at_s"] is not None or not run["is_live"],
            "n_ranks": run["ranks_reporting"],
            "n_attempts": known["attempts"],
            "categories": {
                name: {
                    "seconds": length_s,
                    "share": length_s / wall_s if wall_s and name != EXCLUDED else None,
                    "meaning": meaning(name),
                }
                for name, length_s in seconds.items()
            },
            "rolling": [
                {**each, "end_s": [known["end_s"]], "goodput": [each["goodput"]]}
                for each in known["rolling"]
            ],
            **dict.fromkeys(_NOT_KEPT),
        }
