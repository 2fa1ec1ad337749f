"""Facts from Linux about a process: whether it lives, since when, and which signals it handles."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from otel_straggler.client.recording import RECORDER
from otel_straggler.client.ring_file import RingIdentity, write_identity
from otel_straggler.config import ClientSettings

_STARTED_AT = 19
"""Field 22 of ``/proc/PID/stat``, counted from the state, which follows the name."""


def started_ticks(pid: int) -> str:
    """Start in ticks since the boot; empty if there is no such process, or it is a zombie."""
    fields = _stat(pid)
    return "" if not fields or fields[0] in "ZX" else fields[_STARTED_AT]


def is_stopped(pid: int) -> bool:
    """Whether it was stopped, by SIGSTOP or a debugger."""
    return (_stat(pid) or ["?"])[0] in "Tt"


def takes_signal(pid: int, number: int) -> bool:
    """Whether it has a handler for the signal; without one, the signal may end it."""
    return _mask(pid, "SigCgt") >> (number - 1) & 1 == 1


def has_disposition(pid: int, number: int) -> bool:
    """Whether the signal is handled, ignored or blocked there."""
    masks = (_mask(pid, name) for name in ("SigCgt", "SigIgn", "SigBlk"))
    return any(mask >> (number - 1) & 1 for mask in masks)


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    fields = text.rpartition(")")[2].split()
    return fields if len(fields) > _STARTED_AT else []


def _mask(pid: int, name: str) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1], 16)
    return 0


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
