"""A collector, ranks that train, and a webhook: real processes on this machine, short timeouts."""

from __future__ import annotations

import contextlib
import json
import re
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from otel_straggler.demo.processes import (
    Collector,
    Server,
    config_of,
    find_alertmanager,
    start_alertmanager,
)
from otel_straggler.demo.receiver import Received, Receiver
from otel_straggler.demo.training import Fault, Training
from otel_straggler.errors import UnavailableError

RUN_ID = "demo"
MIN_STEPS = 80
"""Before the fault: timeouts and usual times have been learned."""
LONGEST_S = 60.0
LONGEST_START_S = 120.0
"""Loading torch can take a minute on a busy machine."""
QUICK = {
    "metrics": {"collector_id": "demo"},
    "scoring": {"window_steps": 20, "grace_seconds": 0.5},
    "liveness": {
        "lost_after_seconds": 3.0,
        "min_timeout_seconds": 3.0,
        "unknown_timeout_seconds": 20.0,
    },
}
"""Timeouts of the collector; by default a rank is lost after 20 s and stuck after 30 s or more."""
QUICK_ALERTS = {
    "mode": "page",
    "hang_for_seconds": 1.0,
    "straggling_for_seconds": 1.0,
    "evaluation_seconds": 1.0,
}
GROUP_WAIT_S = 1.0

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """The notification that is sent.

    Attributes:
        alerts: that fire in it; those that name the rank first.
        is_right: one of them names the rank, and where it is slow.
        delay_s: since the fault.
    """

    alerts: tuple[Json, ...]
    is_right: bool
    delay_s: float


class Demo:
    """Started by :meth:`start`; :meth:`close` ends it.

    Args:
        folder: for files and logs.
        section: in which a slow rank is slow.
        script: what the ranks run; see :class:`Training`.

    Attributes:
        alertmanager: None if none is installed.
        step: the last that has been scored.
    """

    webhook: Receiver
    collector: Collector
    training: Training

    def __init__(
        self, n_ranks: int, folder: Path, section: str, script: Sequence[str] = ()
    ) -> None:
        self._n_ranks = n_ranks
        self._section = section
        self._script = script
        self._folder = folder
        self._closing = contextlib.ExitStack()
        self._fault: Fault = "slow"
        self._fault_at_s = 0.0
        self.alertmanager: Server | None = None
        self.step = 0

    def start(self) -> None:
        """Start all processes.

        Raises:
            UnavailableError: one does not start.
        """
        self.webhook = Receiver()
        self._closing.callback(self.webhook.close)
        program = find_alertmanager()
        if program is not None:
            config = config_of(self.webhook.url, wait_s=GROUP_WAIT_S)
            self.alertmanager = start_alertmanager(program, config, self._folder / "alertmanager")
            self._closing.callback(self.alertmanager.close)
        self.collector = Collector(f"--config={self._settings_file()}")
        self._closing.callback(self.collector.close)
        log = self._folder / "ranks.log"
        self.training = Training(
            self.collector.endpoint,
            RUN_ID,
            self._n_ranks,
            log,
            section=self._section,
            script=self._script,
        )
        self._closing.callback(self.training.close)

    def close(self) -> None:
        self._closing.close()

    def wait_until_trained(self, seconds: float) -> None:
        """Wait ``seconds`` after the first window, and until enough is known of the run.

        Raises:
            UnavailableError: it does not train; with the end of its log.
        """
        self._wait_for_step(1, LONGEST_START_S)
        ends_at_s = time.monotonic() + seconds
        self._wait_for_step(MIN_STEPS, LONGEST_S)
        time.sleep(max(0.0, ends_at_s - time.monotonic()))

    def inject(self, fault: Fault, rank: int) -> None:
        self._fault = fault
        self._fault_at_s = time.time()
        self.training.inject(fault, rank)

    def wait_for_alert(self, rank: int) -> Arrival:
        """The first notification that names the rank, else the first of any.

        Raises:
            UnavailableError: no notification comes.
        """
        result = self.webhook.wait_for(lambda one: _names(one, rank), LONGEST_S)
        came = [result] if result is not None else list(self.webhook.received)
        if not came:
            self._give_up("the webhook", "no notification", f"one within {LONGEST_S:g} s")
        firing = [a for a in came[0].payload["alerts"] if a["status"] == "firing"]
        firing.sort(key=lambda alert: alert["labels"].get("rank") != str(rank))
        where = firing[0]["annotations"].get("section") if firing else None
        return Arrival(
            alerts=tuple(firing),
            is_right=result is not None and (self._fault != "slow" or where == self._section),
            delay_s=came[0].at_s - self._fault_at_s,
        )

    def _wait_for_step(self, step: int, timeout_s: float) -> None:
        ends_at_s = time.monotonic() + timeout_s
        while self.step < step:
            if self.training.exit_codes or time.monotonic() > ends_at_s:
                self._give_up("training", f"step {self.step}", f"step {step}")
            time.sleep(0.1)
            url = f"{self.collector.url}/v1/report?run={RUN_ID}"
            with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310  ours
                windows = json.load(answer)["runs"].get(RUN_ID, {}).get("windows", [])
            self.step = windows[-1]["last_step"] + 1 if windows else 0

    def _settings_file(self) -> Path:
        file = self._folder / "collector.yaml"
        file.write_text(json.dumps({**QUICK, "alerts": self._alerts()}))
        return file

    def _alerts(self) -> Json:
        if self.alertmanager is not None:
            return {**QUICK_ALERTS, "notify": {"alertmanagers": [self.alertmanager.url]}}
        whom = {"webhook": self.webhook.url, "interval_seconds": GROUP_WAIT_S}
        return {**QUICK_ALERTS, "notify": whom}

    def _give_up(self, where: str, value: str, expected: str) -> NoReturn:
        raise UnavailableError.of(
            where, value, expected, f"The ranks' log ends with:\n{self.training.log}"
        )


def began_at_s(alert: Json) -> float:
    """Seconds since 1970.

    >>> began_at_s({"startsAt": "1970-01-01T00:01:00.123456789Z"})
    60.0
    """
    text = re.sub(r"\.\d+", "", alert["startsAt"]).replace("Z", "+00:00")
    return datetime.fromisoformat(text).timestamp()


def _names(one: Received, rank: int) -> bool:
    """Whether an alert that fires names the rank, by label or text."""
    return any(
        alert["labels"].get("rank") == str(rank)
        or re.search(rf"\b[Rr]anks? {rank}\b", " ".join(alert["annotations"].values()))
        for alert in one.payload["alerts"]
        if alert["status"] == "firing"
    )
