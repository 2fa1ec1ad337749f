"""``otel-straggler`` on a clock that stands still until somebody moves it.

    python -m tests.golden.clocked FILE COMMAND ...

FILE holds the seconds since 1970 as a C double. The product's own code reads it wherever it asks
for the time or waits with a time limit, and finds that nothing takes any processor time; everybody
else, the standard library among them, has the real times. Nothing else of the product is touched.
"""

from __future__ import annotations

import mmap
import struct
import sys
import threading
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

OURS = "otel_straggler"
_LOOK_S = 0.01
_NAP_S = 0.001
_NS = 1_000_000_000
_MONOTONIC_FROM_S = 1_700_000_000.0
"""As of a machine that was started then: nanoseconds since 1970, as seconds, would come out just
below a whole second now and above it then."""


class Clock:
    """The time in a file that several processes have mapped."""

    def __init__(self, path: str | Path) -> None:
        with Path(path).open("r+b") as file:
            self._held = mmap.mmap(file.fileno(), 8)

    @classmethod
    def create(cls, path: Path, now_s: float) -> Clock:
        path.write_bytes(struct.pack("<d", now_s))
        return cls(path)

    @property
    def now_s(self) -> float:
        now_s: float = struct.unpack("<d", self._held[:8])[0]
        return now_s

    @property
    def now_rfc3339(self) -> str:
        return datetime.fromtimestamp(self.now_s, timezone.utc).isoformat()

    def set(self, now_s: float) -> None:
        self._held[:8] = struct.pack("<d", now_s)


def is_ours(depth: int = 2) -> bool:
    """Whether the product's code has called the caller."""
    name = str(sys._getframe(depth).f_globals.get("__name__", ""))
    return name == OURS or name.startswith(OURS + ".")


def install(clock: Clock, *, sleeping_moves_it: bool = False) -> None:
    """Give the product this clock."""
    for name, from_s in (("time", 0.0), ("monotonic", _MONOTONIC_FROM_S)):
        for suffix, scale in (("", 0), ("_ns", _NS)):
            setattr(
                time, name + suffix, _reader(getattr(time, name + suffix), clock, from_s, scale)
            )
    for name in ("thread_time", "thread_time_ns", "process_time", "process_time_ns"):
        setattr(time, name, _nothing_spent(getattr(time, name)))
    real_sleep = time.sleep

    def sleep(seconds: float) -> None:
        if not is_ours():
            real_sleep(seconds)
        elif sleeping_moves_it:
            clock.set(clock.now_s + seconds)
        else:
            real_sleep(min(seconds, _NAP_S))

    time.sleep = sleep
    for kind in (threading.Event, threading.Condition):
        kind.wait = _waiter(kind.wait, clock)  # type: ignore[attr-defined]


def _reader(real: Any, clock: Clock, from_s: float, scale: int) -> Any:
    def read() -> float | int:
        if not is_ours():
            return real()  # type: ignore[no-any-return]
        now_s = clock.now_s - from_s
        return round(now_s * scale) if scale else now_s

    return read


def _nothing_spent(real: Any) -> Any:
    """What took long is made less often; here nothing takes any time."""
    return lambda: 0 if is_ours() else real()


def _waiter(real: Any, clock: Clock) -> Any:
    """Waits in small pieces of real time until the clock has got there. Who waits again and again
    for the same thing does so at regular times, as if nothing took any time in between."""
    woken_s: dict[tuple[int, int], float] = {}

    def wait(self: Any, timeout: float | None = None) -> Any:
        if timeout is None or not is_ours():
            return real(self, timeout)
        key = threading.get_ident(), id(self)
        until_s = woken_s.get(key, clock.now_s) + timeout
        while not (has_come := real(self, _LOOK_S)) and clock.now_s < until_s:
            pass
        if isinstance(self, threading.Event):
            woken_s[key] = max(until_s, clock.now_s - timeout)
        return has_come

    return wait


if __name__ == "__main__":
    path, *arguments = sys.argv[1:]
    install(Clock(path))
    from otel_straggler.cli import main

    sys.exit(main(arguments))
