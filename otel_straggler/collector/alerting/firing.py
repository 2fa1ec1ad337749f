"""Firing alerts, over restarts of the collector. Pure; time is an argument.

After a restart, minutes pass until a hang is detected again. An alert that fired when the last
process ended is therefore held firing until its run is over, is scored again for a while (hangs),
has reported for so long that it would fire again if it were still true, or, unless it is about a
hang, has not reported for as long as such an alert outlasts its condition; one of a hang also until
a person acknowledges that. So a restart is neither
a false all-clear nor a second page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from otel_straggler.alerts.catalogue import CATALOGUE
from otel_straggler.alerts.rule import FleetStatus, RunStatus
from otel_straggler.collector.alerting.alert_json import fingerprint
from otel_straggler.model.alert import Alert
from otel_straggler.model.decoding import read_as

HANGS: Final = frozenset({"StragglerRunHung", "StragglerRankLost", "StragglerRankStuck"})
"""Alerts that do not end because the collector that raised them is gone."""
_DURING: Final = {rule.name: rule.during for rule in CATALOGUE}
FAILED: Final = "StragglerRunFailed"
_SENT_S: Final = 60.0
_STATE_VERSION: Final = 1

_Status = Literal["held", "over", "unknown"]


@dataclass(slots=True)
class _Held:
    """An alert of the last process, and since when its run reports again."""

    alert: Alert
    reports_since_s: float | None = None


class Firing:
    """Tracks evaluated alerts. One thread owns it.

    Args:
        hold_s: how long an alert of the last process is held once its run reports again,
        give_up_s: and if it never does;
        keep_s: the same of alerts that are not about a hang.
        failed_s: how long an alert on a failed run fires: nothing else ends it.

    Attributes:
        by_run: firing alerts by run; replaced and never changed.
    """

    def __init__(
        self, hold_s: float, give_up_s: float, keep_s: float = 600.0, failed_s: float = math.inf
    ) -> None:
        self._hold_s = hold_s
        self._give_up_s = give_up_s
        self._keep_s = keep_s
        self._failed_s = failed_s
        self._held: dict[str, _Held] = {}
        self._since_s: dict[str, float] = {}
        self._firing: dict[str, Alert] = {}
        self.by_run: dict[str, tuple[Alert, ...]] = {}
        self._restored_at_s = 0.0
        self.given_up: tuple[Alert, ...] = ()

    def follow(self, alerts: Iterable[Alert], watched: FleetStatus) -> tuple[Alert, ...]:
        """Alerts that fire, including held ones, each since its first start, and those that ended.
        Those whose end will never be known are in ``given_up`` until the next call."""
        alerts_by_key: dict[str, Alert] = {}
        for alert in alerts:
            key = fingerprint(alert.labels)
            held = self._held.pop(key, None)
            if held is not None:
                self._since_s[key] = held.alert.starts_at_s
            since_s = min(alert.starts_at_s, self._since_s.get(key, alert.starts_at_s))
            alerts_by_key[key] = replace(alert, starts_at_s=since_s)
        alerts_by_key |= self._of_last_process(watched)
        self._firing = {
            key: alert for key, alert in alerts_by_key.items() if alert.ends_at_s is None
        }
        by_run: dict[str, list[Alert]] = {}
        for alert in self._firing.values():
            by_run.setdefault(alert.labels.get("run_id", ""), []).append(alert)
        self.by_run = {run_id: tuple(its) for run_id, its in by_run.items()}
        self._since_s = {k: at for k, at in self._since_s.items() if k in self._firing}
        return tuple(alerts_by_key.values())

    def drop(self, has_moved: Callable[[str], bool]) -> None:
        """Forget held alerts of runs that another shard has now, without an end."""
        for key, held in list(self._held.items()):
            if has_moved(held.alert.labels.get("run_id", "")):
                del self._held[key]

    def _of_last_process(self, watched: FleetStatus) -> dict[str, Alert]:
        runs = {(run.run_id, run.group): run for run in watched.runs}
        alerts_by_key: dict[str, Alert] = {}
        given_up: list[Alert] = []
        for key, held in list(self._held.items()):
            labels = held.alert.labels
            run = runs.get((labels.get("run_id", ""), labels.get("group", "")))
            status = self._status(held, run, watched.now_s)
            if status == "held":
                alerts_by_key[key] = held.alert
                continue
            del self._held[key]
            ended = replace(held.alert, ends_at_s=max(watched.now_s, held.alert.starts_at_s))
            if status == "over":
                alerts_by_key[key] = ended
            else:
                given_up.append(ended)
        self.given_up = tuple(given_up)
        return alerts_by_key

    def _status(self, held: _Held, run: RunStatus | None, now_s: float) -> _Status:
        name, waited_s = held.alert.name, now_s - self._restored_at_s
        if name == FAILED:
            is_due = now_s - held.alert.starts_at_s < self._failed_s
            is_due &= run is None or run.failed_at_s is not None
            return "held" if is_due else "over"
        if run is None and name not in HANGS:
            return "over" if waited_s >= self._keep_s else "held"
        if run is None:
            return "unknown" if waited_s > self._give_up_s else "held"
        if run is not None and run.state == "forgotten" and name in HANGS:
            return "unknown"
        if run is not None and not run.allows(_DURING.get(name, "alive")):
            return "over"
        if run is not None and run.is_acknowledged and name in HANGS:
            return "over"
        if held.reports_since_s is None:
            held.reports_since_s = now_s
        if now_s - held.reports_since_s >= self._hold_s:
            return "over"
        return "over" if run is not None and _trains_again(held, run) else "held"

    @property
    def keys(self) -> frozenset[str]:
        """Fingerprints of all that fires."""
        return frozenset(self._firing)

    # --- over restarts ---------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        firing = [asdict(alert) for alert in self._firing.values()]
        return {"version": _STATE_VERSION, "firing": firing}

    def restore(self, state: Mapping[str, Any], now_s: float) -> None:
        """Go on from :meth:`state`.

        Raises:
            ValueError, KeyError, TypeError: it is none.
        """
        if state["version"] != _STATE_VERSION:
            raise ValueError(f"version {state['version']!r}")
        self.hold(read_as(list[Alert], state["firing"]), now_s)

    def hold(self, alerts: Iterable[Alert], now_s: float) -> None:
        """Treat these as what fired when the last process ended."""
        self._restored_at_s = now_s
        for alert in alerts:
            self._held.setdefault(fingerprint(alert.labels), _Held(alert))


def _trains_again(held: _Held, run: RunStatus) -> bool:
    """Whether a run that hung trains again: it is scored from spans newer than those queued while
    the collector was down."""
    scored_at_s, reports_since_s = run.last_scored_at_s, held.reports_since_s
    if held.alert.name not in HANGS or run.state != "training":
        return False
    return (
        scored_at_s is not None
        and reports_since_s is not None
        and scored_at_s > reports_since_s + _SENT_S
    )
