"""A run with one slow rank, as a program would record it, and a collector that it is sent to."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_straggler import semconv
from otel_straggler.collector.views.report_json import window_json
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.model.observation import merge_batches
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import encode_requests

from ..collector.conftest import kit, live, start  # noqa: F401 - fixtures

WINDOW_STEPS = 10
PLAN = Plan(ranks=4, steps=WINDOW_STEPS + 3, slow_rank=2, slowdown=1.6, run_id="job")
SEND_S = 120
JAVASCRIPT = Path(__file__).parent / "javascript"


@dataclass(frozen=True)
class RankRecord:
    """What one rank recorded: name, start and end in ns, attributes of every span."""

    resource: dict[str, Any]
    spans: list[tuple[str, int, int, dict[str, Any]]]


@pytest.fixture(scope="session")
def recorded() -> list[RankRecord]:
    """Four ranks; who sent is told with the plainest names that are understood."""
    batch = simulate("one_slow_rank", PLAN).batch
    records = []
    for code, source in enumerate(batch.sources):
        resource = {"service.name": "job", "rank": source.rank, "world_size": source.world_size}
        spans = []
        for row in np.flatnonzero(batch.source == code).tolist():
            section, start_ns = batch.sections[batch.section[row]], int(batch.start_ns[row])
            end_ns = start_ns + int(np.rint(batch.duration_s[row] * 1e9))
            reported = {
                "global_step": int(batch.step[row]),
                str(semconv.SECTION_KIND): section.kind,
            }
            spans.append((section.name, start_ns, end_ns, reported))
        records.append(RankRecord(resource, spans))
    return records


@pytest.fixture(scope="session")
def expected() -> dict[str, Any]:
    """The first window, by the pure core."""
    requests = encode_requests(simulate("one_slow_rank", PLAN).batch)  # times in whole ns
    batch = merge_batches([SpanDecoder().decode(body).batch for body in requests])
    scorer = Scorer(ScoreSettings(window_steps=WINDOW_STEPS))
    scorer.observe(batch.take(np.argsort(batch.start_ns, kind="stable")), now_ns=0)
    window = window_json(scorer.close_all()[0])
    assert {s["rank"] for s in window["stragglers"]} == {2}
    return window


@pytest.fixture
def collector(start: Callable[..., Any]) -> Any:  # noqa: F811
    """On free ports, with the window that is expected."""
    return start(scoring__window_steps=WINDOW_STEPS, scoring__grace_s=60.0)


@pytest.fixture(scope="session")
def javascript() -> Callable[..., None]:
    """Runs ``send.mjs``; without Node or the SDK a failure under CI, else a skip."""
    node = shutil.which("node")
    if node is None or not (JAVASCRIPT / "node_modules" / "@opentelemetry").is_dir():
        _absent("Node or OpenTelemetry's JavaScript SDK is not installed (make servers)")
    version = subprocess.run([str(node), "--version"], capture_output=True, text=True, check=True)
    numbers = [int(part) for part in re.findall(r"\d+", version.stdout)]
    if numbers < [18, 19]:
        _absent(f"Node {version.stdout.strip()} is older than 18.19, which the SDK needs")

    def send(form: str, url: str, compression: str, run: list[dict[str, Any]]) -> None:
        command = [str(node), "send.mjs", form, url, compression]
        done = subprocess.run(
            command, cwd=JAVASCRIPT, input=json.dumps(run), capture_output=True, text=True,
            timeout=SEND_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""

    return send


def _absent(what: str) -> None:
    sentence = f"{what}: whether its spans are scored was not tried"
    if os.environ.get("CI"):
        pytest.fail(sentence)
    pytest.skip(sentence)
