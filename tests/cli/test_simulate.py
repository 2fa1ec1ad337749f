"""`otel-straggler simulate` as users call it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator

import pytest

from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import (
    CollectorSettings,
    MetricsSettings,
    ReceiverSettings,
)
from otel_straggler.testing import CapturedRequests

from ..waiting import eventually

FREE = "127.0.0.1:0"


@pytest.fixture(scope="module")
def collector() -> Iterator[dict[str, str]]:
    """Addresses of a real one."""
    running = Collector(
        CollectorSettings(
            receivers=ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE),
            metrics=MetricsSettings(listen=FREE),
        )
    )
    try:
        yield running.start()
    finally:
        running.stop()


@pytest.mark.parametrize(
    ("arguments", "destination", "value"),
    [
        (("--ranks", "0"), "ranks", "0"),
        (("--slow-rank", "9"), "slow_rank", "9"),
        (("--slowdown", "0.5"), "slowdown", "0.5"),
        (("--section", "x"), "section", "x"),
        (("--steps", "-1"), "steps", "-1"),
        (("-o", "/nonexistent/x"), "--output", "/nonexistent/x"),
    ],
)
def test_a_wrong_value_is_one_line_with_place_value_and_remedy(
    call, arguments: tuple[str, ...], destination: str, value: str
) -> None:
    """Exit code 2, nothing on standard output."""
    code, out, err = call("simulate", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("otel-straggler: error: ")
    assert err.count("\n") == 1
    for part in (destination, value, "expected"):
        assert part in err


def test_a_run_can_be_sent_to_a_collector(call) -> None:
    """Every rank in requests of its own."""
    with CapturedRequests() as sink:
        code, _, err = call("simulate", "--ranks", "3", "--steps", "5", "--send", sink.url)
        spans = sink.spans()
    assert code == 0, err
    assert {span.resource["training.rank"] for span in spans} == {0, 1, 2}
    assert sum(span.name == "forward" for span in spans) == 15


@pytest.mark.parametrize(
    ("arguments", "state"),
    [
        (("--ranks", "3", "--steps", "40"), "finished"),
        (("--ranks", "3", "--steps", "40", "--speed", "0"), "finished"),
        (("--layout", "dp4", "--steps", "60", "--restart-at-step", "30"), "finished"),
        (("--layout", "dp4", "--steps", "60", "--fault", "crash@rank2:step30"), "training"),
    ],
    ids=["at once", "speed 0", "restarted", "crashed"],
)
def test_a_run_that_was_sent_whole_has_ended(
    call, collector: dict[str, str], arguments: tuple[str, ...], state: str
) -> None:
    """Nobody waits for a simulation that is over; one that dies does so without a word."""
    run_id = "-".join(arguments).strip("-").replace("@", "-")
    url = f"http://{collector['otlp_http']}"
    assert call("simulate", *arguments, "--run-id", run_id, "--send", url)[0] == 0

    def shown() -> dict[str, object]:
        with urllib.request.urlopen(f"http://{collector['metrics']}/v1/runs") as answer:
            return {run["run_id"]: run["state"] for run in json.load(answer)["runs"]}

    eventually(lambda: shown().get(run_id) == state)


@pytest.mark.parametrize(
    ("port", "told"),
    [
        ("metrics", "the address of a collector's page and metrics, which takes no data"),
        ("otlp_grpc", "does not speak HTTP: it answers as OTLP over gRPC does"),
    ],
)
def test_the_wrong_port_of_a_collector_is_said_to_be_one(
    call, collector: dict[str, str], port: str, told: str
) -> None:
    """With the one that is meant."""
    url = f"http://{collector[port]}"
    code, _, err = call("simulate", "--ranks", "2", "--steps", "2", "--send", url)
    assert code == 2
    assert told in err
    assert "4318" in err


def test_nobody_at_the_address_is_one_line(call) -> None:
    """With the address and what to look at."""
    code, _, err = call("simulate", "--ranks", "2", "--send", "http://127.0.0.1:9")
    assert code == 2
    assert "http://127.0.0.1:9" in err
    assert "nothing listens there. Is it running? A collector is expected there." in err
    assert "Traceback" not in err
