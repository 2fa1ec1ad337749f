"""The parent of torchrun: starts the node's agent and torchrun, once or until the training has left
its marker, passes signals on, reports."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from otel_straggler.client.settings import is_switched_off
from otel_straggler.client.termination import PARENT_PID
from otel_straggler.errors import InputError
from otel_straggler.launcher.events import exit_reason, exit_text, parse_event
from otel_straggler.launcher.options import RunOptions
from otel_straggler.launcher.plan import LaunchPlan, log_options, make_plan
from otel_straggler.launcher.reports import EventLog, SupervisorReports, Telemetry
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.semconv import LaunchEventName

FIRST_WAIT_S: Final = 5.0
MAX_WAIT_S: Final = 300.0
NOT_FINISHED: Final = 75
"""Exit code where no job failed and the training has not finished (EX_TEMPFAIL of sysexits.h)."""
_MODULE: Final = "otel_straggler.launcher.elastic"
_SIGNALS: Final = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
_SIGNAL_CODE: Final = 128
_MAX_LINE: Final = 1 << 20
_READ_S: Final = 5.0


def launch(
    options: RunOptions, command: Sequence[str], environment: Mapping[str, str] | None = None
) -> int:
    """Run torchrun, once or until the training has finished; its exit code.

    Args:
        command: arguments of torchrun with the runner in the script's place.

    Raises:
        ConfigError: an option or a variable is wrong; nothing was started.
        UnavailableError: the agent did not start.
    """
    env = dict(os.environ if environment is None else environment)
    plan = make_plan(options, env)
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(_signals(getattr(options.given, "signals_to_handle", _SIGNALS)))
        launcher = Launcher(plan, [*log_options(options, plan.folder), *command], stop)
        stack.callback(launcher.close)
        if plan.agent is not None:
            plan.environment.update(stack.enter_context(plan.agent()))
        _say(plan.describe())
        return launcher.run(options.max_jobs, until_finished=options.until_finished).exit_code


class Ending(NamedTuple):
    """How the loop ended: the exit code, and why in a word and in a sentence."""

    exit_code: int
    reason: str
    text: str


class Stop:
    """The first signal that asked the launcher to end, and the process that it is passed on to."""

    def __init__(self) -> None:
        self.signal_number = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._is_set = threading.Event()

    def handle(self, number: int, _frame: Any) -> None:
        """A signal handler."""
        self.signal_number = self.signal_number or number
        self._is_set.set()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def wait(self, seconds: float) -> bool:
        """Whether there was one, at the latest after so many seconds."""
        return self._is_set.wait(seconds)


class Launcher:
    """Runs torchrun as a child, in a session of its own, so that Ctrl-C reaches it once."""

    def __init__(self, plan: LaunchPlan, command: Sequence[str], stop: Stop) -> None:
        self._plan = plan
        self._command = list(command)
        self._stop = stop
        self._run_id = plan.run_id
        self._progress = plan.progress
        self._jobs = 0
        log = EventLog(plan.folder / f"events-{plan.node}.jsonl")
        self._next_attempt = log.next_attempt(plan.run_id)
        self._sinks: list[Any] = [log]
        supervisor = SupervisorReports.of(plan.environment)
        if supervisor is not None:
            self._sinks.append(supervisor)
        if not is_switched_off(plan.environment):
            self._sinks.append(Telemetry(plan.endpoints, plan.resource))
            self._sinks[-1].start()

    def run(self, max_jobs: int, *, until_finished: bool) -> Ending:
        """One job, or jobs until the marker is there."""
        if not until_finished:
            exit_code = self._run_job(1)
            if exit_code and (why := self._why_not_again()):
                _say(why)
            reason = "stopped" if self._stop.wait(0.0) else "failed" if exit_code else "finished"
            return self._ended(Ending(exit_code, reason, f"torchrun {exit_text(exit_code)}"))
        ending = run_jobs(
            max_jobs,
            run_job=self._run_job,
            is_finished=self._plan.finished_flag.exists,
            wait=self._stop.wait,
            say=_say,
            why_not_again=self._why_not_again,
        )
        _say(f"{ending.text}: {self._plan.finished_flag}")
        return self._ended(ending)

    def _ended(self, ending: Ending) -> Ending:
        """Report that nothing more is started here."""
        if self._jobs:
            self._emit("straggler.run.ended", self._jobs, reason=ending.reason, text=ending.text)
        return ending

    def close(self) -> None:
        for sink in self._sinks:
            if hasattr(sink, "close"):
                sink.close()

    def _why_not_again(self) -> str:
        return "" if self._progress is None else self._progress.why_no_attempt_follows

    def _run_job(self, job: int) -> int:
        if self._stop.wait(0.0):
            return _SIGNAL_CODE + self._stop.signal_number
        self._jobs = job
        self._emit("straggler.job.started", job, text=f"torchrun started: job {job}")
        read_fd, write_fd = os.pipe()
        progress = json.dumps(self._progress and asdict(self._progress))
        try:
            process = subprocess.Popen(  # noqa: S603  no shell
                [sys.executable, "-m", _MODULE, str(write_fd), str(job), progress, *self._command],
                env={
                    **self._plan.environment,
                    "OTEL_STRAGGLER_ATTEMPT": str(self._next_attempt),
                    PARENT_PID: str(os.getpid()),
                },
                pass_fds=(write_fd,),
                start_new_session=True,
            )
        finally:
            os.close(write_fd)
        self._stop.process = process
        if self._stop.wait(0.0):  # it came before there was a process to pass it on to
            process.send_signal(self._stop.signal_number)
        reader = threading.Thread(target=self._read, args=(read_fd,), name="events", daemon=True)
        reader.start()
        code = process.wait()
        self._stop.process = None
        reader.join(_READ_S)
        is_finished = self._plan.finished_flag.exists()
        self._emit(
            "straggler.job.ended",
            job,
            exit_code=code,
            reason="finished" if is_finished else exit_reason(code),
            text=f"torchrun {exit_text(code)}"
            + ("; the training has finished" if is_finished else ""),
        )
        return code if code >= 0 else _SIGNAL_CODE - code

    def _read(self, fd: int) -> None:
        """Until torchrun and what it started have closed their end."""
        with os.fdopen(fd, "rb") as pipe:
            while line := pipe.readline(_MAX_LINE):
                try:
                    event = parse_event(line)
                except InputError as error:
                    _say(str(error))
                    continue
                self._run_id = event.run_id or self._run_id
                self._next_attempt = max(self._next_attempt, event.attempt + 1)
                if self._progress is not None and event.name == "straggler.attempt.ended":
                    self._progress.step = event.step
                    self._progress.attempts = event.stuck_attempts
                self._send(event)

    def _emit(self, name: LaunchEventName, job: int, **values: Any) -> None:
        self._send(
            LaunchEvent(
                name=name,
                at_unix_s=time.time(),
                node=self._plan.node,
                run_id=self._run_id,
                job=job,
                attempt=max(self._next_attempt - 1, 0),
                **values,
            )
        )

    def _send(self, event: LaunchEvent) -> None:
        for sink in self._sinks:
            sink.add(event)


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


@contextlib.contextmanager
def _signals(names: str) -> Iterator[Stop]:
    """Handles the signals that torchrun handles, and puts the handlers back at the end."""
    stop = Stop()
    numbers = [getattr(signal, name.strip(), None) for name in names.split(",")]
    before = {n: signal.signal(n, stop.handle) for n in numbers if isinstance(n, signal.Signals)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(text: str) -> None:
    print(f"otel-straggler: {text}", file=sys.stderr, flush=True)  # noqa: T201
