"""A test alert through the real route, and where it arrived."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final, cast
from urllib.parse import quote

from otel_straggler.alerts.rule import FleetStatus
from otel_straggler.collector.alerting.alert_json import (
    fingerprint,
    posted_alert,
    rfc3339,
    webhook_payload,
)
from otel_straggler.collector.alerting.alertmanager import PATH
from otel_straggler.collector.alerting.posting import (
    Access,
    NotifySettings,
    Poster,
    answer_of,
    tried_once,
)
from otel_straggler.collector.alerting.webhook import calls
from otel_straggler.collector.settings import CollectorSettings
from otel_straggler.model.alert import Alert, Mode, Severity
from otel_straggler.model.json_body import JsonBody
from otel_straggler.secret import without_path
from otel_straggler.strict_json import parse_json

TRIAL: Final = "StragglerTest"
MAX_TRIAL_S: Final = 3_600.0
_READ_BACK_S: Final = 5.0
_PAUSE_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Outcome of a test alert at one address.

    Attributes:
        url: without what is secret; of a webhook only its host.
        arrived: read back from an Alertmanager, or accepted by a webhook.
        why: why not; a message.
        receivers: to which an Alertmanager routes it.
        silenced_by, inhibited_by: ids of silences and alerts that suppress it.
    """

    url: str
    arrived: bool
    why: str = ""
    receivers: tuple[str, ...] = ()
    silenced_by: tuple[str, ...] = ()
    inhibited_by: tuple[str, ...] = ()


def trial_alert(
    severity: Severity, mode: Mode, *, now_s: float, lasts_s: float, labels: dict[str, str]
) -> Alert:
    """The alert, which fires for ``lasts_s``; empty labels are left out."""
    own = {
        "alertname": TRIAL,
        "test": "true",
        "severity": severity,
        "domain": "platform",
        "mode": mode,
        **labels,
    }
    return Alert(
        labels={name: value for name, value in own.items() if value},
        annotations={
            "summary": "A test of the alerts of otel-straggler",
            "description": "Somebody tries where alerts arrive. Nothing is wrong, and nothing has "
            f"to be done. It ends by itself at {rfc3339(now_s + lasts_s)}.",
        },
        starts_at_s=now_s,
    )


def try_alertmanagers(
    urls: Sequence[str], access: Access, alert: Alert, ends_at_s: float
) -> tuple[Destination, ...]:
    """Post to every replica and read it back. Cost: for each, the timeout and 5 s at most."""
    return tuple(_try_one(url.rstrip("/"), access, alert, ends_at_s) for url in urls)


def _try_one(url: str, access: Access, alert: Alert, ends_at_s: float) -> Destination:
    with closing(Poster(url + PATH, access, logs=False)) as poster:
        body = json.dumps([posted_alert(alert, ends_at_s, "")]).encode()
        answer = poster.post(body)
        if answer.outcome != "accepted":
            return Destination(url=url, arrived=False, why=tried_once(answer.why))
        matcher = quote(f'alertname="{TRIAL}"', safe="")
        return _read_back(poster, f"{url}{PATH}?filter={matcher}", url, alert)


def _read_back(poster: Poster, page: str, url: str, alert: Alert) -> Destination:
    until_s = time.monotonic() + _READ_BACK_S
    wanted = fingerprint(alert.labels)
    while True:
        response = poster.get(page)
        if not response.is_success:
            why = f"It was accepted, but cannot be read back. {answer_of(response, page).why}"
            return Destination(url=url, arrived=False, why=why)
        try:
            result = {one["fingerprint"]: one for one in parse_json(response.body, None)}
            if wanted in result:
                return Destination(
                    url=url,
                    arrived=True,
                    receivers=tuple(str(one["name"]) for one in result[wanted]["receivers"]),
                    silenced_by=tuple(map(str, result[wanted]["status"]["silencedBy"])),
                    inhibited_by=tuple(map(str, result[wanted]["status"]["inhibitedBy"])),
                )
        except (ValueError, TypeError, KeyError):
            why = f"{page}: what it answers is not Alertmanager's. Check the URL."
            return Destination(url=url, arrived=False, why=why)
        if time.monotonic() >= until_s:
            why = f"{url}: it took the alert and does not have it. Is its clock right?"
            return Destination(url=url, arrived=False, why=why)
        time.sleep(_PAUSE_S)


def try_webhook(url: str, access: Access, alert: Alert) -> Destination:
    """Send a webhook that it fires, or that it has ended."""
    with closing(Poster(url, access, logs=False, has_secret_path=True)) as poster:
        payload = webhook_payload((alert,), left_out=0, page="")
        answer = poster.post(json.dumps(payload).encode())
        return Destination(
            url=poster.shown, arrived=answer.outcome == "accepted", why=tried_once(answer.why)
        )


_SEVERITIES = ("info", "warning", "critical")
_NOBODY = (
    "This collector notifies nobody. Name Alertmanagers or a webhook in alerts.notify "
    "of its file, unless Prometheus has the rules."
)
_OBSERVES = "alerts.mode is observe: real alerts carry mode=observe as well, and notify nobody."
_NOT_SENT = "not sent: a webhook gets no alerts while alerts.mode is observe."


class Trials:
    """The test alerts of a collector. A webhook is notified that one has ended; that is one timer,
    as a new test ends the one before. Call it from one thread at a time.

    Args:
        timer: makes the timer of an end.
    """

    def __init__(
        self,
        settings: CollectorSettings,
        timer: Callable[[float, Callable[[], object]], threading.Timer] = threading.Timer,
    ) -> None:
        self._settings = settings
        self._timer = timer
        self._ending: tuple[threading.Timer, Callable[[], object]] | None = None

    def send(self, body: bytes, watched: FleetStatus, now_s: float) -> dict[str, Any]:
        """Send a test alert, with the labels of ``watched``, as a request asks for it: JSON with
        ``severity`` and ``seconds``.

        Raises:
            InputError: it is not valid.
        """
        request = JsonBody(body, "See docs/operate/notify-without-prometheus.md.")
        severity = request.text("severity")
        if severity not in _SEVERITIES:
            raise request.wrong("severity", severity, f"one of {', '.join(_SEVERITIES)}")
        seconds = request.number("seconds", 1.0, MAX_TRIAL_S, "a number of 1 to 3600")
        notify, mode = self._settings.alerts.notify, self._settings.mode
        labels = {"collector": watched.collector, "cluster": watched.cluster}
        alert = trial_alert(
            cast("Severity", severity), mode, now_s=now_s, lasts_s=seconds, labels=labels
        )
        ends_at_s = now_s + seconds
        destinations: tuple[Destination, ...] = ()
        if notify.alertmanagers:
            destinations = try_alertmanagers(notify.alertmanagers, notify, alert, ends_at_s)
        elif notify.webhook:
            destinations = (self._to_webhook(notify, alert, seconds),)
        note = _NOBODY if not destinations else _OBSERVES if mode == "observe" else ""
        return {
            "labels": dict(alert.labels),
            "ends_at": rfc3339(ends_at_s),
            "note": note,
            "places": [asdict(destination) for destination in destinations],
        }

    def _to_webhook(self, notify: NotifySettings, alert: Alert, seconds: float) -> Destination:
        """Send that it fires now and, from a timer, that it has ended."""
        if not calls(alert, notify.min_severity):
            why = f"not sent: it gets nothing below {notify.min_severity}."
            is_page = alert.labels["mode"] == "page"
            shown = without_path(notify.webhook)
            return Destination(url=shown, arrived=False, why=why if is_page else _NOT_SENT)
        self._end_now()
        destination = try_webhook(notify.webhook, notify, alert)
        if destination.arrived and notify.send_resolved:
            ended = replace(alert, ends_at_s=alert.starts_at_s + seconds)
            self._end_later(seconds, partial(try_webhook, notify.webhook, notify, ended))
        return destination

    def _end_later(self, seconds: float, end: Callable[[], object]) -> None:
        timer = self._timer(seconds, end)
        timer.daemon = True
        timer.start()
        self._ending = timer, end

    def _end_now(self) -> None:
        """End the test before, if it still fires."""
        before, self._ending = self._ending, None
        if before is not None and not before[0].finished.is_set():
            before[0].cancel()
            before[1]()
