"""A run of a few ranks that is sent live, and how late it is seen."""

from __future__ import annotations

import http.client
import json
import math
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from otel_straggler import semconv
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.encode_metrics import encode_heartbeat
from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import encode_requests

RUN_ID = "honest"
RANKS = 4
WINDOW_STEPS = 20
STEPS_AT_ONCE = 5
PATIENCE_S = 30.0
PROTOBUF = "application/x-protobuf"


def ask(
    address: str, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    """Status and content, over a connection of its own."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
    try:
        connection.request(method, path, body, headers or {"Content-Type": PROTOBUF})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@dataclass
class Seen:
    """What the run has seen; times in seconds.

    Attributes:
        heartbeat_s: until each heartbeat was answered; infinite if it was not accepted.
        windows_late: whole windows between the newest step sent and the newest window reported.
        refused: requests that were not accepted at the first try.
    """

    heartbeat_s: list[float] = field(default_factory=list)
    windows_late: list[int] = field(default_factory=list)
    refused: int = 0


class HonestRun:
    """Sends steps and heartbeats, each from a connection of its own, until it is ended."""

    def __init__(self, addresses: dict[str, str], step_s: float, steps: int) -> None:
        plan = Plan(run_id=RUN_ID, ranks=RANKS, steps=steps, slow_rank=2, ranks_per_node=2)
        batch = simulate("one_slow_rank", plan).batch
        n_rows = len(batch) // (steps * RANKS)
        self._requests = list(encode_requests(batch, n_rows * STEPS_AT_ONCE))
        self._addresses = addresses
        self._step_s = step_s
        self._sent_step = -1
        self._ended = threading.Event()
        self.seen = Seen()
        self._threads = [
            threading.Thread(target=work, daemon=True)
            for work in (self._send_steps, self._send_heartbeats, self._look)
        ]

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()

    def begin_measuring(self) -> None:
        self.seen = Seen()

    def end(self) -> Seen:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        return self.seen

    def has_windows(self) -> bool:
        return bool(self.seen.windows_late)

    def _send_steps(self) -> None:
        began_s = time.monotonic()
        for number in range(0, len(self._requests), RANKS):
            step = (number // RANKS + 1) * STEPS_AT_ONCE
            if self._ended.wait(max(0.0, began_s + step * self._step_s - time.monotonic())):
                return
            self._sent_step = step - 1
            for body in self._requests[number : number + RANKS]:
                while not self._is_accepted("traces", body) and not self._ended.is_set():
                    self.seen.refused += 1
                    time.sleep(0.1)

    def _send_heartbeats(self) -> None:
        while not self._ended.wait(0.1):
            for rank in range(RANKS):
                source = Source(run_id=RUN_ID, rank=rank, world_size=RANKS)
                resource = {semconv.RUN_ID: RUN_ID, semconv.RANK: rank, semconv.WORLD_SIZE: RANKS}
                beat = Heartbeat(source=source, sent_at_s=time.time(), progress_at_s=time.time())
                body = encode_heartbeat(
                    beat, resource={str(k): v for k, v in resource.items()}, info={},
                    started_at_s=1.0,
                )  # fmt: skip
                began_s = time.monotonic()
                is_accepted = self._is_accepted("metrics", body)
                took_s = time.monotonic() - began_s
                self.seen.heartbeat_s.append(took_s if is_accepted else math.inf)

    def _is_accepted(self, signal: str, body: bytes) -> bool:
        try:
            status, _ = ask(self._addresses["otlp_http"], "POST", f"/v1/{signal}", body)
        except OSError:
            return False
        return status == 200

    def _look(self) -> None:
        while not self._ended.wait(0.2):
            sent = self._sent_step  # before asking: what is sent meanwhile is not late
            newest = self._newest_step()
            if newest is not None:
                self.seen.windows_late.append(max(0, (sent - newest) // WINDOW_STEPS))

    def _newest_step(self) -> int | None:
        """The last step of the newest window in the report; None while there is none."""
        try:
            status, content = ask(self._addresses["metrics"], "GET", f"/v1/report?run={RUN_ID}")
        except OSError:
            return -1 if self.seen.windows_late else None
        runs: dict[str, Any] = json.loads(content)["runs"] if status == 200 else {}
        windows = runs.get(RUN_ID, {}).get("windows", [])
        if not windows:
            return -1 if self.seen.windows_late else None
        return max(int(window["last_step"]) for window in windows)
