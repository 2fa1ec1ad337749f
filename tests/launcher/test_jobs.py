"""The loop that runs jobs until the training has finished."""

from __future__ import annotations

from otel_straggler.launcher.launch import MAX_WAIT_S, NOT_FINISHED, Ending, run_jobs


class Jobs:
    """Jobs with known exit codes; ``finishes``: the job that leaves the marker; ``stop_in``: the
    wait, from 0, in which a signal comes; ``stuck_after``: the job after which none makes sense."""

    def __init__(
        self, *codes: int, finishes: int = 0, stop_in: int = -1, stuck_after: int = 0
    ) -> None:
        self.codes, self.finishes, self.stop_in = codes, finishes, stop_in
        self.stuck_after = stuck_after
        self.ran: list[int] = []
        self.waits: list[float] = []
        self.reported: list[str] = []

    def run(self, max_jobs: int) -> Ending:
        return run_jobs(
            max_jobs,
            run_job=self._run,
            is_finished=lambda: self.finishes in self.ran,
            wait=self._wait,
            say=self.reported.append,
            why_not_again=lambda: "no progress" if self.stuck_after in self.ran else "",
        )

    def _run(self, job: int) -> int:
        self.ran.append(job)
        return self.codes[job - 1]

    def _wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return len(self.waits) - 1 == self.stop_in


def test_jobs_are_run_until_the_marker_is_there() -> None:
    """A failure, the end of a time limit, and the job that finishes."""
    jobs = Jobs(1, 0, 0, 0, finishes=3)
    ending = jobs.run(5)
    assert jobs.ran == [1, 2, 3]
    assert (ending.exit_code, ending.reason) == (0, "finished")


def test_nothing_is_run_where_the_marker_is_there_already() -> None:
    """A requeued job of a training that has finished meanwhile."""
    jobs = Jobs(finishes=0)
    jobs.ran.append(0)
    assert jobs.run(5).exit_code == 0
    assert jobs.ran == [0]


def test_at_most_so_many_jobs_are_run_and_the_last_code_is_the_answer() -> None:
    jobs = Jobs(1, 1, 7)
    ending = jobs.run(3)
    assert jobs.ran == [1, 2, 3]
    assert (ending.exit_code, ending.reason) == (7, "max_jobs")
    assert "--max-jobs" in ending.text


def test_a_training_that_ends_well_and_has_not_finished_is_no_success() -> None:
    """A script that submits jobs has to see it."""
    assert Jobs(0, 0).run(2).exit_code == NOT_FINISHED


def test_failures_in_a_row_wait_longer_and_an_end_without_failure_does_not_wait() -> None:
    jobs = Jobs(1, 1, 1, 0, 1, 1)
    jobs.run(6)
    assert jobs.waits[1::2] == [5.0, 10.0, 20.0, 0.0, 5.0]


def test_no_wait_is_longer_than_five_minutes() -> None:
    jobs = Jobs(*[1] * 12)
    jobs.run(12)
    assert max(jobs.waits) == MAX_WAIT_S == 300.0


def test_after_a_signal_no_job_is_run() -> None:
    """It came while a job ran (the first wait), or in the pause before the next."""
    for stop_in in (0, 1):
        jobs = Jobs(1, 1, stop_in=stop_in)
        assert jobs.run(2).reason == "stopped"
        assert jobs.ran == [1]


def test_each_decision_to_go_on_says_why() -> None:
    jobs = Jobs(9, 0, finishes=2)
    jobs.run(3)
    (reported,) = jobs.reported
    assert reported == (
        "job 1 of at most 3 ended with exit code 9, and the training has not finished; "
        "job 2 starts in 5 s"
    )


def test_no_job_follows_attempts_that_make_no_progress() -> None:
    jobs = Jobs(1, 5, 1, stuck_after=2)
    ending = jobs.run(9)
    assert jobs.ran == [1, 2]
    assert (ending.exit_code, ending.reason) == (5, "no_progress")
    assert ending.text == "job 2 of at most 9 ended with exit code 5; no progress"
