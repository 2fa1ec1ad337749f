"""A file, a live collector and the score core itself say the same of the same run."""

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_straggler.collector.views.report_json import window_json
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.otlp.clients.grpc import EXPORT_METHODS, GrpcClient
from otel_straggler.simulate.scenarios import SCENARIOS, Plan, Scenario, simulate
from otel_straggler.simulate.writers import as_json_line, encode_requests, write_csv

WINDOW_STEPS = 20
PLAN = Plan(steps=WINDOW_STEPS + 5, slow_rank=5, slowdown=1.6, section="backward", seed=11)
COMMAND = (sys.executable, "-m", "otel_straggler.cli")
LONGEST_S = 60
Json = dict[str, Any]


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """One for all: the runs of each test are of a job of their own, of whose ranks it has no
    history. Gives its ready line."""
    ports = [
        word
        for name in ("otlp-http", "otlp-grpc", "metrics")
        for word in (f"--{name}", "127.0.0.1:0")
    ]
    config = tmp_path_factory.mktemp("collector") / "collector.yaml"
    config.write_text("scoring: {grace_seconds: 2}\n")  # of a rank that is missing
    process = subprocess.Popen(
        [*COMMAND, "collector", *ports, "--config", config, "--window-steps", str(WINDOW_STEPS)],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    alarm = threading.Timer(4 * LONGEST_S, process.kill)
    alarm.start()
    yield json.loads(process.stdout.readline())
    alarm.cancel()
    process.terminate()
    process.wait(timeout=LONGEST_S)
    process.stdout.close()


@pytest.mark.parametrize("name", SCENARIOS)
def test_all_paths_agree(name: str, collector: dict[str, str], tmp_path: Path) -> None:
    """CSV, OTLP-JSON, OTLP over HTTP, over gRPC and plain calls: the same scores and stragglers."""
    run = made(name, replace(PLAN, run_id=name))
    expected = by_scorer(run)
    assert listed(expected) == {(rank, section) for rank, section in run.truth.slow}
    for window in (
        by_csv(run, tmp_path),
        by_otlp_json(run, tmp_path),
        by_collector(run, collector),
        by_collector_over_grpc(run, collector),
    ):
        assert (window["first_step"], window["last_step"]) == (0, WINDOW_STEPS - 1)
        assert listed(window) == listed(expected)
        for table in ("section_relative_scores", "section_individual_scores", "section_medians_s"):
            agree(window[table], expected[table])


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_window_of_a_live_collector_is_that_of_the_core(
    name: str, collector: dict[str, str]
) -> None:
    """Also later windows, whose individual scores stand on those before, agree to 1e-9."""
    steps = {"steps": 4 * WINDOW_STEPS, "onset_step": 2 * WINDOW_STEPS}
    plan = replace(PLAN, run_id=f"{name} window by window", **steps)
    run = made(name, plan)
    scorer = Scorer(ScoreSettings(window_steps=WINDOW_STEPS))
    scorer.observe(run.batch.take(np.argsort(run.batch.start_ns, kind="stable")), now_ns=0)
    expected = [window_json(window) for window in scorer.close_all()][:-1]
    assert len(expected) == 3
    for number, window in enumerate(windows_as_they_close(run, collector)):
        assert window["first_step"] == number * WINDOW_STEPS
        assert listed(window) == listed(expected[number])
        assert window["missing_ranks"] == expected[number]["missing_ranks"]
        for table in ("section_relative_scores", "section_individual_scores", "section_medians_s"):
            agree(window[table], expected[number][table])


def made(name: str, plan: Plan) -> Scenario:
    """A run of a job that is called as the run is."""
    run = simulate(name, plan)
    sources = tuple(replace(source, job=plan.run_id) for source in run.batch.sources)
    return replace(run, batch=replace(run.batch, sources=sources))


def windows_as_they_close(run: Scenario, addresses: dict[str, str]) -> Iterator[Json]:
    """Send one window's steps at a time; each closes the window before it."""
    for first in range(0, run.plan.steps, WINDOW_STEPS):
        is_now = (run.batch.step >= first) & (run.batch.step < first + WINDOW_STEPS)
        for body in encode_requests(run.batch.take(is_now)):
            post(f"http://{addresses['otlp_http']}/v1/traces", body)
        if first:
            yield newest_window(run, addresses, first - WINDOW_STEPS)


def listed(window: Json) -> set[tuple[int, str]]:
    return {(s["rank"], s["section"]) for s in window["stragglers"]}


def agree(one: Json, other: Json) -> None:
    """The same ranks and sections; the same numbers to 1e-9."""
    assert {name: set(column) for name, column in one.items()} == {
        name: set(column) for name, column in other.items()
    }
    for name, column in other.items():
        assert one[name] == pytest.approx(column, rel=1e-9)


def by_scorer(run: Scenario) -> Json:
    """The pure core, fed at once."""
    scorer = Scorer(ScoreSettings(window_steps=WINDOW_STEPS))
    scorer.observe(run.batch.take(np.argsort(run.batch.start_ns, kind="stable")), now_ns=0)
    return window_json(scorer.close_all()[0])


def by_csv(run: Scenario, folder: Path) -> Json:
    path = folder / "run.csv"
    path.write_text("".join(write_csv([run.batch])))
    return by_score(path, run)


def by_otlp_json(run: Scenario, folder: Path) -> Json:
    path = folder / "run.jsonl"
    path.write_text("".join(map(as_json_line, encode_requests(run.batch))))
    return by_score(path, run)


def by_score(path: Path, run: Scenario) -> Json:
    """The command, on a file."""
    options = ("--window-steps", str(WINDOW_STEPS), "--json")
    answer = subprocess.run(
        [*COMMAND, "score", str(path), *options],
        stdout=subprocess.PIPE,
        timeout=LONGEST_S,
        check=True,
    )
    return json.loads(answer.stdout)["runs"][run.plan.run_id]["windows"][0]


def by_collector(run: Scenario, addresses: dict[str, str]) -> Json:
    """A live collector, over HTTP: it closes the first window when the ranks have passed it."""
    for body in encode_requests(run.batch):
        post(f"http://{addresses['otlp_http']}/v1/traces", body)
    return newest_window(run, addresses, 0)


def by_collector_over_grpc(run: Scenario, addresses: dict[str, str]) -> Json:
    """The same collector, as another run, by the client of a training process."""
    other = made(run.name, replace(run.plan, run_id=f"{run.plan.run_id} over gRPC"))
    client = GrpcClient(f"http://{addresses['otlp_grpc']}", EXPORT_METHODS["traces"])
    for body in encode_requests(other.batch):
        assert client.post(body, content_type="application/x-protobuf").status == 200
    client.close()
    return newest_window(other, addresses, 0)


def newest_window(run: Scenario, addresses: dict[str, str], first_step: int) -> Json:
    """The window that begins there, once it is the newest."""
    deadline_s = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline_s:
        with urllib.request.urlopen(f"http://{addresses['metrics']}/v1/report") as answer:
            runs = json.load(answer)["runs"]
        windows = runs.get(run.plan.run_id, {}).get("windows")
        if windows and windows[-1]["first_step"] == first_step:
            newest: Json = windows[-1]
            return newest
        time.sleep(0.1)
    pytest.fail(f"the collector closed no window that begins with step {first_step}")


def post(url: str, body: bytes) -> None:
    request = urllib.request.Request(
        url, data=body, headers={"Content-Type": "application/x-protobuf"}
    )
    with urllib.request.urlopen(request, timeout=LONGEST_S) as answer:
        assert answer.status == 200
