"""The report of ``otel-straggler score --json`` and ``/v1/report``.

Keys of scores are ranks as strings (``"3"``, or ``"critic/3"`` in a named group); null means
unknown or not comparable. Within one ``schema_version`` fields are only added.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

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
        hangs: from ``hang_json``, one per group.
        alerts: firing, from ``shown_alert``.
    """

    windows: Sequence[Json] = ()
    run_verdicts: RunVerdicts = field(default_factory=RunVerdicts)
    clashes: Sequence[Source] = ()
    counts: Mapping[str, int] | None = None
    hangs: Sequence[Json] = ()
    alerts: Sequence[Json] = ()


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
        "clashes": [_clash(source) for source in run.clashes],
        "not_scored": dict(run.counts or {}),
    }


def window_json(window: WindowScores) -> Json:
    """One window. GPU tables leave out sections without GPU times. Cost: O(ranks * sections)."""
    keys = [source.key for source in window.sources]
    names = [section.name for section in window.sections]
    reporting = len(window.sources)
    return {
        "first_step": window.first_step,
        "last_step": window.last_step,
        "n_steps": window.n_steps,
        "start_ns": window.start_ns,
        "end_ns": window.end_ns,
        "job": window.job,
        "group": window.group,
        "attempt": window.attempt,
        "closed_by": window.closed_by,
        "section_relative_scores": _table(window.section_relative, keys, names),
        "section_individual_scores": _table(window.section_individual, keys, names),
        "gpu_relative_scores": _column(window.gpu_relative, keys),
        "gpu_individual_scores": _column(window.gpu_individual, keys),
        "gpu_section_relative_scores": _known(window.gpu_section_relative, keys, names),
        "gpu_section_individual_scores": _known(window.gpu_section_individual, keys, names),
        "section_medians_s": _table(window.section_median_s, keys, names),
        "section_step_s": _table(window.section_step_s, keys, names),
        "section_slowdowns": _table(window.section_slowdown, keys, names),
        "section_counts": _table(window.section_count, keys, names),
        "stragglers": [_straggler(s) for s in window.stragglers],
        "largest_excess": _excess(window.largest_excess),
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


def _rank(source: Source) -> Json:
    rank = {"node": source.node, "role": source.role}
    return {**rank, "parallel": dict(source.parallel)} if source.parallel else rank


def of_one_rank(window: Json, key: str) -> Json:
    """Reduce a result of :func:`window_json` to one rank. Cost: O(sections)."""
    part = dict(window)
    for table in _BY_SECTION:
        part[table] = {name: _only(column, key) for name, column in window[table].items()}
    for column in _BY_RANK:
        part[column] = _only(window[column], key)
    return part


_BY_SECTION = (
    "section_relative_scores",
    "section_individual_scores",
    "gpu_section_relative_scores",
    "gpu_section_individual_scores",
    "section_medians_s",
    "section_step_s",
    "section_slowdowns",
    "section_counts",
)
_BY_RANK = ("gpu_relative_scores", "gpu_individual_scores", "ranks")


def _only(column: Json, key: str) -> Json:
    return {key: column[key]} if key in column else {}


def _column(scores: Floats, keys: list[str]) -> dict[str, float | None]:
    return dict(zip(keys, _nullable(scores), strict=True))


def _table(
    values: Floats | Ints, keys: list[str], names: Iterable[str]
) -> dict[str, dict[str, Any]]:
    return {
        name: dict(zip(keys, _nullable(values[:, s]), strict=True)) for s, name in enumerate(names)
    }


def _known(scores: Floats, keys: list[str], names: list[str]) -> dict[str, dict[str, Any]]:
    """Only sections with data."""
    known = np.flatnonzero(~np.isnan(scores).all(axis=0)).tolist()
    return {names[s]: _column(scores[:, s], keys) for s in known}


def _nullable(values: Floats | Ints) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _straggler(straggler: Straggler) -> Json:
    return {
        **_who(straggler.source),
        "section": straggler.section or None,
        "kind_of_score": straggler.kind_of_score,
        "score": straggler.score,
    }


def _excess(excess: Excess | None) -> Json | None:
    if excess is None:
        return None
    return {
        **_who(excess.source),
        "section": excess.section,
        "excess_s": excess.excess_s,
        "own_s": excess.own_s,
        "role_median_s": excess.role_median_s,
    }


def _clash(source: Source) -> Json:
    return {**_who(source), "session_id": source.session_id, "attempt": source.attempt}


def _who(source: Source) -> Json:
    return {
        "rank": source.rank,
        "node": source.node,
        "role": source.role,
        "group": source.group,
    }
