"""Kernel times on their way out: all of them, once, by the seconds of the wall clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from otel_straggler.client.kernels import KernelExport, KernelFeed
from otel_straggler.client.recording import RECORDER
from otel_straggler.client.topology import RankContext, Topology
from otel_straggler.config import ClientSettings
from otel_straggler.model.kernels import KernelTimes
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.testing import CapturedRequests, FakeClock

from ..kernels_made import Script

Make = Callable[..., KernelExport]
SECTIONS = {1: "forward", 2: "backward"}


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def feed(script: Script) -> KernelFeed:
    return KernelFeed(lambda: script, lambda number: SECTIONS.get(number, ""))


@pytest.fixture
def make(settings: ClientSettings, clock: FakeClock, feed: KernelFeed) -> Make:
    """An export without a thread."""

    def make(**changes: Any) -> KernelExport:
        RECORDER.enable()
        rank = RankContext(replace(settings, **changes), RECORDER, clock, Topology)
        return KernelExport(rank, feed, rng=lambda: 0.5)

    return make


def tick(export: KernelExport, clock: FakeClock, after_s: float = 1.0) -> None:
    clock.advance(after_s)
    export.send_if_due(clock.monotonic_s())


def received(sink: CapturedRequests) -> list[KernelTimes]:
    """What was taken, request by request; each interval once, as a collector sees it."""
    taken = [r.body for r in sink.requests if r.answered == 200 and r.path.endswith("metrics")]
    decoder = MetricDecoder()
    result = [decoder.decode(body).kernel_times for body in dict.fromkeys(taken)]
    return [times for times in result if times is not None]


def sums(result: list[KernelTimes]) -> Counter[tuple[str, str]]:
    """Time in ns by kernel and section, over all requests."""
    total: Counter[tuple[str, str]] = Counter()
    for times in result:
        for code, sum_s in zip(times.cell.tolist(), times.sum_s.tolist(), strict=True):
            total[times.cells[code].kernel.name, times.cells[code].section] += round(sum_s * 1e9)
    return total


def test_intervals_begin_and_end_by_the_wall_clock(
    make: Make, script: Script, sink: CapturedRequests, clock: FakeClock
) -> None:
    """Every ten seconds, on all ranks alike, whenever each of them began."""
    clock.set_wall(1_700_000_003.0)
    export = make()
    for _ in range(28):
        script.count("gemm", 1, [1_000])
        tick(export, clock)
    result = received(sink)
    assert [(times.end_ns[0] // 10**9) % 100 for times in result] == [10, 20, 30]
    assert [times.start_ns[0] // 10**9 % 100 for times in result] == [3, 10, 20]
    assert [times.count.tolist() for times in result] == [[7], [10], [10]]
    assert sums(result) == {("gemm", "forward"): 27_000}
    assert result[0].sources[0].rank == 3
    assert result[0].sources[0].session_id == RECORDER.session.session_id


def test_all_intervals_add_up_to_what_the_timer_saw(
    make: Make, script: Script, sink: CapturedRequests, clock: FakeClock
) -> None:
    """Whatever the server answers in between: nothing twice, nothing lost."""
    export = make()
    reported: Counter[tuple[str, str]] = Counter()
    for number in range(120):
        sink.behaviour.next_statuses = [503] if number % 3 == 0 else []
        sink.behaviour.drops_connections = number % 7 == 0
        for section in (1, 2, 9):
            times = [1_000 * number + section, 7]
            script.count("gemm", section, times)
            reported["gemm", SECTIONS.get(section, "")] += sum(times)
        tick(export, clock)
    sink.behaviour.drops_connections = False
    sink.behaviour.next_statuses = []
    clock.advance(100.0)
    export.flush(clock.monotonic_s() + 5.0, is_last=True)
    assert sums(received(sink)) == reported
    assert export.losses() == {}
    assert export.queued_requests == 0


def test_little_used_kernels_are_put_together(
    make: Make, script: Script, sink: CapturedRequests, clock: FakeClock
) -> None:
    """At most so many points, and all the time is in them."""
    export = make(kernel_cells=5)
    for number in range(300):
        script.count(f"kernel_{number:03}", 1, [1_000 + number] * 3)
    tick(export, clock, 10.0)
    (times,) = received(sink)
    assert {cell.kernel.name for cell in times.cells} == {
        "<other>", *(f"kernel_{n}" for n in range(295, 300)),
    }  # fmt: skip
    assert times.count.sum() == 900
    assert sum(sums([times]).values()) == sum((1_000 + n) * 3 for n in range(300))


def test_what_the_server_refuses_is_counted(
    make: Make, script: Script, sink: CapturedRequests, clock: FakeClock
) -> None:
    """In kernels, under a reason of its own."""
    export = make()
    sink.behaviour.status = 400
    script.count("gemm", 1, [1_000] * 8)
    tick(export, clock, 10.0)
    assert export.losses() == {"kernels_lost": 8}


def test_the_queue_is_bounded(
    make: Make, script: Script, sink: CapturedRequests, clock: FakeClock
) -> None:
    """A collector that is away for hours costs some megabytes, and the newest is kept."""
    export = make(queue_bytes=3_000)
    sink.behaviour.status = 503
    for _ in range(50):
        script.count("gemm", 1, [1_000] * 2)
        tick(export, clock, 10.0)
    assert 1 <= export.queued_requests < 20
    kept = export.queued_requests
    assert export.losses() == {"kernels_lost": 2 * (50 - kept)}
    export.flush(clock.monotonic_s() + 0.2, is_last=True)
    assert export.losses() == {"kernels_lost": 100}


def test_nothing_is_sent_where_nothing_ran(
    make: Make, sink: CapturedRequests, clock: FakeClock
) -> None:
    """No GPU, no requests."""
    export = make()
    for _ in range(3):
        tick(export, clock, 10.0)
    export.flush(clock.monotonic_s() + 1.0, is_last=True)
    assert sink.requests == []


def test_a_clock_that_is_set_back_loses_nothing(
    make: Make, script: Script, sink: CapturedRequests, clock: FakeClock
) -> None:
    """An interval that seems to end before it began is told as one of no length."""
    export = make()
    script.count("gemm", 1, [5])
    clock.set_wall(1_600_000_000.0)
    tick(export, clock)
    (times,) = received(sink)
    assert times.start_ns[0] == times.end_ns[0] == 1_600_000_001 * 10**9


# --- the feed ----------------------------------------------------------------------------------


def counts(share: Any) -> dict[str, int]:
    return {kernel.cell.kernel.name: kernel.count for kernel in share.take()}


def test_everybody_who_shares_gets_all_kernels(feed: KernelFeed, script: Script) -> None:
    """Whoever comes first; from when they began to share."""
    script.count("early", 1, [1])
    one = feed.share()
    script.count("gemm", 1, [1])
    other = feed.share()
    script.count("gemm", 1, [1] * 3)
    assert counts(one) == {"gemm": 4}
    assert counts(other) == {"gemm": 3}
    script.count("gemm", 1, [1])
    other.close()
    assert counts(one) == {"gemm": 1}
    assert counts(other) == {}


def test_a_timer_that_was_replaced_gives_what_it_has_left(script: Script) -> None:
    """A tier that is switched loses nothing, nor does one that is switched off."""
    newer = Script()
    on: list[Script | None] = [script]
    feed = KernelFeed(lambda: on[0], lambda _: "")
    share = feed.share()
    script.count("gemm", 1, [1])
    on[0] = newer
    newer.count("gemm", 1, [1] * 2)
    assert counts(share) == {"gemm": 3}
    newer.count("gemm", 1, [1] * 5)
    on[0] = None
    assert counts(share) == {"gemm": 5}
    assert counts(share) == {}


def test_a_timer_that_fails_stops_nobody(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once, and asked again."""

    class Broken(Script):
        def take_kernels(self) -> Any:
            raise RuntimeError("there is nothing behind it")

    on: list[Script] = [Broken()]
    feed = KernelFeed(lambda: on[0], lambda _: "")
    share = feed.share()
    assert counts(share) == {}
    on[0] = script
    script.count("gemm", 1, [1])
    assert counts(share) == {"gemm": 1}
    assert [r.message for r in caplog.records] == ["kernel times could not be read"]


def test_sections_are_named_as_they_were_opened() -> None:
    """By the recorder's numbers; the step itself is no section."""
    from otel_straggler import section
    from otel_straggler.client.kernels import section_name

    names = getattr(RECORDER, "names", None)
    if names is None:
        assert section_name(1) == ""
        return
    section("a section of kernels")
    number = names.number_of(("a section of kernels", "compute"))
    assert section_name(number) == "a section of kernels"
    assert (section_name(0), section_name(0xFFFF_FFFF)) == ("", "")


def test_settings_come_from_the_environment() -> None:
    """And a wrong one says what was expected."""
    from otel_straggler.client.settings import resolve_settings
    from otel_straggler.errors import ConfigError

    result = resolve_settings({}, {})
    assert (result.kernel_interval_s, result.kernel_cells) == (10.0, 64)
    env = {"OTEL_STRAGGLER_KERNEL_INTERVAL_S": "30", "OTEL_STRAGGLER_KERNEL_CELLS": "200"}
    result = resolve_settings({}, env)
    assert (result.kernel_interval_s, result.kernel_cells) == (30.0, 200)
    with pytest.raises(ConfigError, match="OTEL_STRAGGLER_KERNEL_CELLS: got '0'"):
        resolve_settings({}, {"OTEL_STRAGGLER_KERNEL_CELLS": "0"})
