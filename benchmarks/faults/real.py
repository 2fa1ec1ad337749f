"""Faults that real gloo ranks inject into themselves, and what a real collector makes of them.

Truth comes from the telemetry: the spans of the faults, which the collector forwards.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from benchmarks.alert_delay import servers
from benchmarks.alert_delay.jobs import Launcher
from benchmarks.alert_delay.stage import notification
from benchmarks.faults.grading import Watch, as_json, grade
from otel_straggler import semconv
from otel_straggler.demo.processes import Collector
from otel_straggler.demo.receiver import Receiver
from otel_straggler.inject.faults import MAX_S, Fault
from otel_straggler.testing import CapturedRequests, CapturedSpan

Json = dict[str, Any]
RANKS: Final = 4
DECK: Final = (
    "rank_killed", "rank_hung+14s", "rank_stuck+14s", "compute:1.5+15s", "data:0.03+15s",
    "exception", "gil_locked+14s", "compute:2+15s", "rank_killed", "backward:2.5+15s",
    "rank_hung+14s", "rank_stuck+14s", "late:0.03+15s", "exception", "gil_locked+14s",
    "compute:1.3+15s", "data:0.05+15s", "rank_killed", "rank_hung+14s", "rank_stuck+14s",
)  # fmt: skip
"""Kinds that a collector claims to find, each for so long."""
ONSETS: Final = range(60, 80)
LONGEST_S, SETTLE_S, HEALTHY_S, POLL_S = 60.0, 5.0, 25.0, 0.1


def draw(n_faults: int, seed: int) -> list[Fault]:
    """From the deck, on ranks and at steps that ``seed`` draws."""
    chance = random.Random(seed)
    texts = [DECK[at % len(DECK)] for at in range(n_faults)]
    return [_placed(text, chance) for text in texts]


def _placed(text: str, chance: random.Random) -> Fault:
    kind, plus, lasts = text.partition("+")
    who, step = chance.randrange(RANKS), chance.choice(ONSETS)
    return Fault.parse(f"{kind}@rank{who}:step{step}{plus}{lasts}")


class Scene:
    """A collector, whom it forwards to, whom it notifies, and a launcher of ranks."""

    def __init__(self, folder: Path) -> None:
        self._closing = contextlib.ExitStack()
        with self._closing:
            self.sink = self._closing.enter_context(CapturedRequests())
            self.receiver = Receiver()
            self._closing.callback(self.receiver.close)
            file = folder / "collector.yaml"
            file.write_text(json.dumps(self._settings()))
            self.collector = Collector(f"--config={file}")
            self._closing.callback(self.collector.close)
            self.launcher = Launcher(folder / "jobs")
            self._closing.callback(self.launcher.close)
            self._closing = self._closing.pop_all()

    def close(self) -> None:
        self._closing.close()

    def report(self, run_id: str) -> Json:
        url = f"{self.collector.url}/v1/report?run={run_id}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            result: Json = json.load(answer)["runs"].get(run_id, {})
        return result

    def injected(self, run_id: str) -> CapturedSpan | None:
        """The span of the fault of a run."""
        for request in tuple(self.sink.requests):
            if semconv.FAULT_SPAN.encode() in request.body and run_id.encode() in request.body:
                return _fault_span(request.decode())
        return None

    def alerts(self, run_id: str) -> list[Json]:
        """Alerts that notified somebody of a run: name and rank."""
        every = [a for one in self.receiver.received for a in notification(one).alerts]
        sent = [a for a in every if a["labels"].get("run_id") == run_id and a["status"] == "firing"]
        named = {(a["labels"]["alertname"], a["labels"].get("rank", "")) for a in sent}
        return [{"alert": name, "rank": rank} for name, rank in sorted(named)]

    def _settings(self) -> Json:
        return {
            "scoring": {"window_steps": 20, "grace_seconds": 0.5},
            "liveness": {
                "lost_after_seconds": servers.LOST_AFTER_S,
                "min_timeout_seconds": servers.MIN_TIMEOUT_S,
                "unknown_timeout_seconds": 16 * servers.MIN_TIMEOUT_S,
                "max_timeout_seconds": 16 * servers.MIN_TIMEOUT_S,
            },
            "forward": {"url": self.sink.url, "mode": "all"},
            "alerts": {
                **servers.ALERTS,
                "mode": "page",
                "notify": {"webhook": self.receiver.url, "interval_seconds": 0.5},
            },
        }


def _fault_span(message: Any) -> CapturedSpan | None:
    from otel_straggler.testing import _spans_of

    return next((span for span in _spans_of(message) if span.name == semconv.FAULT_SPAN), None)


def run_all(scene: Scene, faults: Sequence[Fault | None], at_once: int) -> Iterator[Json]:
    """A training for each; None: one without a fault."""
    with ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(lambda numbered: run_one(scene, *numbered), enumerate(faults))


def run_one(scene: Scene, number: int, fault: Fault | None) -> Json:
    """Train, watch, and grade."""
    run_id = f"injected-{number}"
    environment = {} if fault is None else {"OTEL_STRAGGLER_INJECT": str(fault)}
    job = scene.launcher.start(
        run_id, scene.collector.endpoint, heartbeat_s=servers.HEARTBEAT_S, environment=environment
    )
    watch, began_s, span = Watch(), time.time(), None
    ends_s = began_s + (HEALTHY_S if fault is None else LONGEST_S)
    while time.time() < ends_s:
        time.sleep(POLL_S)
        watch.read(scene.report(run_id), time.time())
        if fault is not None and span is None:
            span = scene.injected(run_id)
        if fault is not None and span is not None:
            ends_s = min(ends_s, _ends_s(fault, span, watch))
    job.kill()
    return _result(scene, run_id, fault, watch, span)


def _ends_s(fault: Fault, span: CapturedSpan, watch: Watch) -> float:
    """Some time after its end; of a fault without one, after it was found."""
    found = watch.named.get(("hang", f"rank {fault.ranks[0]}"))
    if fault.lasts_s == MAX_S:
        return LONGEST_S + time.time() if found is None else found.at_s + SETTLE_S
    return span.start_ns / 1e9 + fault.lasts_s + SETTLE_S


def _result(
    scene: Scene, run_id: str, fault: Fault | None, watch: Watch, span: CapturedSpan | None
) -> Json:
    alerts = scene.alerts(run_id)
    if fault is None:
        return {"run": run_id, "faults": [], "wrong": as_json(watch.named.values()),
                "alerts": alerts, "wrong_alerts": alerts}  # fmt: skip
    (rank,) = fault.ranks
    if span is None:
        raise RuntimeError(f"{run_id}: {fault} has no span in the telemetry")
    if span.is_error:
        raise RuntimeError(f"{run_id}: {span.attributes[semconv.FAULT_REASON]}")
    graded, others = grade(
        watch, fault.kind, rank, span.start_ns / 1e9, span.attributes.get(semconv.STEP)
    )
    wrong_alerts = [each for each in alerts if each["rank"] not in ("", str(rank))]
    return {"run": run_id, "faults": [{"fault": str(fault), **graded}], "wrong": as_json(others),
            "alerts": alerts, "wrong_alerts": wrong_alerts}  # fmt: skip
