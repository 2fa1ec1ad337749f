"""Which tier is in charge, and why: over timers that do as they are told."""

from __future__ import annotations

import itertools
import logging
import sys
import threading

import pytest

from otel_straggler import gpu_timing, semconv, set_gpu_timing
from otel_straggler.client.gpu.overhead import CpuGuard
from otel_straggler.client.gpu.owner import AUTO_TIER
from otel_straggler.client.gpu.reasons import Refusal, refusal_of
from otel_straggler.client.gpu.surroundings import Surroundings
from otel_straggler.client.gpu.tiers import trouble_of
from otel_straggler.errors import ConfigError

from .scripted import Rig, torch_with_cuda


@pytest.fixture
def rig() -> Rig:
    return Rig()


def status(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if message.startswith("GPU timing is")]


def test_what_is_wanted_is_taken(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """With one line that names what times."""
    with caplog.at_level(logging.INFO):
        rig.begin("cupti")
        assert rig.tick() == ("cupti", "")
    assert status(caplog) == ["GPU timing is cupti: by scripted cupti"]


def test_auto_takes_what_a_gpu_has_shown_to_cost_nothing(rig: Rig) -> None:
    """CUDA events; the reason names the setting for kernels."""
    timing = rig.begin("auto")
    assert AUTO_TIER == "events"
    assert timing.described() == ("events", "auto")
    assert "OTEL_STRAGGLER_GPU_TIMING=cupti" in timing.state().detail
    assert (rig.cupti.calls, rig.events.calls) == ([], ["start"])
    timing.set("off")
    assert timing.described() == ("off", "asked")
    timing.set(None)
    assert timing.described() == ("events", "auto")
    timing.close(1.0)


def test_a_tier_is_in_use_once_it_has_attributed_a_kernel(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then its sections have events, and the reason says so."""
    rig.cupti.is_proven = False
    with caplog.at_level(logging.INFO):
        timing = rig.begin("cupti")
        assert rig.tick() == ("events", "unproven")
        rig.cupti.is_proven = True
        assert timing.state().tier == "cupti"
        assert rig.tick() == ("cupti", "")
        rig.cupti.is_proven = False  # as after a start from scratch
        assert rig.tick() == ("events", "unproven")
    assert [line.split(":")[0] for line in status(caplog)] == [
        "GPU timing is events (unproven)",
        "GPU timing is cupti",
    ]
    assert not [r for r in caplog.records if r.levelno > logging.INFO]


def test_what_cannot_be_had_steps_down(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """To events where they work; one warning names cause and remedy."""
    rig.cupti.refusals = [refusal_of("cuptiActivityEnable gave 35: administrators only")]
    rig.begin("cupti")
    assert [rig.tick() for _ in range(3)] == [("events", "insufficient_privileges")] * 3
    assert rig.cupti.calls == ["refuse"]
    [line] = status(caplog)
    assert "events (insufficient_privileges): cuptiActivityEnable gave 35" in line
    assert "NVreg_RestrictProfilingToAdminUsers=0" in line


def test_where_nothing_can_be_had_the_first_reason_counts(rig: Rig) -> None:
    """It is the one that is worth a remedy."""
    rig.cupti.refusals = [Refusal("no_cupti")]
    rig.events.refusals = [Refusal("no_events")]
    rig.begin("cupti")
    assert rig.tick() == ("off", "no_cupti")


def test_cuda_is_waited_for(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """After one second, then two, three, and every four, without a warning; nothing is loaded
    before."""
    rig.gpu.refusal = Refusal("no_torch")
    rig.begin("cupti")
    rig.gpu.refusal = Refusal("cuda_unused")
    assert rig.tick() == ("off", "cuda_unused")
    assert rig.cupti.calls == []
    looks_s = [rig.timing.tick(rig.now_s)]
    for _ in range(4):
        rig.now_s = looks_s[-1]
        looks_s.append(rig.timing.tick(rig.now_s))
    assert [b - a for a, b in itertools.pairwise(looks_s)] == [3.0, 4.0, 4.0, 4.0]
    rig.gpu.refusal = None
    assert rig.tick(4.0) == ("cupti", "")
    assert rig.timing.tick(rig.now_s) == rig.now_s + 1.0
    assert not [r for r in caplog.records if r.levelno > logging.INFO]


@pytest.mark.parametrize("requested", ["cupti", "events"])
def test_a_session_that_cannot_send_gpu_times_starts_nothing(rig: Rig, requested: str) -> None:
    """The application's provider gets host times."""
    rig.begin(requested, Refusal("not_sent"))
    assert rig.tick() == ("off", "not_sent")
    assert rig.cupti.calls == rig.events.calls == []


def test_a_profiler_that_holds_cupti_is_tried_again_every_minute(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Events time meanwhile, and go on where the try fails; it is logged once."""
    rig.cupti.refusals = [Refusal("multiple_subscribers")] * 2
    rig.begin("cupti")
    assert rig.tick(58) == ("events", "multiple_subscribers")
    assert rig.cupti.calls == ["refuse"]
    assert rig.tick(3) == ("events", "multiple_subscribers")
    assert rig.events.calls == ["start", "stop", "start"]
    assert rig.tick(61) == ("cupti", "")
    assert rig.events.calls[3:] == ["stop", "end"]
    assert len(status(caplog)) == 1


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({"silent_flushes": 60}, "takeover"),
        ({"is_invalid_too_often": 1, "events": 5000, "invalid": 60}, "invalid_timestamps"),
    ],
)
def test_a_timer_in_trouble_is_left(rig: Rig, counts: dict[str, int], reason: str) -> None:
    """Before its numbers mislead."""
    rig.begin("cupti")
    rig.cupti.now = counts
    assert rig.tick() == ("events", reason)
    assert rig.cupti.calls == ["start", "stop", "end"]
    rig.cupti.now = {}
    is_back = reason == "takeover"
    assert rig.tick(61) == (("cupti", "") if is_back else ("events", reason))


def test_what_comes_again_and_again_is_logged_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Another profiler takes over every minute; after a wish of the user's it is said again."""
    rig.events.refusals = [Refusal("no_events")]
    with caplog.at_level(logging.INFO):
        timing = rig.begin("cupti")
        for _ in range(3):
            rig.cupti.now = {"silent_flushes": 60}
            assert rig.tick() == ("off", "takeover")
            rig.cupti.now = {}
            assert rig.tick(61) == ("cupti", "")
        assert len(status(caplog)) == 2
        timing.set("off")
        timing.set("cupti")
        assert len(status(caplog)) == 4
    timing.close(1.0)


def test_a_gpu_that_is_never_idle_is_not_taken_for_a_takeover() -> None:
    """Its buffers come back when they are full; where dynolog may come, less is enough."""
    for has_daemon, maximum in ((False, 60), (True, 3)):
        assert trouble_of({"silent_flushes": maximum - 1}, has_daemon=has_daemon) is None
        assert trouble_of({"silent_flushes": maximum}, has_daemon=has_daemon) is not None


def test_a_reader_that_takes_too_much_of_a_core_is_left() -> None:
    """Looked at once a minute; a thread that is not there is no trouble."""
    guard = CpuGuard()
    assert guard.trouble(0.0, None) is None
    assert guard.trouble(1.0, 5.0) is None
    assert guard.trouble(61.0, 5.2) is None
    refusal = guard.trouble(121.0, 9.2)
    assert refusal is not None
    assert refusal.code == "governor"


def test_the_tier_can_be_switched_at_run_time(rig: Rig) -> None:
    """What was refused before is tried again."""
    rig.cupti.refusals = [Refusal("broken_cupti")]
    rig.events.refusals = [Refusal("no_events")]
    timing = rig.begin("cupti")
    assert timing.described() == ("off", "broken_cupti")
    timing.set("cupti")
    assert timing.described() == ("cupti", "")
    timing.set("events")
    assert timing.described() == ("events", "asked")
    timing.set("off")
    assert timing.described() == ("off", "asked")
    assert rig.cupti.calls == ["refuse", "start", "stop", "end"]
    timing.close(1.0)


def test_switching_waits_for_no_session_and_takes_no_other_word() -> None:
    """Without configure() nothing happens; a wrong word is an error with the right ones."""
    assert set_gpu_timing("cupti") == gpu_timing()
    assert gpu_timing().reason == "not_configured"
    with pytest.raises(ConfigError, match=r"one of off, events, cupti"):
        set_gpu_timing("kernels")  # type: ignore[arg-type]


def test_a_child_touches_nothing(rig: Rig) -> None:
    """A worker of a DataLoader, forked while another thread holds the lock."""
    timing = rig.begin("cupti")
    calls = list(rig.cupti.calls)
    with timing._lock:
        timing.leave_to_parent()
    done = threading.Thread(target=lambda: (rig.tick(), timing.set("cupti")), daemon=True)
    done.start()
    done.join(10)
    assert not done.is_alive()
    assert timing.described() == ("off", "forked")
    assert rig.cupti.calls == calls


def test_every_reason_has_a_cause_and_a_remedy() -> None:
    """And a word of CUPTI that nobody knows is one of them, too."""
    for known in semconv.GPU_TIMING_REASONS.values():
        assert known.cause
        assert known.remedy
    assert refusal_of("cuptiActivityEnable gave 77: what").code == "cupti_failed"
    assert refusal_of("something else").code in semconv.GPU_TIMING_REASONS


def test_torch_is_asked_only_if_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never imported, and CUDA never initialised."""
    surroundings = Surroundings()
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert surroundings.why_not_yet() == Refusal("no_torch")
    torch = torch_with_cuda()
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert surroundings.why_not_yet() is None
    torch.cuda.is_initialized = lambda: False
    assert surroundings.why_not_yet() == Refusal("cuda_unused")
    torch.version.cuda = None
    assert surroundings.why_not_yet() == Refusal("no_cuda")
