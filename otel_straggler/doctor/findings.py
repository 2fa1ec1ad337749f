"""Findings: one fact each, how good it is, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from otel_straggler.secret import redacted

Status = Literal["ok", "info", "warning", "problem"]
SCHEMA_VERSION: Final = 1
"""Of the JSON; within a version, fields and findings are only added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact.

    Attributes:
        id: ``subject.fact``, stable.
        status: ``problem``: telemetry or scores will be missing or wrong; ``warning``: they may be.
        value: JSON, for programs.
        remedy: a command, or a line to write; never empty for a warning or a problem.

    URLs in all of these are without passwords and keys.
    """

    id: str
    status: Status
    sentence: str
    value: Any = None
    remedy: str = ""

    def __post_init__(self) -> None:
        for name in ("sentence", "value", "remedy"):
            object.__setattr__(self, name, redacted(getattr(self, name)))

    @property
    def subject(self) -> str:
        return self.id.partition(".")[0]


def ok(finding_id: str, sentence: str, value: Any = None) -> Finding:
    return Finding(id=finding_id, status="ok", sentence=sentence, value=value)


def info(finding_id: str, sentence: str, value: Any = None, remedy: str = "") -> Finding:
    return Finding(id=finding_id, status="info", sentence=sentence, value=value, remedy=remedy)


def warning(finding_id: str, sentence: str, remedy: str, value: Any = None) -> Finding:
    return Finding(id=finding_id, status="warning", sentence=sentence, value=value, remedy=remedy)


def problem(finding_id: str, sentence: str, remedy: str, value: Any = None) -> Finding:
    return Finding(id=finding_id, status="problem", sentence=sentence, value=value, remedy=remedy)


def findings_json(findings: Iterable[Finding], rank: int | None) -> dict[str, Any]:
    """All findings as one object; ``ok`` is false if there is a problem."""
    listed = [asdict(finding) for finding in findings]
    return {
        "schema_version": SCHEMA_VERSION,
        "ok": all(finding["status"] != "problem" for finding in listed),
        "rank": rank,
        "findings": listed,
    }
