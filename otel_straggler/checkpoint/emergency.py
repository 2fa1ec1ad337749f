"""Who asks for a save at once: SIGTERM, and a file that an agent writes."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from otel_straggler.client import termination
from otel_straggler.semconv import CHECKPOINT_REQUEST_FILE, CHECKPOINT_SAVED, CHECKPOINT_SERVED

_POLL_S: Final = 1.0


class SigtermWatch:
    """Postpones the end that SIGTERM brings until a save is committed, or its time is over."""

    def __init__(self, on_sigterm: Callable[[], None], deadline_s: float) -> None:
        self._on_sigterm = on_sigterm
        self._deadline_s = deadline_s
        self._has_come = False
        self._own: termination.Termination | None = None

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

    def _postpone(self) -> float:
        """Seconds that the process asks for."""
        if not self._has_come:
            self._has_come = True
            self._on_sigterm()
        return self._deadline_s

    def _withdraw(self) -> None:
        if self._postpone in termination.POSTPONING:
            termination.POSTPONING.remove(self._postpone)


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
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        if self._path is not None:
            self._touch(CHECKPOINT_SERVED)
            self._thread = threading.Thread(
                target=self._run, name="otel-straggler-checkpoint-requests", daemon=True
            )
            self._thread.start()

    def answer(self) -> None:
        """A checkpoint that was asked for is complete."""
        self._touch(CHECKPOINT_SAVED)

    def _touch(self, suffix: str) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.with_name(self._path.name + suffix).touch(mode=0o600)

    def poll(self) -> None:
        identity = self._identity()
        if identity == self._seen:
            return
        self._seen = identity
        if identity is not None and self._path is not None:
            try:
                lines = self._path.read_text("utf-8", "replace").splitlines()
            except OSError:
                lines = []
            reason = lines[0][:100] if lines and lines[0].strip() else "request"
            stuck = lines[1].split(",") if len(lines) > 1 else []
            self._request(reason, tuple(int(each) for each in stuck if each.strip().isdigit()))

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None and self._path is not None:
            self._thread.join(_POLL_S)
            with contextlib.suppress(OSError):
                self._path.with_name(self._path.name + CHECKPOINT_SERVED).unlink()

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path) if self._path is not None else None  # noqa: PTH116
        except OSError:
            return None
        return None if found is None else (found.st_ino, found.st_mtime_ns)

    def _run(self) -> None:
        while not self._closed.wait(_POLL_S):
            self.poll()
