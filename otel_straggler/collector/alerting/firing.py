"""What fires, over restarts of the collector. Pure; time is an argument.

A collector that has just started knows nothing of what hung before it: until a rank is called lost
or stuck anew, minutes pass. An alert that fired when the last process ended is therefore held to
fire until its run has ended or is scored again for a while (of hangs), or has been heard of for so
long that it would fire again if it were still true. So a restart is neither a false all-clear nor a
second page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from otel_straggler.alerts.rule import FleetStatus, RunStatus
from otel_straggler.collector.alerting.alert_json import fingerprint, read_alert, saved_alert
from otel_straggler.detect.hangs.states import ENDS
from otel_straggler.model.alert import Alert

HANGS: Final = frozenset({"StragglerRunHung", "StragglerRankLost", "StragglerRankStuck"})
"""Alerts that nobody may take for ended because the collector that raised them is gone."""
_SENT_S: Final = 60.0
_STATE_VERSION: Final = 1

_Fate = Literal["held", "over", "unknown"]


@dataclass(slots=True)
class _Held:
    """An alert of the last process, and when its run was heard of again."""

    alert: Alert
    heard_at_s: float | None = None


class Firing:
    """Follows what an evaluation says. One thread owns it.

    Args:
        hold_s: so long after its run is heard of again an alert of the last process is held.
        give_up_s: and so long if it never is.
    """

    def __init__(self, hold_s: float, give_up_s: float) -> None:
        self._hold_s = hold_s
        self._give_up_s = give_up_s
        self._held: dict[str, _Held] = {}
        self._since_s: dict[str, float] = {}
        self._firing: dict[str, Alert] = {}
        self._by_run: dict[str, tuple[Alert, ...]] = {}
        self._restored_at_s = 0.0
        self.given_up: tuple[Alert, ...] = ()

    def follow(self, alerts: Iterable[Alert], watched: FleetStatus) -> tuple[Alert, ...]:
        """What fires, those held among them and each since its first start, and what has ended.
        Those of which nobody will ever know are in ``given_up``, until the next call."""
        told: dict[str, Alert] = {}
        for alert in alerts:
            key = fingerprint(alert.labels)
            held = self._held.pop(key, None)
            if held is not None:
                self._since_s[key] = held.alert.starts_at_s
            since_s = min(alert.starts_at_s, self._since_s.get(key, alert.starts_at_s))
            told[key] = replace(alert, starts_at_s=since_s)
        told |= self._of_last_process(watched)
        self._firing = {key: alert for key, alert in told.items() if alert.ends_at_s is None}
        self._by_run = _by_run(self._firing.values())
        self._since_s = {k: at for k, at in self._since_s.items() if k in self._firing}
        return tuple(told.values())

    def _of_last_process(self, watched: FleetStatus) -> dict[str, Alert]:
        runs = {(run.run_id, run.group): run for run in watched.runs}
        told: dict[str, Alert] = {}
        given_up: list[Alert] = []
        for key, held in list(self._held.items()):
            labels = held.alert.labels
            run = runs.get((labels.get("run_id", ""), labels.get("group", "")))
            fate = self._fate(held, run, watched.now_s)
            if fate == "held":
                told[key] = held.alert
                continue
            del self._held[key]
            ended = replace(held.alert, ends_at_s=max(watched.now_s, held.alert.starts_at_s))
            if fate == "over":
                told[key] = ended
            else:
                given_up.append(ended)
        self.given_up = tuple(given_up)
        return told

    def _fate(self, held: _Held, run: RunStatus | None, now_s: float) -> _Fate:
        if run is None and "run_id" in held.alert.labels:
            return "unknown" if now_s - self._restored_at_s > self._give_up_s else "held"
        if run is not None and run.state in ENDS:
            return "over"
        if run is not None and run.state == "forgotten":
            return "unknown"
        if held.heard_at_s is None:
            held.heard_at_s = now_s
        if now_s - held.heard_at_s >= self._hold_s:
            return "over"
        return "over" if run is not None and _gets_on(held, run) else "held"

    @property
    def by_run(self) -> Mapping[str, tuple[Alert, ...]]:
        """What fires, by run; replaced and never changed."""
        return self._by_run

    @property
    def keys(self) -> frozenset[str]:
        """Fingerprints of all that fires."""
        return frozenset(self._firing)

    # --- over restarts ---------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """JSON's types only."""
        firing = [saved_alert(alert) for alert in self._firing.values()]
        return {"version": _STATE_VERSION, "firing": firing}

    def restore(self, state: Mapping[str, Any], now_s: float) -> None:
        """Go on from :meth:`state`.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is none.
        """
        if state["version"] != _STATE_VERSION:
            msg = f"version {state['version']!r}"
            raise ValueError(msg)
        self.hold((read_alert(one) for one in state["firing"]), now_s)

    def hold(self, alerts: Iterable[Alert], now_s: float) -> None:
        """Take these for what fired when the last process ended."""
        self._restored_at_s = now_s
        for alert in alerts:
            self._held.setdefault(fingerprint(alert.labels), _Held(alert))


def _by_run(alerts: Iterable[Alert]) -> dict[str, tuple[Alert, ...]]:
    found: dict[str, list[Alert]] = {}
    for alert in alerts:
        found.setdefault(alert.labels.get("run_id", ""), []).append(alert)
    return {run_id: tuple(its) for run_id, its in found.items()}


def _gets_on(held: _Held, run: RunStatus) -> bool:
    """Whether a run that hung trains again: it is scored although its senders have long sent what
    they had kept while the collector was away."""
    scored_at_s, heard_at_s = run.last_scored_at_s, held.heard_at_s
    if held.alert.name not in HANGS or run.state != "training":
        return False
    return scored_at_s is not None and heard_at_s is not None and scored_at_s > heard_at_s + _SENT_S
