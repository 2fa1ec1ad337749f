"""Facts from Linux about a process: whether it lives, since when, which signals it handles; and
signals to it."""

from __future__ import annotations

import logging
import os
import select
import signal
from pathlib import Path

from otel_straggler.client.recording import RECORDER
from otel_straggler.client.ring_file import RingIdentity, write_identity
from otel_straggler.config import ClientSettings

FIRST_SIGNAL, LAST_SIGNAL = 7, 20
"""Real-time signals on which stacks may be written, from SIGRTMIN on: the first few are taken by
some."""
_STARTED_AT = 19
"""Field 22 of ``/proc/PID/stat``, counted from the state, which follows the name."""


def started_ticks(pid: int) -> str:
    """Start in ticks since the boot; empty if there is no such process, or it is a zombie."""
    fields = _stat(pid)
    return "" if not fields or fields[0] in "ZX" else fields[_STARTED_AT]


def is_stopped(pid: int) -> bool:
    """Whether it was stopped, by SIGSTOP or a debugger."""
    return (_stat(pid) or ["?"])[0] in "Tt"


def describe_state(pid: int) -> str:
    """What the kernel says of it: state, and the call it waits in."""
    state = " ".join(_status_field(pid, "State").split())
    try:
        call = Path(f"/proc/{pid}/wchan").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "not known"
    return (f"{state}, in {call}" if call not in {"", "0"} else state) or "not known"


def takes_signal(pid: int, number: int) -> bool:
    """Whether it has a handler for the signal; without one, the signal may end it."""
    return _mask(pid, "SigCgt") >> (number - 1) & 1 == 1


def has_disposition(pid: int, number: int) -> bool:
    """Whether the signal is handled, ignored or blocked there."""
    masks = (_mask(pid, name) for name in ("SigCgt", "SigIgn", "SigBlk"))
    return any(mask >> (number - 1) & 1 for mask in masks)


def is_stacks_signal(number: int) -> bool:
    """Whether it is one that a rank announces for its stacks; never one with a meaning of its own,
    such as SIGTERM."""
    first = getattr(signal, "SIGRTMIN", None)
    return first is not None and first + FIRST_SIGNAL <= number <= first + LAST_SIGNAL


def user_of(pid: int) -> int | None:
    """Effective user id; None if there is no such process."""
    text = _status_field(pid, "Uid")
    return int(text.split()[1]) if text else None


def holds_open(pid: int, path: Path) -> bool:
    """Whether it has this very file open; also if the file has another name where it runs, in a
    container. False if this user may not see that."""
    try:
        wanted = path.lstat()
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    return any(_is_file(one, wanted) for one in descriptors)


def _is_file(descriptor: Path, wanted: os.stat_result) -> bool:
    try:
        found = descriptor.stat()
    except OSError:  # closed meanwhile
        return False
    return (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)


class ProcessHandle:
    """A process and not a number: a signal reaches this very one, or nobody. Agent, launcher and
    ``hang stacks`` send all their signals by :meth:`signal`.

    The kernel's handle (pidfd, Linux 5.3) is the process. Where there is none, its start is
    compared right before a signal, so that another process which has its number now gets none.

    Args:
        pid: its number; not used with ``descriptor``, which knows it.
        descriptor: the kernel's handle, where it has given one; owned from here on.
        started: when it started, in ticks since the boot, if somebody knows; empty: nobody does.

    Attributes:
        pid: its number here.
        started: as the kernel says.

    Raises:
        ProcessLookupError: it has ended, started at another time, or is not visible here.
    """

    def __init__(self, pid: int = 0, *, descriptor: int | None = None, started: str = "") -> None:
        self.descriptor = _opened(pid) if descriptor is None else descriptor
        try:
            self.pid = pid if descriptor is None else _number_of(descriptor)
            self.started = started_ticks(self.pid) if self.pid > 0 else ""
            if self.pid == 0:
                raise ProcessLookupError("it is not visible here: another PID namespace")
            if not self.started or not self.is_alive:
                raise ProcessLookupError("it has ended")
            if started not in {"", self.started}:
                raise ProcessLookupError("its number is another process's now")
        except OSError:
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        if self.descriptor is None:
            return started_ticks(self.pid) == self.started
        ended = select.poll()
        ended.register(self.descriptor, select.POLLIN)
        return not ended.poll(0)

    @property
    def is_stopped(self) -> bool:
        """Whether SIGSTOP or a debugger has stopped it."""
        return is_stopped(self.pid) and self.is_alive

    def handles(self, number: int) -> bool:
        """Whether it has a handler for the signal, which would else end it."""
        return takes_signal(self.pid, number) and self.is_alive

    def signal(self, *numbers: int) -> None:
        """Send signals, one after the other.

        Raises:
            ProcessLookupError: it has ended; its number may be another one's now.
            OSError: it cannot be signalled.
        """
        for number in numbers:
            if self.descriptor is not None:
                signal.pidfd_send_signal(self.descriptor, number)
            elif self.is_alive:
                os.kill(self.pid, number)
            else:
                raise ProcessLookupError("it has ended")

    def close(self) -> None:
        """Safe to call twice."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _opened(pid: int) -> int | None:
    """The kernel's handle; None where it has none."""
    try:
        return os.pidfd_open(pid) if pid > 0 else None
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):
        return None


def _number_of(descriptor: int) -> int:
    """Of a handle: -1 if its process has ended, 0 if it is not visible here."""
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii").splitlines()
    return int(next((line[4:] for line in lines if line.startswith("Pid:")), "-1"))


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    fields = text.rpartition(")")[2].split()
    return fields if len(fields) > _STARTED_AT else []


def _mask(pid: int, name: str) -> int:
    return int(_status_field(pid, name) or "0", 16)


def _status_field(pid: int, name: str) -> str:
    """A line of ``/proc/PID/status`` without its name; empty if there is none."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    lines = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for key, _, value in lines if key == name), "")


_LOG = logging.getLogger("otel_straggler")


def write_ring_identity(settings: ClientSettings) -> None:
    """Write the identity into the ring's file (``OTEL_STRAGGLER_RING_DIR``), if there is one."""
    path: Path | None = getattr(RECORDER, "path", None)  # the recorder in Python has no file
    if path is None:
        return
    identity = RingIdentity(
        run_id=settings.run_id,
        group=settings.group,
        rank=settings.rank,
        node=settings.node,
        started=started_ticks(os.getpid()),
        boot=pid_scope(),
    )
    try:
        write_identity(path, identity)
    except OSError as error:
        _LOG.warning("%s does not say whose it is: %s", path, error)


def pid_scope() -> str:
    """The scope of process numbers and ``CLOCK_MONOTONIC``: this boot of a machine, this container;
    empty if not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
