"""Windows and changes of verdicts as rows of their tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import Verdict
from otel_straggler.publish.history.blobs import encode_blob
from otel_straggler.publish.history.verdict_text import verdict_text
from otel_straggler.publish.history.window_blobs import window_value


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRow:
    """A window, encoded, with what it is found by."""

    run_id: str
    job: str
    group: str
    attempt: int
    first_step: int | None
    last_step: int | None
    start_ns: int
    end_ns: int
    ranks: int
    stragglers: int
    blob: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """A change of a verdict's state, as JSON, with what it is found by."""

    run_id: str
    subject_id: str
    at_ns: int
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The newest that is known of a run and group, made when it is written: on the thread of the
    history, so that who hands it over does not wait.

    Attributes:
        run_id, job, group: what it is found by.
        make: the value, of the types that a blob takes; called once at most.
    """

    run_id: str
    job: str
    group: str
    make: Callable[[], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRow:
    """A summary, encoded, with what it is found by."""

    run_id: str
    job: str
    group: str
    blob: bytes


def window_row(window: WindowScores) -> WindowRow:
    """Cost: O(ranks * sections); about 1 ms per 1,000 ranks and 10 sections."""
    return WindowRow(
        run_id=_text(window.run_id),
        job=_text(window.job),
        group=_text(window.group),
        attempt=window.attempt,
        first_step=window.first_step,
        last_step=window.last_step,
        start_ns=window.start_ns,
        end_ns=window.end_ns,
        ranks=len(window.sources),
        stragglers=len({s.source.rank for s in window.stragglers}),
        blob=encode_blob(window_value(window)),
    )


def change_row(verdict: Verdict) -> ChangeRow:
    return ChangeRow(
        run_id=_text(verdict.run_id),
        subject_id=_text(verdict.subject_id),
        at_ns=verdict.at_ns,
        verdict=verdict_text(verdict),
    )


def summary_row(summary: Summary) -> SummaryRow:
    return SummaryRow(
        run_id=_text(summary.run_id),
        job=_text(summary.job),
        group=_text(summary.group),
        blob=encode_blob(summary.make()),
    )


def _text(text: str) -> str:
    """SQLite refuses what is no UTF-8, such as half a surrogate pair from somebody's JSON."""
    return text.encode("utf-8", "replace").decode()
