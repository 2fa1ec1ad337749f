"""Who asks for a save at once: SIGTERM, and a file that an agent writes."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

from otel_straggler.client import termination
from otel_straggler.client.worker import LogOnce, Worker
from otel_straggler.errors import InputError
from otel_straggler.model.names import clean_name
from otel_straggler.regular_files import open_regular, read_small
from otel_straggler.semconv import CHECKPOINT_REQUEST_FILE, CHECKPOINT_SAVED, CHECKPOINT_SERVED
from otel_straggler.strict_json import whole_number

_POLL_S: Final = 1.0
_MAX_BYTES: Final = 65_536
_MAX_REASON: Final = 100
_LOG = logging.getLogger("otel_straggler")
_FAILED: Final = LogOnce("checkpoints: a look at the request file has failed; the next is in 1 s")


class SigtermWatch:
    """Postpones the end that SIGTERM brings until a save is committed, or its time is over."""

    def __init__(self, on_sigterm: Callable[[], None], deadline_s: float) -> None:
        self._on_sigterm = on_sigterm
        self._deadline_s = deadline_s
        self._has_come = False
        self._own: termination.Termination | None = None
        _WATCHES.add(self)

    def install(self) -> None:
        termination.POSTPONING.append(self._postpone)
        if not termination.is_installed():
            own = termination.Termination(lambda *_: True, 0.0)
            if own.install():
                self._own = own

    def end(self) -> None:
        """What was postponed happens now, if SIGTERM came to this process."""
        self._withdraw()
        if self._has_come:
            os.kill(os.getpid(), signal.SIGTERM)

    def close(self) -> None:
        self.end()
        if self._own is not None:
            self._own.uninstall()
            self._own = None

    def leave_to_parent(self) -> None:
        """In a forked child, which saves nothing, and which SIGTERM ends."""
        self._withdraw()
        own, self._own = self._own, None
        if own is not None:
            own.leave_to_parent()

    def _postpone(self) -> float:
        """Seconds that the process asks for."""
        if not self._has_come:
            self._has_come = True
            self._on_sigterm()
        return self._deadline_s

    def _withdraw(self) -> None:
        if self._postpone in termination.POSTPONING:
            termination.POSTPONING.remove(self._postpone)


_WATCHES: Final[weakref.WeakSet[SigtermWatch]] = weakref.WeakSet()


def _leave_to_parent() -> None:
    for watch in tuple(_WATCHES):
        watch.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)


class RequestFile:
    """A path that is looked at every second: a new file there asks for a save. Its first line is
    the reason, its second the ranks that are stuck and take no part, such as ``3,5``."""

    def __init__(
        self, path: str | Path | None, request: Callable[[str, tuple[int, ...]], None]
    ) -> None:
        named = path or os.environ.get(CHECKPOINT_REQUEST_FILE, "")
        self._path = Path(named) if named else None
        self._request = request
        self._seen = self._identity()
        self._worker: Worker | None = None
        if self._path is not None:
            self._touch(CHECKPOINT_SERVED)
            self._worker = Worker(self._tick, _FAILED, "otel-straggler-checkpoint-requests")
            self._worker.start()

    def answer(self) -> None:
        """A checkpoint that was asked for is complete."""
        self._touch(CHECKPOINT_SAVED)

    def _touch(self, suffix: str) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):
                path = self._path.with_name(self._path.name + suffix)
                file = open_regular(path, os.O_WRONLY | os.O_CREAT)
                os.utime(file)
                os.close(file)

    def poll(self) -> None:
        identity = self._identity()
        if identity == self._seen:
            return
        self._seen = identity
        if identity is None or self._path is None:
            return
        try:
            text = read_small(self._path, _MAX_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            text = ""
        except (OSError, InputError) as error:
            _LOG.warning("no checkpoint is saved for a request that cannot be read: %s", error)
            return
        lines = [*text.splitlines()[:2], "", ""]
        stuck = (whole_number(each.strip()) for each in lines[1].split(","))
        reason = clean_name(lines[0].strip(), _MAX_REASON) or "request"
        self._request(reason, tuple(each for each in stuck if each is not None))

    def close(self) -> None:
        if self._worker is not None and self._path is not None:
            self._worker.stop(_POLL_S)
            with contextlib.suppress(OSError):
                self._path.with_name(self._path.name + CHECKPOINT_SERVED).unlink()

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.lstat(self._path) if self._path is not None else None
        except OSError:
            return None
        return None if found is None else (found.st_ino, found.st_mtime_ns)

    def _tick(self, now_s: float) -> float:
        self.poll()
        return now_s + _POLL_S
