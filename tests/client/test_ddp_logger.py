"""DDP's own timers: when they are read, and what becomes of it. On fakes of torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otel_straggler import configure, section, shutdown, step
from otel_straggler.client.collectives import ddp_logger
from otel_straggler.client.collectives.ddp_logger import KEYS, DdpTimers
from otel_straggler.client.collectives.ddp_sampling import LADDER
from otel_straggler.client.guard import GUARD
from otel_straggler.client.recording import FORM
from otel_straggler.detect.scores.step_tables import build_step_table
from otel_straggler.model.observation import DDP, HOST, merge_batches
from otel_straggler.otlp.decode_spans import SpanDecoder

from .ddp_fakes import MS, Fakes, again, names, spans, train
from .sinks import HttpSink

pytestmark = pytest.mark.skipif(FORM != "native", reason="the fallback records no times of GPUs")


def test_times_are_sections_inside_of_those_in_which_forward_and_backward_ran(
    fakes: Fakes,
) -> None:
    """Of the step before the one in which they are read."""
    train(fakes, fakes.ddp(), range(40, 42))
    assert spans() == [
        ("forward/ddp_forward", "forward", 40, 30 * MS),
        ("backward/ddp_backward", "backward", 40, 50 * MS),
        ("backward/ddp_communication", "backward", 40, 5 * MS),
    ]


def test_one_section_around_both_holds_all_three(fakes: Fakes) -> None:
    """And one inside of another counts as the outer one, which is compared."""
    module = fakes.ddp()
    for n in range(2):
        with step(n), section("train"), section("inner"):
            module._pre_forward()
            assert fakes.waits.on_backward is not None
            fakes.waits.on_backward()
    assert names(spans()) == ["train/ddp_forward", "train/ddp_backward", "train/ddp_communication"]


def test_forward_stays_what_it_was(fakes: Fakes) -> None:
    """Its arguments, its result and what it raises."""
    error = RuntimeError("Expected to have finished reduction in the prior iteration")
    module = fakes.ddp()
    assert module._pre_forward(1, 2, module=3) == ((1, 2), {"module": 3})
    del module.iteration
    with pytest.raises(AttributeError, match="iteration"):
        module._pre_forward()

    def fail(_: Any) -> None:
        raise error

    again(fakes, fail)
    with pytest.raises(RuntimeError) as caught:
        fakes.ddp()._pre_forward()
    assert caught.value is error


@pytest.mark.parametrize("device", ["cpu", "meta", None])
def test_only_modules_on_gpus_are_read(fakes: Fakes, device: str | None) -> None:
    """On CPU the host's own waiting says more."""
    module = fakes.ddp()
    module.device_type = device
    train(fakes, module, range(12))
    assert not spans()
    assert module.logger.reads == 0


def test_unsampled_iterations_are_not_read(fakes: Fakes) -> None:
    """Between those that DDP samples itself nothing is asked of it."""
    module = fakes.ddp()
    train(fakes, module, range(19))
    read = module.logger.reads
    found = spans()
    assert {step_ for *_, step_, _ in found} == set(range(10))
    assert read == 1 + 10
    assert module.rate == LADDER[-1]


def test_where_samples_cost_little_every_iteration_is_read(fakes: Fakes) -> None:
    """All of them from the iteration on after that in which the rate has changed; until restore."""
    module = fakes.ddp()
    clock: Any = ddp_logger.perf_counter_ns
    for n in range(30):
        train(fakes, module, range(n, n + 1))
        clock.now_ns += 500 * MS
    assert module.rate == 1
    assert [s for name, *_, s, _ in spans() if "backward" in name and "comm" not in name] == [
        *range(10), *range(21, 29),
    ]  # fmt: skip
    fakes.timers.restore()
    assert module.rate == LADDER[-1]


def test_a_module_that_was_there_before_is_read_once_its_iterations_are_known(
    fakes: Fakes,
) -> None:
    """After the next one that DDP samples."""
    module = fakes.ddp()
    fakes.timers.restore()
    for _ in range(57):
        module._pre_forward()
    fakes.timers = DdpTimers(fakes.ddp, fakes.waits, lambda: True, lambda: False)
    train(fakes, module, range(1_000, 1_060))
    assert {step_ for *_, step_, _ in spans()} == {1_042}  # iteration 100
    assert module.logger.reads < 50


def test_a_rate_that_somebody_else_has_set_is_survived(fakes: Fakes) -> None:
    """Each time is that of an iteration that has just ended, or is not sent."""
    module = fakes.ddp()
    train(fakes, module, range(15))
    module.rate = 7
    train(fakes, module, range(15, 300))
    steps = {step_ for *_, step_, _ in spans()} - set(range(10))
    assert steps
    assert all((n + 1) % 7 == 0 for n in steps)  # iterations count from 1, steps from 0
    assert GUARD.counts() == {}


def test_microbatches_without_averaging_are_no_iterations(fakes: Fakes) -> None:
    """Nor are forwards without gradients; the backward after the last forward counts."""
    module = fakes.ddp()
    for n in range(3):
        with step(n):
            for is_last in (False, True):
                module.require_backward_grad_sync = is_last
                with section("forward" if is_last else "accumulate"):
                    module._pre_forward()
                with section("backward" if is_last else "accumulate"):
                    assert fakes.waits.on_backward is not None
                    fakes.waits.on_backward()
            fakes.is_grad_enabled, module.require_backward_grad_sync = False, False
            with section("evaluate"):
                module._pre_forward()
            fakes.is_grad_enabled = True
    assert [span[:3] for span in spans()[::3]] == [
        ("forward/ddp_forward", "forward", n) for n in range(2)
    ]


def test_of_several_modules_in_one_backward_the_last_reports_it(fakes: Fakes) -> None:
    """The others report forward; modules with a backward of their own report that."""
    first, second = fakes.ddp(), fakes.ddp()
    second.times = dict.fromkeys(KEYS, 7)
    backward: Any = fakes.waits.on_backward
    for n in range(2):
        with step(n), section("both"):
            first._pre_forward()
            second._pre_forward()
            backward()
    assert [(name, ns) for name, _, _, ns in spans()] == [
        ("both/ddp_forward", 30 * MS),
        ("both/ddp_forward", 7),
        ("both/ddp_backward", 7),
        ("both/ddp_communication", 1),
    ]
    for n in range(2, 4):
        with step(n):
            for name, module in (("a", first), ("b", second)):
                with section(name):
                    module._pre_forward()
                    backward()
    found = names(spans())
    assert {"a/ddp_backward", "b/ddp_backward"} <= set(found)


def test_without_sections_or_steps_there_is_nothing_to_be_a_part_of(fakes: Fakes) -> None:
    """Nothing is sent then, and nothing raised."""
    module = fakes.ddp()
    backward: Any = fakes.waits.on_backward
    for n in range(3):
        with step(n):
            module._pre_forward()
            backward()
    for _ in range(3):
        with section("forward"):
            module._pre_forward()
            backward()
    with section("around"), step(9), section("inside"):
        module._pre_forward()
        backward()
    with step(10):
        with section("forward"):
            module._pre_forward()
        backward()
    with step(11):
        module._pre_forward()
    assert [span[:3] for span in spans()] == [
        ("inside/ddp_forward", "inside", 9),
        ("inside/ddp_backward", "inside", 9),
        ("inside/ddp_communication", "inside", 9),
        ("forward/ddp_forward", "forward", 10),
    ]
    assert GUARD.counts() == {}


@pytest.mark.parametrize("way", ["native", "python"])
def test_what_is_sent_is_read_as_time_of_the_section_on_the_gpu(
    fakes: Fakes, sink: HttpSink, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By either exporter: from the module to the table that verdicts compare."""
    if way == "python":
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    configure(endpoint=sink.url, run_id="r", rank=1, world_size=2, span_budget=0)
    train(fakes, fakes.ddp(), range(100, 104))
    shutdown()
    bodies = [request.body for request in sink.requests if request.path == "/v1/traces"]
    batch = merge_batches([SpanDecoder().decode(body).batch for body in bodies])
    table = build_step_table(batch)
    assert table is not None
    assert table.gpu is not None
    assert [section_.name for section_ in table.sections] == ["forward", "backward"]
    assert table.gpu.basis[:, 0].tolist() == [[DDP, DDP]] * 3 + [[HOST, HOST]]
    np.testing.assert_allclose(table.gpu.own_s[:3, 0], [[0.03, 0.05]] * 3)
    np.testing.assert_allclose(table.gpu.nccl_s[:3, 0], [[0.0, 0.005]] * 3)
