"""Alerts as a webhook heard of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from otel_straggler.collector.alerting.alert_json import seconds_of_rfc3339
from otel_straggler.demo.receiver import Received

Json = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Told:
    """An alert as a webhook heard of it.

    Attributes:
        labels, text: of the newest message.
        began_s, ended_s: what the messages say, seconds since 1970; ended_s is None while it fires.
        heard_s: when the first message came, and ended_heard_s: the first that said it is over.
        messages: that contain it.
    """

    labels: dict[str, str]
    text: str
    began_s: float
    heard_s: float
    ended_s: float | None = None
    ended_heard_s: float | None = None
    messages: int = 0

    @property
    def name(self) -> str:
        return self.labels["alertname"]


def hear(result: dict[str, Told], one: Received, alert: Json) -> None:
    """Add what one message says of one alert."""
    key = json.dumps(alert["labels"], sort_keys=True)
    told = result.get(key)
    if told is None:
        if alert["status"] != "firing":
            return
        began_s = seconds_of_rfc3339(alert["startsAt"])
        told = result[key] = Told(
            labels=alert["labels"], text="", began_s=began_s, heard_s=one.at_s
        )
    told.messages += 1
    told.text = " ".join(alert["annotations"].values())
    if alert["status"] == "firing":
        told.ended_s = told.ended_heard_s = None
    elif told.ended_s is None:
        told.ended_s, told.ended_heard_s = seconds_of_rfc3339(alert["endsAt"]), one.at_s
