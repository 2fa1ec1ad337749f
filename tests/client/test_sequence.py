"""The numbers of runs, by which a collector knows a run that came twice."""

from __future__ import annotations

from otel_straggler.client.python_packing import SectionCounts
from otel_straggler.client.recorder import RecordingSession

OLD, NEW = RecordingSession("0" * 16, 1), RecordingSession("1" * 16, 1)


def test_runs_of_two_sessions_that_end_in_turns_keep_their_numbers() -> None:
    """A run that began before the step counter went back may end after some of the new session."""
    counts = SectionCounts()
    result = [counts.next(session, "forward") for session in (OLD, NEW, OLD, NEW, NEW)]
    assert result == [0, 0, 1, 1, 2]


def test_several_runs_at_once_take_as_many_numbers() -> None:
    """The next one follows the last of them."""
    counts = SectionCounts()
    assert [counts.next(OLD, "forward", runs) for runs in (1, 5, 1)] == [0, 1, 6]


def test_sessions_long_gone_are_forgotten() -> None:
    """A counter that goes back every epoch of a training makes thousands of them."""
    counts = SectionCounts()
    for number in range(100):
        counts.next(RecordingSession(f"{number:016x}", 1), "forward")
    assert len(counts._of_sessions) < 10
