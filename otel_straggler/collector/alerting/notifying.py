"""Evaluates alerts on a thread of its own, and sends them to the receivers in the settings.

Without receivers alerts are evaluated and shown all the same.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from otel_straggler.alerts.catalogue import uninhibited
from otel_straggler.alerts.evaluation import AlertEvaluator
from otel_straggler.alerts.messages import links
from otel_straggler.alerts.rule import FleetStatus
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.collector.alerting.alertmanager import Alertmanagers
from otel_straggler.collector.alerting.firing import HANGS, Firing
from otel_straggler.collector.alerting.webhook import Webhook, calls
from otel_straggler.collector.settings import AlertsSettings, CollectorSettings
from otel_straggler.collector.worker import Worker
from otel_straggler.model.alert import Alert

_log = logging.getLogger(__name__)

_MISSED: Final = 4
"""Other alerts end in Alertmanager after so many missed re-sends, as with Prometheus."""
_KEPT_FOR_S: Final = 3_600.0
"""An unchanged state is saved again after so long: a history drops old rows."""
_STATE_VERSION: Final = 1


class Notifying:
    """One notifier. ``open``, ``start`` and ``stop`` once each.

    Args:
        worker: has what is evaluated, and shows what fires.
        evaluate: see ``AlertEvaluator.evaluate``.
        keep: saves the state whenever it has changed.

    Attributes:
        failures: evaluations that failed.
        has_moved: whether another shard has taken over a run; what fires for it is not resolved
            here, but sent by that shard.
        troubles: of the collector now, for its alerts about itself.
    """

    def __init__(
        self,
        alerts: AlertsSettings,
        worker: Worker,
        *,
        evaluate: Callable[[FleetStatus], tuple[Alert, ...]],
        firing: Firing,
        keep: Callable[[dict[str, Any]], None] = lambda _: None,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._settings = alerts.notify
        self._every_s, self._give_up_s = alerts.evaluation_seconds, alerts.give_up_seconds
        self._worker = worker
        self._evaluate = evaluate
        self._firing = firing
        self._keep = keep
        self._wall_s = wall_s
        self._alertmanagers: Alertmanagers | None = None
        self._webhook: Webhook | None = None
        self._kept_keys: frozenset[str] = frozenset()
        self._knows_before = False
        self._kept_at_s = time.monotonic()
        self.failures = 0
        self.has_moved: Callable[[str], bool] = lambda _: False
        self.troubles: Callable[[], Mapping[str, str]] = dict
        self._taken_over: queue.SimpleQueue[Sequence[Alert]] = queue.SimpleQueue()
        self._origins: dict[str, str] = {}
        self._links = AlertSettings()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="straggler-alerts", daemon=True)

    # --- from any thread -------------------------------------------------------------------------

    @property
    def page_url(self) -> str:
        """Of this collector's live page, for people; empty before ``open``."""
        return self._links.page_url

    def open(self, page: str) -> None:
        """Once the address of the collector for people is known; then ``restore``, ``start``."""
        settings, page = self._settings, self._settings.external_url.rstrip("/") or page
        self._links = AlertSettings(page_url=page)
        if settings.alertmanagers:
            self._alertmanagers = Alertmanagers(
                settings.alertmanagers,
                settings,
                resend_s=settings.resend_s,
                holds_s=self._holds_s,
                page=page,
            )
        if settings.webhook:
            self._webhook = Webhook(settings, page)

    @property
    def _receivers(self) -> list[Alertmanagers | Webhook]:
        both = (self._alertmanagers, self._webhook)
        return [receiver for receiver in both if receiver is not None]

    def start(self) -> None:
        for receiver in self._receivers:
            receiver.start()
        self._thread.start()

    def stop(self, deadline_s: float) -> None:
        """Evaluate once more and send what waits, within ``deadline_s``. Nothing is resolved."""
        until_s = time.monotonic() + deadline_s
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(deadline_s)
        for receiver in self._receivers:
            receiver.stop(max(0.0, until_s - time.monotonic()))
        self._guarded(self._keep_state)

    def take_over(self, alerts: Sequence[Alert]) -> None:
        """What fires at another shard for a run that has moved here: it goes on firing here, with
        the labels that it has, so that an Alertmanager sees one alert."""
        self._taken_over.put(alerts)

    def counts(self) -> dict[tuple[str, str], int]:
        """Requests by (receiver, outcome)."""
        return {key: n for receiver in self._receivers for key, n in receiver.counts().items()}

    @property
    def trouble(self) -> str:
        """Why the first receiver that does not accept alerts does not; empty if all do."""
        return next((receiver.trouble for receiver in self._receivers if receiver.trouble), "")

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            self._guarded(self.tick)
        self._guarded(self.tick)

    def _take_over_hangs(self, collector: str) -> None:
        """Without a saved state, take over the hangs that fire in Alertmanager, so that they are
        resolved there."""
        if self._alertmanagers is not None and not self._knows_before:
            known = self._alertmanagers.known({"collector": collector})
            hangs = (alert for alert in known if alert.name in HANGS)
            self._firing.hold(hangs, self._wall_s())
        self._knows_before = True

    def tick(self) -> None:
        """Evaluate once."""
        watched = self._worker.snapshot.watched
        if not watched.collector:
            return  # nothing has been published yet
        watched = replace(watched, troubles=self.troubles())
        self._take_over_hangs(watched.collector)
        self._hold_taken_over()
        self._firing.drop(self.has_moved)
        alerts = self._firing.follow(self._own(self._evaluate(watched)), watched)
        self._worker.show_alerts(self._firing.by_run)
        if self._alertmanagers is not None:
            self._alertmanagers.update(alerts, self._wall_s())
        if self._webhook is not None:
            self._notify(self._webhook, alerts)
        is_news = self._firing.keys != self._kept_keys
        self._kept_keys = self._firing.keys
        was_sent = self._webhook is not None and self._webhook.is_changed
        is_old = time.monotonic() - self._kept_at_s > _KEPT_FOR_S
        if is_news or was_sent or is_old:
            self._keep_state()

    def _hold_taken_over(self) -> None:
        while not self._taken_over.empty():
            alerts = self._taken_over.get()
            self._firing.hold(alerts, self._wall_s())
            for alert in alerts:
                if "run_id" in alert.labels and "collector" in alert.labels:
                    self._origins[alert.labels["run_id"]] = alert.labels["collector"]

    def _own(self, alerts: Iterable[Alert]) -> Iterator[Alert]:
        """Without those of runs that have moved away; of runs that have moved here under the
        ``collector`` that their first alert had. With links to this collector where no others are
        set."""
        for one in alerts:
            its_links = links(one.name, tuple(one.labels), self._links, one.labels)
            alert = replace(one, annotations={**its_links, **one.annotations})
            run_id = alert.labels.get("run_id", "")
            if self.has_moved(run_id):
                self._origins.pop(run_id, None)
                continue
            origin = self._origins.get(run_id)
            yield replace(alert, labels={**alert.labels, "collector": origin}) if origin else alert

    def _notify(self, webhook: Webhook, alerts: tuple[Alert, ...]) -> None:
        """Hand over alerts that may page and are not inhibited."""
        minimum = self._settings.min_severity
        calling = [alert for alert in alerts if calls(alert, minimum)]
        sent = uninhibited(calling, alerts)
        unreported = [each for each in calling if each.ends_at_s is not None and each not in sent]
        webhook.update(sent, (*unreported, *self._firing.given_up))

    def _holds_s(self, alert: Alert) -> float:
        if alert.name in HANGS:
            return self._give_up_s
        return _MISSED * max(self._settings.resend_s, self._every_s)

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:  # noqa: BLE001 - logged and counted; the next evaluation goes on
            self.failures += 1
            _log.exception("alerts could not be evaluated; the next evaluation goes on")

    # --- over restarts ---------------------------------------------------------------------------

    def _keep_state(self) -> None:
        self._kept_at_s = time.monotonic()
        state: dict[str, Any] = {
            "version": _STATE_VERSION,
            "at_s": self._wall_s(),
            "firing": self._firing.state(),
        }
        if self._origins:
            state["origins"] = self._origins
        if self._webhook is not None:
            state["webhook"] = self._webhook.state()
        self._keep(state)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from the saved state; before :meth:`start`.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is of another kind.
        """
        if state["version"] != _STATE_VERSION:
            raise ValueError(f"version {state['version']!r}")
        now_s = self._wall_s()
        self._firing.restore(state["firing"], now_s)
        self._origins = {str(k): str(v) for k, v in state.get("origins", {}).items()}
        self._knows_before = True
        if self._webhook is not None and "webhook" in state:
            self._webhook.restore(state["webhook"], max(0.0, now_s - float(state["at_s"])))


def notifying_for(
    settings: CollectorSettings,
    worker: Worker,
    keep: Callable[[dict[str, Any]], None],
) -> Notifying:
    alerts = settings.alerts
    hold_s = settings.liveness.max_timeout_s + max(
        alerts.hang_for_seconds,
        alerts.score_for_seconds,
        alerts.straggling_for_seconds,
        alerts.missing_for_seconds,
        alerts.no_data_seconds,
        alerts.run_slow_for_seconds,
    )
    return Notifying(
        alerts,
        worker,
        evaluate=AlertEvaluator(alerts).evaluate,
        firing=Firing(
            hold_s, alerts.give_up_seconds, alerts.keep_firing_seconds, alerts.failed_for_seconds
        ),
        keep=keep,
    )
