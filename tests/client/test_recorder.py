"""Sections, steps and phases as they are recorded, before anything is encoded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from otel_straggler import phase, section, step
from otel_straggler.client.recorder import Record, is_failure
from otel_straggler.client.recording import RECORDER


@pytest.fixture(autouse=True)
def _recording() -> None:
    RECORDER.enable()


def names(records: Sequence[Record]) -> list[str]:
    return [record[0][0].name for record in records]


def by_name(records: Sequence[Record]) -> dict[str, Record]:
    return {record[0][0].name: record for record in records}


def span(record: Record) -> int:
    return record[0][1]


def waits(records: Sequence[Record]) -> dict[str, int]:
    """Ns that each run waited in collectives, by name."""
    return {record[0][0].name: record[4] for record in records}


def around(record: Record) -> int:
    """Span number of the enclosing run; 0 if there is none."""
    return 0 if record[1] is None else record[1][1]


def test_runs_are_kept_in_order_of_their_ends() -> None:
    """The inner section ends first."""
    with section("outer"), section("inner"):
        pass
    with section("next"):
        pass
    assert names(RECORDER.drain()) == ["inner", "outer", "next"]
    assert not RECORDER.drain()


def test_a_run_knows_the_section_around_it() -> None:
    """The enclosing section of the same thread is the parent."""
    with section("outer"), section("inner"):
        pass
    runs = by_name(RECORDER.drain())
    assert around(runs["inner"]) == span(runs["outer"])
    assert around(runs["outer"]) == 0


def test_a_section_may_be_open_in_itself() -> None:
    """Recursion gives one run per call."""
    again = section("again")

    @again
    def descend(depth: int) -> None:
        if depth:
            descend(depth - 1)

    descend(2)
    runs = RECORDER.drain()
    assert names(runs) == ["again"] * 3
    assert [around(run) for run in runs] == [span(runs[1]), span(runs[2]), 0]


def test_an_exception_passes_and_is_noted() -> None:
    """Telemetry neither hides nor changes what went wrong."""
    with pytest.raises(KeyError, match="lost"), section("fails"):
        raise KeyError("lost")
    assert RECORDER.drain()[0][3] is KeyError


def test_threads_share_a_section_but_not_their_parents() -> None:
    """Each thread has its own stack of open sections."""
    shared = section("shared")
    gate = threading.Barrier(8)

    def work() -> None:
        for _ in range(100):
            with shared:
                gate.wait(10)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runs = RECORDER.drain()
    assert len(runs) == 800
    assert len({span(run) for run in runs}) == 800
    assert {around(run) for run in runs} == {0}


def test_sections_that_overlap_are_not_inside_each_other() -> None:
    """Opened and closed by hand, in another order: neither is the other's parent."""
    with section("around"):
        first = section("first").__enter__()
        second = section("second").__enter__()
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)
    runs = by_name(RECORDER.drain())
    assert around(runs["first"]) == around(runs["second"]) == span(runs["around"])


def test_a_section_around_a_step_is_no_parent_inside_the_step() -> None:
    """Every step is a trace, and so is what is outside of steps; a phase changes nothing."""
    with section("epoch"):
        with step(1), section("outer"), phase("eval"), section("inner"):
            pass
        with section("between"):
            pass
    runs = by_name(RECORDER.drain())
    assert around(runs["outer"]) == 0
    assert around(runs["inner"]) == span(runs["eval"])
    assert around(runs["eval"]) == span(runs["outer"])
    assert around(runs["between"]) == span(runs["epoch"])


def test_the_same_step_inside_itself_is_that_step() -> None:
    """A framework and its user may both say which step it is."""
    with step(1):
        with step(1):
            pass
        with section("after"):
            pass
    runs = by_name(RECORDER.drain())
    assert list(runs) == ["after", "step"]
    assert runs["after"][0][3].step == 1


def test_a_section_that_ends_in_another_thread_is_not_recorded() -> None:
    """Nor is it the parent of what runs in later steps."""
    with step(1):
        timer = section("elsewhere").__enter__()
        thread = threading.Thread(target=timer.__exit__, args=(None, None, None))
        thread.start()
        thread.join()
    with step(2), section("here"):
        pass
    runs = by_name(RECORDER.drain())
    assert (list(runs), around(runs["here"])) == (["step", "here"], 0)


def test_sections_that_never_end_are_let_go() -> None:
    """However many there are, memory stays bounded, and what runs inside them is recorded."""
    timer = section("never ends")
    for _ in range(5_000):
        timer.__enter__()
    RECORDER.drain()
    assert len(RECORDER.open_here()) < 5_000
    with step(1), section("here"):
        pass
    assert names(RECORDER.drain()) == ["here", "step"]


def test_a_recomputed_forward_that_torch_leaves_early_did_not_fail() -> None:
    """Any other exception says that the run was not what it should have been."""
    torch_checkpoint = pytest.importorskip("torch.utils.checkpoint")
    assert not is_failure(torch_checkpoint._StopRecomputationError)
    assert not is_failure(None)
    assert is_failure(KeyError)


def test_a_coroutine_function_is_timed_until_it_returns() -> None:
    """Time in ``await`` counts, and interleaved runs do not disturb each other."""

    async def both() -> None:
        gate = asyncio.Event()

        @section("waits")
        async def waits() -> None:
            await gate.wait()

        @section("opens")
        async def opens() -> None:
            gate.set()

        await asyncio.gather(waits(), opens())

    asyncio.run(both())
    runs = by_name(RECORDER.drain())
    assert runs["opens"][0][2] > runs["waits"][0][2]
    assert runs["opens"][2] < runs["waits"][2]


def test_a_coroutine_that_fails_is_noted() -> None:
    """As for plain functions."""

    @section("fails")
    async def fails() -> None:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        asyncio.run(fails())
    assert RECORDER.drain()[0][3] is ValueError


def test_sections_of_two_tasks_may_overlap() -> None:
    """``with`` around an ``await`` ends its own run, whichever task is first."""

    async def both() -> None:
        first_is_done = asyncio.Event()

        async def early() -> None:
            with section("early"):
                await asyncio.sleep(0)
            first_is_done.set()

        async def late() -> None:
            with section("late"):
                await first_is_done.wait()

        await asyncio.gather(early(), late())

    asyncio.run(both())
    assert names(RECORDER.drain()) == ["early", "late"]


def test_a_full_ring_drops_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded; what is lost is known."""
    monkeypatch.setattr(RECORDER, "capacity", 3)
    for _ in range(5):
        with section("s"):
            pass
    assert len(RECORDER.drain()) == 3
    assert RECORDER.dropped == 2


def test_a_section_open_while_recording_begins_is_left_out() -> None:
    """Its start is not known."""
    RECORDER.disable()
    with section("half"):
        RECORDER.enable()
        with section("whole"):
            pass
    assert names(RECORDER.drain()) == ["whole"]


def test_a_section_open_while_recording_ends_does_no_harm() -> None:
    """The stack is empty again afterwards."""
    with section("half"):
        RECORDER.disable()
    RECORDER.enable()
    with section("whole"):
        pass
    assert RECORDER.drain()[-1][1] is None


def test_a_run_belongs_to_the_step_in_which_it_begins() -> None:
    """A prefetch that ends late is work of the step that asked for it."""
    step(1)
    with section("prefetch"):
        step(2)
    prefetch = by_name(RECORDER.drain())["prefetch"]
    assert prefetch[0][3].step == 1


def test_a_plain_step_ends_the_one_before_without_a_gap() -> None:
    """The steps of a loop cover its whole time."""
    for n in range(3):
        step(n)
    first, second = RECORDER.drain()
    assert (first[0][3].step, second[0][3].step) == (0, 1)
    assert first[2] == second[0][2]


def test_a_step_as_context_ends_with_it() -> None:
    """What follows belongs to no step."""
    with step(7), section("inside"):
        pass
    with section("after"):
        pass
    runs = by_name(RECORDER.drain())
    assert runs["inside"][0][3].step == 7
    assert runs["after"][0][3].step is None
    assert runs["step"][3] is None


def test_a_step_that_fails_is_noted() -> None:
    """The step span gets the error as a section does."""
    with pytest.raises(OSError), step(1):  # noqa: PT011
        raise OSError
    assert RECORDER.drain()[0][3] is OSError


def test_the_same_number_again_goes_on_with_the_step() -> None:
    """A loop over microbatches may name the step each time."""
    for _ in range(3):
        step(5)
    step(6)
    assert [run[0][3].step for run in RECORDER.drain()] == [5]


def test_a_step_counter_that_goes_back_begins_a_new_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What was recorded before keeps the old session, and one warning says what happened."""
    for n in (0, 1, 0, 1):
        with step(n):
            pass
    sessions = [run[0][3].session.session_id for run in RECORDER.drain()]
    assert sessions[0] == sessions[1] != sessions[2] == sessions[3]
    assert [r.message.split(":")[0] for r in caplog.records] == ["step(n) went back to 0"]


def test_a_phase_marks_what_is_inside_but_not_itself() -> None:
    """The evaluation is a span of its own, its sections are scored apart."""
    with phase("eval"):
        with section("forward"):
            pass
        with phase("checkpoint"):
            pass
        with section("after"):
            pass
    runs = by_name(RECORDER.drain())
    phases = {name: run[0][3].phase for name, run in runs.items()}
    assert phases == {"forward": "eval", "after": "eval", "checkpoint": "eval", "eval": ""}
    assert runs["eval"][0][0].kind == "eval"
    assert around(runs["forward"]) == span(runs["eval"])


def test_a_run_may_say_what_it_worked_on() -> None:
    """Microbatch and tokens go with the one run."""
    with section("forward").run(microbatch=2, tokens=4096):
        pass
    with section("forward"):
        pass
    assert [run[0][4] for run in RECORDER.drain()] == [(2, 4096), None]


def test_the_open_section_is_that_of_the_stepping_thread() -> None:
    """A prefetch thread that waits for the training thread is not what the rank hangs in."""
    is_open, may_end = threading.Event(), threading.Event()

    def prefetch() -> None:
        with section("prefetch"):
            is_open.set()
            may_end.wait(10)

    thread = threading.Thread(target=prefetch)
    with step(1):
        thread.start()
        is_open.wait(10)
        assert RECORDER.open_section() is None
        with section("forward"), section("allreduce", kind="wait"):
            result = RECORDER.open_section()
            assert result is not None
            assert result.name == "allreduce"
        may_end.set()
        thread.join()


def test_progress_is_the_last_step_or_the_last_run_of_its_thread() -> None:
    """A helper thread that still runs sections does not make a stuck rank look alive."""
    with step(4), section("forward"):
        pass
    RECORDER.drain()
    before = RECORDER.progress()
    helper = threading.Thread(target=section("helper")(lambda: None))
    helper.start()
    helper.join()
    assert names(RECORDER.drain()) == ["helper"]
    assert RECORDER.progress() == before
    with section("forward"):
        pass
    RECORDER.drain()
    assert RECORDER.progress().at_ns > before.at_ns
    assert RECORDER.progress().step == 4


def test_the_open_section_is_told_after_many_threads_have_come_and_gone() -> None:
    """What is kept of ended threads is let go, what belongs to living ones is not."""
    for _ in range(300):
        thread = threading.Thread(target=run_section, args=("short",))
        thread.start()
        thread.join()
    RECORDER.drain()
    assert RECORDER.threads < 50
    with section("long"):
        RECORDER.drain()
        result = RECORDER.open_section()
    assert result is not None
    assert result.name == "long"


def run_section(name: str) -> None:
    with section(name):
        pass


def test_a_run_and_each_around_it_hold_what_their_thread_waited_meanwhile() -> None:
    """Before and after it does not count, nor what cannot be a wait."""
    assert RECORDER.add_wait(100)
    with step(1), section("outer"):
        assert RECORDER.add_wait(20)
        with section("inner"):
            assert RECORDER.add_wait(3)
            for absurd in (-1, 2**47, 2**70, True, 0.5, None):
                assert not RECORDER.add_wait(absurd)  # type: ignore[arg-type]
        with section("still"):
            assert RECORDER.add_wait(0)
    assert waits(RECORDER.drain()) == {"inner": 3, "still": 0, "outer": 23, "step": 23}


def test_what_another_thread_waited_is_not_in_this_ones_runs() -> None:
    """A section is one thread's, and so is what it waited."""

    def wait() -> None:
        with section("there"):
            RECORDER.add_wait(7)

    with step(1), section("here"):
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
    assert waits(RECORDER.drain()) == {"there": 7, "here": 0, "step": 0}


def test_runs_that_overlap_hold_each_what_was_waited_while_it_was_open() -> None:
    """Opened and closed by hand, in another order."""
    first = section("first").__enter__()
    RECORDER.add_wait(1)
    second = section("second").__enter__()
    RECORDER.add_wait(20)
    first.__exit__(None, None, None)
    RECORDER.add_wait(300)
    second.__exit__(None, None, None)
    assert waits(RECORDER.drain()) == {"first": 21, "second": 320}


def test_a_coroutine_holds_no_wait() -> None:
    """Its thread does other things meanwhile."""

    @section("runs")
    async def runs() -> None:
        RECORDER.add_wait(7)

    asyncio.run(runs())
    assert waits(RECORDER.drain()) == {"runs": 0}


def test_a_recursion_deeper_than_is_published_holds_its_waits() -> None:
    """As many as are open at once."""
    again = section("again")

    def descend(depth: int) -> None:
        with again:
            RECORDER.add_wait(1)
            if depth:
                descend(depth - 1)

    descend(49)
    assert [record[4] for record in RECORDER.drain()] == list(range(1, 51))
