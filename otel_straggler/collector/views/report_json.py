"""The report of ``otel-straggler score --json`` and ``/v1/report``.

Keys of scores are ranks as strings (``"3"``, or ``"critic/3"`` in a named group); null means
unknown or not comparable. Within one ``schema_version`` fields are only added.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeAlias

import numpy as np

from otel_straggler.collector.views.verdict_json import decisions_json, run_json, verdict_json
from otel_straggler.model.observation import Floats, Ints
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import Excess, Straggler, WindowScores
from otel_straggler.model.verdict import RunVerdicts
from otel_straggler.semconv import FORMAT_VERSION

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """One run.

    Attributes:
        windows: from :func:`window_json`, oldest first.
        clashes: sessions that claim a rank of another live session.
        counts: rows left out of the scores, by reason.
        profiles: operators of slow ranks next to those of peers; absent while there are none.
        launches: from :func:`~otel_straggler.collector.views.attempts.launches_json`.
    """

    windows: Sequence[Json] = ()
    run_verdicts: RunVerdicts = field(default_factory=RunVerdicts)
    clashes: Sequence[Source] = ()
    counts: Mapping[str, int] | None = None
    hangs: Sequence[Json] = ()
    alerts: Sequence[Json] = ()
    profiles: Sequence[Json] = ()
    launches: Json | None = None


def report_json(runs: Mapping[str, RunReport]) -> Json:
    return {
        "schema_version": FORMAT_VERSION,
        "runs": {run_id: _run(run) for run_id, run in runs.items()},
    }


def dump_report(report: Json) -> str:
    """Encode as JSON; NaN is an error."""
    return json.dumps(report, allow_nan=False, separators=(",", ":"))


def _run(run: RunReport) -> Json:
    newest = run.windows[-1] if run.windows else None
    return {
        "windows": list(run.windows),
        "verdicts": [verdict_json(verdict) for verdict in run.run_verdicts.changes],
        "decisions": decisions_json(run.run_verdicts),
        "run": run_json(run.run_verdicts.worlds, newest["coverage"] if newest else None),
        "liveness": list(run.hangs),
        "alerts": list(run.alerts),
        "launches": run.launches,
        "clashes": [_of_source(source, "session_id", "attempt") for source in run.clashes],
        "not_scored": dict(run.counts or {}),
        **({"profiles": list(run.profiles)} if run.profiles else {}),
    }


def window_json(window: WindowScores) -> Json:
    """One window. GPU tables leave out sections without GPU times. Cost: O(ranks * sections)."""
    reporting = len(window.sources)
    return {
        **{name: getattr(window, name) for name in _PLAIN},
        **{name: _values(window, attribute) for name, attribute in _TABLES.items()},
        "gpu_age_s": None if math.isnan(window.gpu_age_s) else window.gpu_age_s,
        "stragglers": [_of_section(each) for each in window.stragglers],
        "largest_excess": window.largest_excess and _of_section(window.largest_excess),
        "ranks": {source.key: _rank(source) for source in window.sources},
        "sections": {section.name: section.kind for section in window.sections},
        "world_size": window.world_size,
        "ranks_reporting": reporting,
        "missing_ranks": list(window.missing_ranks),
        "missing_count": max(0, window.world_size - reporting),
        "coverage": reporting / max(window.world_size, reporting, 1),
        "duplicates": window.duplicates,
        "superseded": window.superseded,
    }


_PLAIN: Final = (
    "first_step", "last_step", "n_steps", "start_ns", "end_ns", "job", "group", "attempt",
    "closed_by",
)  # fmt: skip
_TABLES: Final = {
    "section_relative_scores": "section_relative",
    "section_individual_scores": "section_individual",
    "gpu_relative_scores": "gpu_relative",
    "gpu_individual_scores": "gpu_individual",
    "gpu_section_relative_scores": "gpu_section_relative",
    "gpu_section_individual_scores": "gpu_section_individual",
    "section_medians_s": "section_median_s",
    "section_step_s": "section_step_s",
    "section_own_s": "section_own_s",
    "section_slowdowns": "section_slowdown",
    "section_counts": "section_count",
}
_BY_RANK: Final = ("gpu_relative_scores", "gpu_individual_scores", "ranks")


def _values(window: WindowScores, attribute: str) -> Json:
    keys = [source.key for source in window.sources]
    values: Floats | Ints = getattr(window, attribute)
    if values.ndim == 1:
        return dict(zip(keys, _nullable(values), strict=True))
    sections = range(len(window.sections))
    if attribute.startswith("gpu_"):
        sections = np.flatnonzero(~np.isnan(values).all(axis=0)).tolist()
    return {
        window.sections[s].name: dict(zip(keys, _nullable(values[:, s]), strict=True))
        for s in sections
    }


def _nullable(values: Floats | Ints) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _rank(source: Source) -> Json:
    rank = {"node": source.node, "role": source.role}
    return {**rank, "parallel": dict(source.parallel)} if source.parallel else rank


def of_one_rank(window: Json, key: str) -> Json:
    """Reduce a result of :func:`window_json` to one rank. Cost: O(sections)."""
    part = dict(window)
    for name in _TABLES.keys() - set(_BY_RANK):
        part[name] = {section: _only(column, key) for section, column in window[name].items()}
    for name in _BY_RANK:
        part[name] = _only(window[name], key)
    return part


def _only(column: Json, key: str) -> Json:
    return {key: column[key]} if key in column else {}


_WHO: Final = ("rank", "node", "role", "group")


def _of_source(source: Source, *names: str) -> Json:
    return {name: getattr(source, name) for name in (*_WHO, *names)}


def _of_section(each: Straggler | Excess) -> Json:
    """All fields; who it is instead of the source."""
    values = {f.name: getattr(each, f.name) for f in fields(each) if f.name != "source"}
    return _of_source(each.source) | values | {"section": each.section or None}
