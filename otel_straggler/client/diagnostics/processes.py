"""Facts from Linux about a process: whether it lives, since when, and which signals it handles."""

from __future__ import annotations

import logging
import os
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


def open_process(pid: int) -> int | None:
    """A descriptor of the process, which stays its own when the number is given to another one;
    None where the kernel has none (before Linux 5.3).

    Raises:
        ProcessLookupError: there is no such process.
    """
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):
        return None


def send_signal(pid: int, descriptor: int | None, number: int) -> None:
    """Send a signal to the process that :func:`open_process` has opened.

    Raises:
        OSError: it has ended, or belongs to another user.
    """
    if descriptor is None:
        os.kill(pid, number)
    else:
        signal.pidfd_send_signal(descriptor, number)


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
