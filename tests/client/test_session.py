"""A session from configure() to shutdown(), in this process."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from otel_straggler import configure, flush, phase, section, semconv, set_topology, shutdown, step
from otel_straggler.client.worker import THREAD_NAME
from otel_straggler.errors import ConfigError, UsageError
from otel_straggler.testing import CapturedRequests


def exporter_threads() -> int:
    return sum(t.name == THREAD_NAME for t in threading.enumerate())


def test_what_was_recorded_arrives_at_flush(sink: CapturedRequests) -> None:
    """The five lines of the README work."""
    configure(endpoint=sink.url)
    for n in range(2):
        with step(n), section("forward"):
            pass
    assert flush()
    assert [s.name for s in sink.spans()] == ["forward", "step"] * 2


def test_everything_arrives_by_itself(sink: CapturedRequests) -> None:
    """Within a flush interval, without any further call."""
    configure(endpoint=sink.url, flush_s=0.05)
    with section("forward"):
        pass
    sink.wait_for(lambda s: bool(s.spans()))


def test_one_thread_and_none_after_shutdown(sink: CapturedRequests) -> None:
    """Configured twice or not."""
    before = exporter_threads()
    session = configure(endpoint=sink.url)
    assert configure(endpoint=sink.url) is session
    assert exporter_threads() == before + 1
    shutdown()
    assert exporter_threads() == before


def test_other_settings_need_a_shutdown_first(sink: CapturedRequests) -> None:
    """Two halves of a program that disagree are told so, without their secrets."""
    configure(endpoint=sink.url, rank=0, world_size=2)
    with pytest.raises(ConfigError, match=r"rank=1.*call shutdown\(\) before"):
        configure(endpoint=sink.url, rank=1, world_size=2)
    with pytest.raises(ConfigError) as caught:
        configure(endpoint=sink.url, rank=0, world_size=2, headers={"authorization": "s3cret"})
    assert "s3cret" not in str(caught.value)
    assert "traces sent otherwise" in str(caught.value)


def test_a_second_call_to_elsewhere_names_the_addresses(
    sink: CapturedRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the words of its arguments, not by names of fields that nobody gave."""
    configure(endpoint=sink.url, rank=0, world_size=2)
    with pytest.raises(ConfigError, match=r"traces to http://127.0.0.1:1/v1/traces, metrics to"):
        configure(endpoint="http://127.0.0.1:1", rank=0, world_size=2)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.url)
    with pytest.raises(ConfigError, match=r"got 'no endpoint'; .*Leave the second call out"):
        configure(rank=0, world_size=2)


def test_a_second_session_is_a_new_one(sink: CapturedRequests) -> None:
    """With an id of its own; nothing of the first is sent again."""
    first = configure(endpoint=sink.url).session_id
    with section("first"):
        pass
    shutdown()
    second = configure(endpoint=sink.url).session_id
    with section("second"):
        pass
    shutdown()
    sessions = {s.name: s.resource["straggler.session.id"] for s in sink.spans()}
    assert sessions == {"first": first, "second": second}
    assert first != second


def finished(sink: CapturedRequests) -> str:
    (point,) = sink.points(semconv.RANK_FINISHED)
    return str(point.attributes["outcome"])


def test_an_explicit_shutdown_says_ok(sink: CapturedRequests) -> None:
    """Only then."""
    configure(endpoint=sink.url)
    shutdown()
    assert finished(sink) == "ok"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError(), "failed"),
        (KeyboardInterrupt(), "cancelled"),
        (SystemExit(0), "ok"),
        (SystemExit(3), "failed"),
    ],
)
def test_an_exception_on_its_way_is_no_ok(
    sink: CapturedRequests, error: BaseException, outcome: str
) -> None:
    """``finally: shutdown()`` tells the truth."""
    configure(endpoint=sink.url)

    def train() -> None:
        try:
            raise error
        finally:
            shutdown()

    with pytest.raises(type(error)):
        train()
    assert finished(sink) == outcome


def test_an_outcome_may_be_said(sink: CapturedRequests) -> None:
    """A trainer knows best that it was preempted."""
    configure(endpoint=sink.url)
    shutdown("preempted")
    assert finished(sink) == "preempted"
    with pytest.raises(ConfigError, match="expected one of ok, failed"):
        shutdown("fine")  # type: ignore[arg-type]


@pytest.mark.parametrize("variable", ["OTEL_SDK_DISABLED", "OTEL_STRAGGLER_DISABLED"])
def test_disabled_means_no_thread_and_no_request(
    sink: CapturedRequests, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """And the program runs as it is."""
    monkeypatch.setenv(variable, "true")
    before = exporter_threads()
    configure(endpoint=sink.url)
    with step(1), section("forward"):
        pass
    assert flush()
    assert exporter_threads() == before
    shutdown()
    assert not sink.requests


BAD_CALLS: list[Any] = [
    lambda: step(-1),
    lambda: step(1.5),  # type: ignore[arg-type]
    lambda: step(True),
    lambda: step(2**63),
    lambda: phase(""),
    lambda: section(""),
    lambda: section("x", kind="gpu"),  # type: ignore[arg-type]
    lambda: section("x").run(tokens=-1),
]


@pytest.mark.parametrize("call", BAD_CALLS)
def test_a_mistake_in_the_loop_is_logged_once_and_survived(
    sink: CapturedRequests, caplog: pytest.LogCaptureFixture, call: Any
) -> None:
    """Telemetry never stops training."""
    configure(endpoint=sink.url)
    for _ in range(3):
        with call():
            pass
    mistakes = [each for each in caplog.records if each.module == "guard"]
    assert len(mistakes) == 1  # on a busy machine another may say that nobody listens yet
    shutdown()
    assert sink.points(semconv.RECORDS_DROPPED)[-1].value == 3


@pytest.mark.parametrize("call", BAD_CALLS)
def test_a_mistake_in_the_loop_is_raised_if_strict(sink: CapturedRequests, call: Any) -> None:
    """Tests of the user's own want to know."""
    configure(endpoint=sink.url, strict=True)
    with pytest.raises(UsageError, match="expected"):
        call()


def test_numpy_integers_are_steps(sink: CapturedRequests) -> None:
    """Trainers count with them."""
    import numpy as np

    configure(endpoint=sink.url, strict=True)
    with step(np.int64(3)):  # type: ignore[arg-type]
        pass
    flush()
    assert sink.spans()[0].attributes["training.step"] == 3


def test_a_tensor_is_no_step(sink: CapturedRequests) -> None:
    """Reading it would wait for the GPU."""
    torch = pytest.importorskip("torch")
    configure(endpoint=sink.url, strict=True)
    with pytest.raises(UsageError, match="got 'Tensor'"):
        step(torch.tensor(3))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"role": 1}, "a text"),
        ({"data": "0"}, r"a rank, or \(rank, size\) with rank < size"),
        ({"tensor": (4, 4)}, r"a rank, or \(rank, size\) with rank < size"),
        ({"expert": -1}, "a rank"),
        ({"gpu_uuid": b"GPU"}, "a text"),
    ],
)
def test_a_wrong_topology_is_an_error(given: dict[str, Any], expected: str) -> None:
    """Set-up code is told at once."""
    name = next(iter(given))
    with pytest.raises(ConfigError, match=rf"set_topology\({name}=...\): .*{expected}"):
        set_topology(**given)


def test_the_role_of_configure_is_the_role(sink: CapturedRequests) -> None:
    """``set_topology`` may add to it."""
    configure(endpoint=sink.url, role="critic")
    set_topology(gpu_model="H200")
    with section("x"):
        pass
    shutdown()
    resource = sink.spans()[0].resource
    assert (resource["training.role"], resource["hw.model"]) == ("critic", "H200")
