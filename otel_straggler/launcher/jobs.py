"""Job after job until the training has left its marker: the loop around torchrun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

FIRST_WAIT_S: Final = 5.0
MAX_WAIT_S: Final = 300.0
NOT_FINISHED: Final = 75
"""Exit code where no job failed and the training has not finished (EX_TEMPFAIL of sysexits.h)."""


class Ending(NamedTuple):
    """How the loop ended: the exit code, and why in a word and in a sentence."""

    exit_code: int
    reason: str
    text: str


def run_jobs(
    max_jobs: int,
    *,
    run_job: Callable[[int], int],
    is_finished: Callable[[], bool],
    wait: Callable[[float], bool],
    say: Callable[[str], None],
    why_not_again: Callable[[], str] = lambda: "",
) -> Ending:
    """Run jobs until one has finished the training.

    Args:
        run_job: runs the job of a number, from 1; its exit code.
        is_finished: whether the marker is there.
        wait: waits so many seconds; True as soon as a signal asks the launcher to stop, or has.
        say: gets a sentence for each decision.
        why_not_again: the sentence that ends the loop; empty as long as a next job makes sense.
    """
    if is_finished():
        return Ending(0, "finished", "the training has finished before: its marker is there")
    failures = 0
    for job in range(1, max_jobs + 1):
        exit_code = run_job(job)
        ended = f"job {job} of at most {max_jobs} ended with exit code {exit_code}"
        if is_finished():
            return Ending(exit_code, "finished", f"{ended}; the training has finished")
        if wait(0.0):
            return Ending(exit_code or NOT_FINISHED, "stopped", f"{ended} after a signal")
        if reason := why_not_again():
            return Ending(exit_code or NOT_FINISHED, "no_progress", f"{ended}; {reason}")
        if job == max_jobs:
            break
        failures = failures + 1 if exit_code else 0
        wait_s = min(FIRST_WAIT_S * 2.0 ** (failures - 1), MAX_WAIT_S) if failures else 0.0
        say(f"{ended}, and the training has not finished; job {job + 1} starts in {wait_s:g} s")
        if wait(wait_s):
            return Ending(exit_code or NOT_FINISHED, "stopped", f"{ended}; then came a signal")
    return Ending(
        exit_code or NOT_FINISHED,
        "max_jobs",
        f"{ended}, and the training has not finished; no job is left (--max-jobs)",
    )
