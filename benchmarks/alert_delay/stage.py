"""Everything that real alerts need, for many runs at once: servers, collectors, jobs, a webhook."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.alert_delay import servers
from benchmarks.alert_delay.jobs import Job, Launcher
from otel_straggler.demo.processes import Collector, find_alertmanager, start_alertmanager
from otel_straggler.demo.receiver import Received, Receiver

Json = dict[str, Any]
LONGEST_S = 180.0
"""For anything to happen, on a machine that does much else; a story alone takes up to 50 s."""


@dataclass(frozen=True, slots=True)
class Notification:
    """What an Alertmanager has sent about one run.

    Attributes:
        at_s: when it came, seconds since 1970.
        receiver: of the Alertmanager's file: "pager", "chat".
        status: "firing" or "resolved".
        alerts: all of it, each with labels, annotations, status.
    """

    at_s: float
    receiver: str
    status: str
    alerts: tuple[Json, ...]

    def names(self, status: str = "firing") -> list[str]:
        """The alerts of this status, each once."""
        return sorted({a["labels"]["alertname"] for a in self.alerts if a["status"] == status})

    def ranks(self, status: str = "firing") -> list[int]:
        """The ranks that are named."""
        named = [a["labels"].get("rank") for a in self.alerts if a["status"] == status]
        return sorted({int(rank) for rank in named if rank})

    @property
    def summary(self) -> str:
        """Which alerts fire in it and which have ended."""
        return f"{self.status}: {self.names()}, over: {self.names('resolved')}"

    @property
    def text(self) -> str:
        """All annotations, as one text."""
        return " ".join(" ".join(a["annotations"].values()) for a in self.alerts)


class Stage:
    """Servers on free ports, and a collector that most runs share.

    Args:
        folder: for all files; what a server printed stands there too.
        supervisor: URL of a supervisor that is paged, too.

    Raises:
        FileNotFoundError: a server is not installed.
    """

    def __init__(self, folder: Path, supervisor: str = "") -> None:
        prometheus, alertmanager = find_programs()
        self._closing = contextlib.ExitStack()
        self._lock = threading.Lock()
        self._targets: list[str] = []
        self._to_fail: dict[str, int] = {}
        self._folder = folder
        with self._closing:
            self.webhook = Receiver(self._answer)
            self._closing.callback(self.webhook.close)
            config = servers.alertmanager_config(self.webhook.url, supervisor)
            self.alertmanager = start_alertmanager(alertmanager, config, folder / "alertmanager")
            self._closing.callback(self.alertmanager.close)
            self.prometheus = servers.start_prometheus(
                prometheus, folder / "prometheus", servers.rules(), self.alertmanager.url
            )
            self._closing.callback(self.prometheus.close)
            self.launcher = Launcher(folder / "jobs")
            self._closing.callback(self.launcher.close)
            self.shared = self.collector("shared")
            self._closing = self._closing.pop_all()

    def close(self) -> None:
        self._closing.close()

    # --- what is watched ---------------------------------------------------------------------

    def collector(self, name: str, **changes: Mapping[str, Any]) -> Collector:
        """Start one more, and have it scraped.

        Args:
            name: its label.
            changes: of sections of its file.
        """
        settings: Json = {
            "metrics": {"collector_id": name},
            "alerts": {"mode": "page"},
            "scoring": {"window_steps": 20, "grace_seconds": 0.5},
            "liveness": {
                "lost_after_seconds": servers.LOST_AFTER_S,
                "min_timeout_seconds": servers.MIN_TIMEOUT_S,
                "unknown_timeout_seconds": 16 * servers.MIN_TIMEOUT_S,
                "max_timeout_seconds": 16 * servers.MIN_TIMEOUT_S,
            },
        }
        for section, values in changes.items():
            settings[section] = {**settings.get(section, {}), **values}
        file = self._folder / f"{name}.yaml"
        file.write_text(json.dumps(settings))
        collector = Collector(f"--config={file}")
        self._closing.callback(collector.close)
        self._scrape(collector.addresses["metrics"])
        return collector

    def start(self, run_id: str, collector: Collector | None = None, **more: Any) -> Job:
        """Start a job; further arguments are those of :class:`JobSpec`."""
        endpoint = (collector or self.shared).endpoint
        return self.launcher.start(run_id, endpoint, heartbeat_s=servers.HEARTBEAT_S, **more)

    def trained(self, run_id: str, collector: Collector | None = None, **more: Any) -> Job:
        """The same, and wait until its timeouts have been learnt: 40 steps."""
        job = self.start(run_id, collector, **more)
        self.wait_for_step(job, job.spec.first_step + 40, collector)
        return job

    def wait_for_step(self, job: Job, step: int, collector: Collector | None = None) -> None:
        """Until a window that ends after ``step`` of this attempt has been scored."""

        def is_there() -> bool:
            windows = self.report(job.run_id, collector).get("windows", [])
            return any(w["last_step"] >= step - 1 and w["attempt"] == job.spec.attempt
                       for w in windows)  # fmt: skip

        self.wait_until(is_there, lambda: f"{job.spec.name}: no window to step {step}\n{job.log}")

    def report(self, run_id: str, collector: Collector | None = None) -> Json:
        """What the collector says of a run; empty if it does not know it."""
        url = f"{(collector or self.shared).url}/v1/report?run={run_id}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            result: Json = json.load(answer)["runs"].get(run_id, {})
        return result

    def liveness(self, run_id: str, collector: Collector | None = None) -> Json:
        """State, culprits and sentence of its only group."""
        result = self.report(run_id, collector).get("liveness") or [{}]
        return dict(result[0])

    # --- reports -----------------------------------------------------------------------------

    def refuse(self, run_id: str, times: int) -> None:
        """Answer the next notifications about a run with 500."""
        with self._lock:
            self._to_fail[run_id] = times

    def reported(self, run_id: str, receiver: str = "pager") -> list[Notification]:
        """The notifications that were delivered, in order."""
        return [
            notification(one)
            for one in self.webhook.received
            if one.status == 200 and run_of(one) == run_id and one.path == f"/{receiver}"
        ]

    def refused(self, run_id: str) -> list[Notification]:
        """Those that were answered with an error."""
        received = self.webhook.received
        return [notification(o) for o in received if o.status != 200 and run_of(o) == run_id]

    def wait_for(
        self, run_id: str, alert: str, receiver: str = "pager", *, status: str = "firing"
    ) -> Notification:
        """The first notification that has this alert in this status."""

        def is_it(one: Received) -> bool:
            has_come = one.status == 200 and one.path == f"/{receiver}" and run_of(one) == run_id
            return has_come and alert in notification(one).names(status)

        one = self.webhook.wait_for(is_it, LONGEST_S)
        if one is None:
            raise TimeoutError(f"no {alert} of {run_id} at the {receiver}; {self.what_happened()}")
        return notification(one)

    def first(self, run_id: str) -> Notification:
        """The first that came to the pager."""
        self.wait_until(lambda: bool(self.reported(run_id)), lambda: f"no page about {run_id}")
        return self.reported(run_id)[0]

    def query(self, text: str) -> list[Json]:
        """What Prometheus answers: labels and values of series."""
        url = f"{self.prometheus.url}/api/v1/query?" + urllib.parse.urlencode({"query": text})
        with urllib.request.urlopen(url, timeout=30) as answer:
            result: list[Json] = json.load(answer)["data"]["result"]
        return result

    def ever_fired(self, run_id: str, severity: str = "critical") -> list[str]:
        """Names of the alerts that Prometheus has had firing about a run, at any time."""
        chosen = f'ALERTS{{run_id="{run_id}",severity="{severity}",alertstate="firing"}}'
        result = self.query(f"max by (alertname) (max_over_time({chosen}[1h]))")
        return sorted(series["metric"]["alertname"] for series in result)

    def wait_until(
        self, claim: Callable[[], bool], why: Callable[[], str], *, every_s: float = 0.1
    ) -> None:
        """Ask again and again.

        Raises:
            TimeoutError: with what ``why`` says.
        """
        ends_at_s = time.monotonic() + LONGEST_S
        while not claim():
            if time.monotonic() > ends_at_s:
                raise TimeoutError(f"{why()}\n{self.what_happened()}")
            time.sleep(every_s)

    def what_happened(self) -> str:
        """For a message: the last that came to the webhook, and the ends of the servers' logs."""
        came = [
            f"{one.at_s:.1f} {one.path} {one.status} {run_of(one)} {notification(one).summary}"
            for one in self.webhook.received[-20:]
        ]
        logs = (self.prometheus.log[-1500:], self.alertmanager.log[-1500:])
        return "\n".join([*came, *logs])

    def _scrape(self, address: str) -> None:
        with self._lock:
            self._targets.append(address)
            file = self._folder / "prometheus" / "targets.json"
            waiting = file.with_suffix(".new")
            waiting.write_text(json.dumps([{"targets": self._targets}]))
            waiting.rename(file)

    def _answer(self, _path: str, payload: Json) -> int:
        run_id = payload.get("groupLabels", {}).get("run_id", "")
        with self._lock:
            if self._to_fail.get(run_id, 0) > 0:
                self._to_fail[run_id] -= 1
                return 500
        return 200


def find_programs() -> tuple[str, str]:
    """Paths of Prometheus and of an Alertmanager.

    Raises:
        FileNotFoundError: one is not there.
    """
    prometheus, alertmanager = shutil.which("prometheus"), find_alertmanager()
    if prometheus is None or alertmanager is None:
        raise FileNotFoundError("prometheus or alertmanager is not installed (make servers)")
    return prometheus, alertmanager


def notification(one: Received) -> Notification:
    return Notification(
        at_s=one.at_s,
        receiver=one.path.removeprefix("/"),
        status=one.payload["status"],
        alerts=tuple(one.payload["alerts"]),
    )


def run_of(one: Received) -> str:
    """The run that a notification is about; empty if it is about none."""
    return str(one.payload.get("groupLabels", {}).get("run_id", ""))
