"""Whose a ring's file is, written into it, so that the file of a dead process speaks for itself."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from otel_straggler.config import ClientSettings
from otel_straggler.record.active import RECORDER
from otel_straggler.record.evidence.processes import started_ticks
from otel_straggler.record.ring_file import write_identity
from otel_straggler.record.ring_state import RingIdentity

_LOG = logging.getLogger("otel_straggler")


def note_identity(settings: ClientSettings) -> None:
    """Where the ring is a file (``OTEL_STRAGGLER_RING_DIR``). Recording has begun."""
    path: Path | None = getattr(RECORDER, "path", None)  # the recorder in Python has no file
    if path is None:
        return
    identity = RingIdentity(
        run_id=settings.run_id,
        group=settings.group,
        rank=settings.rank,
        node=settings.node,
        started=started_ticks(os.getpid()),
        boot=place_of_pids(),
    )
    try:
        write_identity(path, identity)
    except OSError as error:
        _LOG.warning("%s does not say whose it is: %s", path, error)


def place_of_pids() -> str:
    """Where numbers of processes and ``CLOCK_MONOTONIC`` mean what they mean here: this boot of a
    machine, this container; empty if that is not told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
