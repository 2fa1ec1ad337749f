"""``profile()``: torch.profiler over some steps of a training, driven by its steps."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from otel_straggler.client import process
from otel_straggler.client.recording import RECORDER
from otel_straggler.client.steps import STEP_LISTENERS
from otel_straggler.profiles.settings import (
    DEFAULT_FOLDER,
    ProfileSettings,
    add_arguments,
    arguments_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from otel_straggler.profiles.artifacts import Whose
    from otel_straggler.profiles.flops import FlopsProfile
    from otel_straggler.profiles.recording import Recorded, StepRecording

_LOG = logging.getLogger("otel_straggler")
_JOIN_S: Final = 60.0
"""For hashing and reporting what was written, at the end."""


class profile(contextlib.ContextDecorator):  # noqa: N801  as contextlib's own
    """Profile steps of this rank by torch.profiler, and write the profiles to files.

    >>> import otel_straggler as ots
    >>> with ots.profile("prof", wait=1, warmup=1, active=2, skip_first=5):
    ...     pass  # for n, batch in enumerate(loader): ots.step(n) ...

    Each step that begins inside drives it: ``step()``, :func:`watch`, or the callback of a trainer;
    there is no second call. It may be a decorator, of a function that trains. Each cycle writes, to
    names that have run, attempt, rank and steps and never collide: the trace, the operators with
    the memory (``....profiler_list.dat``), and the stacks. Each file is an event
    (``straggler.profile.written``) that belongs to the span of the last step of the profile.
    The next step begins when files are written, so it takes longer. By default the first ten steps
    are skipped, one warms up, and eight are recorded: ``otel-straggler trace`` names nobody from
    fewer than three whole steps and ten collectives, nor from steps in which all is still new.

    Args:
        folder: of the files; created if missing.
        wait, warmup, active: steps of a cycle without the profiler, with it but not recorded, and
            recorded.
        repeat: cycles; 0: until the end.
        skip_first: steps before the first cycle, in which memory is allocated, kernels are chosen,
            and files are not cached yet.
        record_shapes, profile_memory, with_stack, with_flops, with_modules: of torch.profiler.
        tensorboard: traces go to ``folder/tensorboard``, by names that TensorBoard reads.
        model: where DeepSpeed is installed, the module (or engine) whose flops its profiler counts
            in the first step that is recorded of each cycle (``....profiler_ds.txt``).
        enabled: False: nothing is profiled.

    Raises:
        ConfigError: a number of steps is wrong.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] = DEFAULT_FOLDER,
        *,
        wait: int = 0,
        warmup: int = 1,
        active: int = 8,
        repeat: int = 1,
        skip_first: int = 10,
        record_shapes: bool = True,
        profile_memory: bool = True,
        with_stack: bool = True,
        with_flops: bool = True,
        with_modules: bool = True,
        tensorboard: bool = False,
        model: Any = None,
        enabled: bool = True,
    ) -> None:
        self._settings = ProfileSettings(
            folder=os.fspath(folder),
            wait=wait,
            warmup=warmup,
            active=active,
            repeat=repeat,
            skip_first=skip_first,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
            tensorboard=tensorboard,
        )
        self._model = model
        self._is_enabled = enabled
        self._recording: StepRecording | None = None
        self._flops: FlopsProfile | None = None
        self._spans: dict[int, int] = {}
        self._reporting: list[threading.Thread] = []
        self._has_recorded = False
        self.paths: list[Path] = []

    @classmethod
    def from_arguments(
        cls, arguments: argparse.Namespace | Sequence[str] | None = None, **settings: Any
    ) -> profile:
        """The profile that ``--profiling``, ``--ptensorboard`` and ``--prof_dir DIR`` ask for.

        Args:
            arguments: a namespace with these names, a list of arguments, or None for those of the
                program. Other arguments are left alone; without ``--profiling`` nothing is
                profiled.
            settings: arguments of ``profile()`` besides.
        """
        given = arguments_of(arguments)
        if given is None:
            return cls(**settings, enabled=False)
        return cls(**{**settings, **given})

    add_arguments = staticmethod(add_arguments)

    def _recreate_cm(self) -> profile:
        """Each call of a decorated function is a profile of its own."""
        settings = {name: getattr(self._settings, name) for name in ProfileSettings.__slots__}
        return profile(**settings, model=self._model, enabled=self._is_enabled)

    def __enter__(self) -> profile:
        if self._is_enabled:
            self._open()
        return self

    def __exit__(self, *_: object) -> None:
        recording, self._recording = self._recording, None
        if recording is None:
            return
        STEP_LISTENERS.remove(self._begin_step)
        recording.close()
        if not self._has_recorded and not recording.why_ended:
            self._warn_of_nothing(recording.steps_begun)
        if self._flops is not None:
            self._flops.close()
        deadline_s = time.monotonic() + _JOIN_S
        while self._reporting:
            self._reporting.pop().join(max(0.0, deadline_s - time.monotonic()))

    def _warn_of_nothing(self, steps: int) -> None:
        given = self._settings
        first = given.skip_first + given.wait + given.warmup
        _LOG.warning(
            "profile: nothing was recorded: %d steps began inside it, and the first %d are never "
            "recorded (skip_first=%d, wait=%d, warmup=%d). %s",
            steps, first, given.skip_first, given.wait, given.warmup,
            "Train longer, or skip less: profile(skip_first=0)." if steps else
            "Call step() inside it, or configure() and then watch() or a trainer's callback.",
        )  # fmt: skip

    def _open(self) -> None:
        from otel_straggler.profiles.flops import flops_profile
        from otel_straggler.profiles.recording import StepRecording

        recording = StepRecording(self._settings, self._write)
        why_not = recording.open()
        if why_not:
            _LOG.warning("no steps are profiled: %s", why_not)
            return
        self._recording = recording
        self._flops = flops_profile(self._model)
        STEP_LISTENERS.add(self._begin_step)

    def _begin_step(self, number: int) -> None:
        recording, context = self._recording, RECORDER.context
        if recording is None:
            return
        if self._flops is not None:
            self._flops.end_step()
        recording.begin_step(number)
        self._spans[number] = 0 if context is None else context.step_span
        while len(self._spans) > self._settings.active + 1:
            del self._spans[next(iter(self._spans))]
        if self._flops is not None and recording.is_first_recorded:
            self._flops.begin_step()

    def _write(self, recorded: Recorded) -> None:
        """In the thread of the loop; the rest has time."""
        self._has_recorded = True
        from otel_straggler.profiles.artifacts import write_all

        whose = _whose()
        paths = write_all(self._settings, whose, recorded)
        if self._flops is not None:
            paths += self._flops.write(self._settings.folder, whose, recorded)
        self.paths += paths
        span = self._spans.get(recorded.last_step, 0)
        thread = threading.Thread(
            target=_report,
            args=(paths, recorded.last_step, span),
            name="otel-straggler-profile",
            daemon=True,
        )
        thread.start()
        self._reporting.append(thread)


def _report(paths: Sequence[Path], step: int, step_span: int) -> None:
    """An event and a log line for each file; in a thread of its own, for files are large."""
    from otel_straggler import semconv
    from otel_straggler.otlp.encode_events import EventRecord
    from otel_straggler.profiles.artifacts import artifact_of

    for path in paths:
        try:
            artifact = artifact_of(path)
        except OSError as error:
            _LOG.warning("profile: %s cannot be read: %s", path, error)
            continue
        _LOG.info("profile: %s of step %d is in %s", artifact.kind, step, path)
        event = EventRecord(
            name=semconv.PROFILE_WRITTEN,
            at_unix_s=time.time(),
            text=f"profile ({artifact.kind}) up to step {step}: {path.name}",
            attributes={
                semconv.PROFILE_KIND: artifact.kind,
                semconv.PROFILE_SHA256: artifact.sha256,
                semconv.FILE_PATH: str(path.absolute()),
                semconv.FILE_SIZE: artifact.size_bytes,
                semconv.STEP: step,
            },
        )
        process.send_event(event, step, step_span)


def _whose() -> Whose:
    """By the session; without one, by what the launcher says."""
    from otel_straggler.client.settings import resolve_settings
    from otel_straggler.profiles.artifacts import Whose

    settings = process.current() or resolve_settings({})
    return Whose(settings.run_id, settings.group, settings.rank, settings.attempt)
