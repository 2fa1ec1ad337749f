"""Alerts as they are sent to an Alertmanager, and maintenance, which silences them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Severity = Literal["critical", "warning", "info"]
Domain = Literal["hardware", "data", "model", "platform"]
Mode = Literal["observe", "page"]

MAX_NAMED: Final = 20
"""Ranks of one run that alerts name; the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert about one subject.

    Attributes:
        labels: its identity, ``alertname`` included; none is empty.
        annotations: text for people; none is empty.
        starts_at_s, ends_at_s: seconds since 1970; the end is None while it fires.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at_s: float
    ends_at_s: float | None = None

    @property
    def name(self) -> str:
        return self.labels["alertname"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """No alerts on ``node`` and its ranks until ``until_ns`` (collector's clock)."""

    node: str
    reason: str
    by: str = ""
    at_ns: int
    until_ns: int
