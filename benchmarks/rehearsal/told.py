"""Alerts as a webhook heard of them, and those that it should hear of."""

from __future__ import annotations

from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """An alert that should be told.

    Attributes:
        alert, run_id: what, and of whom; no run: of a collector.
        from_s, until_s: when its cause began and ended, seconds since 1970.
        collector: of which it is; empty: of any.
        by_rules_only: a collector does not tell of itself that it is gone.
    """

    alert: str
    run_id: str
    from_s: float
    until_s: float
    collector: str = ""
    by_rules_only: bool = False

    def is_meant(self, told: Told) -> bool:
        """Whether this is what should be told."""
        is_its = not self.collector or told.labels.get("collector") == self.collector
        return told.name == self.alert and told.began_s >= self.from_s and is_its


@dataclass(slots=True, kw_only=True)
class Played:
    """What a scenario was about.

    Attributes:
        runs: that it started; of these nothing else is true.
        due: what should be told.
        allowed: names of what may be told besides.
        problem: what else is wrong; empty if nothing.
    """

    runs: tuple[str, ...]
    due: list[Due] = field(default_factory=list)
    allowed: tuple[str, ...] = ()
    problem: str = ""


def hear(result: list[Told], one: Received, alert: Json) -> None:
    """Add what one message says of one alert. After its end it begins again."""
    its = [told for told in result if told.labels == alert["labels"]]
    is_firing = alert["status"] == "firing"
    if not its or (is_firing and its[-1].ended_s is not None):
        if not is_firing:
            return
        began_s = seconds_of_rfc3339(alert["startsAt"])
        its = [Told(labels=alert["labels"], text="", began_s=began_s, heard_s=one.at_s)]
        result += its
    told = its[-1]
    told.messages += 1
    told.text = " ".join(alert["annotations"].values())
    if not is_firing and told.ended_s is None:
        told.ended_s, told.ended_heard_s = seconds_of_rfc3339(alert["endsAt"]), one.at_s
