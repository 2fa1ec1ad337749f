"""An alert, as Prometheus' rules and the collector itself send it to an Alertmanager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Severity = Literal["critical", "warning", "info"]
Domain = Literal["hardware", "data", "model", "platform"]
Mode = Literal["observe", "page"]

MOST_NAMED: Final = 20
"""Ranks of one run that alerts name; the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert about one subject.

    Attributes:
        labels: what tells it from others, ``alertname`` among them; none is empty.
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
