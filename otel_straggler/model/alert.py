"""Alerts, as they are sent to an Alertmanager, and maintenance, which silences them."""

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
        annotations: what people read; none is empty.
        starts_at_s: since when it fires, seconds since 1970.
        ends_at_s: when it ended; None while it fires.
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
    """Nobody is called because ranks on ``node`` are lost or stuck, until ``until_ns``.

    Attributes:
        reason, by: why, and who said so.
        at_ns, until_ns: when it was said, and its end, on the collector's clock.
    """

    node: str
    reason: str
    by: str = ""
    at_ns: int
    until_ns: int
