"""DDP's own timers in bad input and unknown torch: nothing false, and forward goes on."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from otel_straggler.client.collectives import ddp_logger
from otel_straggler.client.collectives.ddp_logger import KEYS, MAX_UNKNOWN, DdpTimers
from otel_straggler.client.collectives.ddp_sampling import LADDER
from otel_straggler.client.collectives.waits import Waits
from otel_straggler.client.gpu import CURRENT
from otel_straggler.client.guard import GUARD
from otel_straggler.client.recording import FORM

from .ddp_fakes import MS, TIMES, Fakes, again, fake_ddp, spans, train

pytestmark = pytest.mark.skipif(FORM != "native", reason="the fallback records no times of GPUs")


@pytest.mark.parametrize(
    "odd",
    [-1, 10**15, math.nan, 0.5, "3", None, True],
)
@pytest.mark.parametrize("key", KEYS)
def test_a_time_that_cannot_be_is_counted_and_left_out(fakes: Fakes, key: str, odd: Any) -> None:
    """All of its iteration: a half of it would pass for a fast rank. The next one is read."""
    module = fakes.ddp()
    module.times[key] = odd
    train(fakes, module, range(2))
    assert not spans()
    module.times = dict(TIMES)
    train(fakes, module, range(2, 4))
    assert GUARD.counts() == {"collective_wait": 1}
    assert {step_ for *_, step_, _ in spans()} == {1, 2}


@pytest.mark.parametrize("key", ["forward_compute_time", "backward_compute_time"])
def test_a_time_that_was_not_measured_is_left_out(fakes: Fakes, key: str) -> None:
    """As of a forward without a backward: DDP leaves 0."""
    module = fakes.ddp()
    module.times[key] = 0
    train(fakes, module, range(3))
    assert not spans()
    assert GUARD.counts() == {}


@pytest.mark.parametrize(("communication", "overlap"), [(0, 0), (10, 10), (10, 12)])
def test_a_rank_that_all_others_wait_for_reports_a_wait(
    fakes: Fakes, communication: int, overlap: int
) -> None:
    """It is the one that waits for nobody."""
    module = fakes.ddp()
    module.times |= {
        "backward_comm_time": communication, "backward_compute_comm_overlap_time": overlap
    }  # fmt: skip
    train(fakes, module, range(2))
    assert spans()[-1] == ("backward/ddp_communication", "backward", 0, 1)


@pytest.mark.parametrize("missing", ["iteration", *KEYS])
def test_a_number_with_another_name_ends_reading_with_one_line(
    fakes: Fakes, missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of this module; the training goes on."""
    module = fakes.ddp()
    module.times.pop(missing, None)
    if missing == "iteration":
        module.logger = SimpleNamespace(
            _get_ddp_logging_data=lambda: SimpleNamespace(ints_map=dict(TIMES))
        )
    train(fakes, module, range(5))
    assert module.iteration == 5
    assert not spans()
    [line] = [line for line in caplog.messages if "timers of DDP" in line]
    assert missing in line


@pytest.mark.parametrize("attribute", ["logger", "require_backward_grad_sync"])
def test_a_module_without_what_is_needed_is_left_alone(
    fakes: Fakes, attribute: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One line, whatever DDP has become."""
    module = fakes.ddp()
    delattr(module if attribute == "logger" else fakes.ddp, attribute)
    again(fakes, lambda _: "forward")
    assert [module._pre_forward() for _ in range(3)] == ["forward"] * 3
    [line] = caplog.messages
    assert attribute in line
    assert GUARD.counts() == {"collective_wait": 1}


def test_a_module_whose_ranks_meet_inside_of_forward_is_left_alone(
    fakes: Fakes, caplog: pytest.LogCaptureFixture
) -> None:
    """SyncBatchNorm averages over all ranks: each takes as long as the slowest."""
    module = fakes.ddp()
    module.times["has_sync_bn"] = 1
    train(fakes, module, range(12))
    assert not spans()
    assert module.logger.reads == 2
    assert not caplog.messages


def test_a_module_that_fails_later_samples_as_by_itself(fakes: Fakes) -> None:
    """The rate that was set does not stay."""
    module = fakes.ddp()
    clock: Any = ddp_logger.perf_counter_ns
    for n in range(25):
        train(fakes, module, range(n, n + 1))
        clock.now_ns += 500 * MS
    assert module.rate == 1
    del module.times[KEYS[0]]
    train(fakes, module, range(25, 28))
    assert module.rate == LADDER[-1]
    assert GUARD.counts() == {"collective_wait": 1}


def test_ddp_that_times_nothing_is_left_alone_after_a_while(fakes: Fakes) -> None:
    """As on a device for which it has no timer."""
    module = fakes.ddp()
    logger = module.logger
    again(fakes, lambda _: None)
    for _ in range(2 * MAX_UNKNOWN):
        module._pre_forward()
    assert logger.reads == MAX_UNKNOWN + 1
    assert GUARD.counts() == {"collective_wait": 1}


def test_while_kernels_are_timed_ddp_is_left_alone(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUPTI says more, if it does so in every step. A rate that was set is DDP's own again."""
    module = fakes.ddp()
    clock: Any = ddp_logger.perf_counter_ns
    for n in range(25):
        train(fakes, module, range(n, n + 1))
        clock.now_ns += 500 * MS
    assert module.rate == 1
    spans()
    monkeypatch.setattr(CURRENT, "timer", SimpleNamespace(take_kernels=None))
    train(fakes, module, range(25, 30))
    assert module.rate == 1
    spans()
    monkeypatch.setattr(CURRENT, "is_every_step", True)
    train(fakes, module, range(30, 40))
    assert module.rate == LADDER[-1]
    assert not spans()
    monkeypatch.setattr(CURRENT, "timer", None)
    train(fakes, module, range(40, 201))
    assert spans()


def test_a_forward_that_is_captured_finds_ddps_own_rate(fakes: Fakes) -> None:
    """DDP would wait for the GPU, which no CUDA graph can hold."""
    module = fakes.ddp()
    clock: Any = ddp_logger.perf_counter_ns
    for n in range(25):
        train(fakes, module, range(n, n + 1))
        clock.now_ns += 500 * MS
    assert module.rate == 1
    spans()
    fakes.is_capturing = True
    published = module.logger.ints_map
    train(fakes, module, range(25, 26))
    assert module.rate == LADDER[-1]
    assert module.logger.ints_map is published
    assert not spans()


def test_a_step_counter_that_goes_back_sends_nothing_of_before(fakes: Fakes) -> None:
    """That was another session's."""
    module = fakes.ddp()
    train(fakes, module, range(50, 51))
    train(fakes, module, range(2))
    assert {step_ for *_, step_, _ in spans()} == {0}


def test_after_restore_ddp_is_as_it_was(fakes: Fakes) -> None:
    """The very function; nothing is read any more."""
    fakes.timers.restore()
    assert fakes.waits.on_backward is None
    assert not hasattr(fakes.ddp._pre_forward, "__wrapped__")


@pytest.mark.parametrize("name", ddp_logger.NEEDED)
def test_a_ddp_without_a_method_is_refused(name: str) -> None:
    """Before anything of it is replaced."""
    ddp = fake_ddp()
    setattr(ddp, name, None)
    before = dict(vars(ddp))
    with pytest.raises(TypeError, match=name):
        DdpTimers(ddp, Waits(), lambda: True, lambda: False)
    delattr(ddp, name)
    before.pop(name)
    with pytest.raises(AttributeError, match=name):
        DdpTimers(ddp, Waits(), lambda: True, lambda: False)
    assert dict(vars(ddp)) == before
