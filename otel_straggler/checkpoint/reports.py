"""What a manager reports of its saves and restores: totals, sections of the past, log lines."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from otel_straggler.client.checkpoints import CheckpointTotals, add_save, record_past

if TYPE_CHECKING:
    from otel_straggler.checkpoint.restoring import Restored
    from otel_straggler.checkpoint.saving import SaveReport
    from otel_straggler.checkpoint.schedule import Schedule
    from otel_straggler.checkpoint.writer_process import RunningSave

_LOG = logging.getLogger("otel_straggler")


def report_saved(running: RunningSave, report: SaveReport, schedule: Schedule) -> None:
    """Count a save that is committed, and record its phases."""
    write_s = sum(end_s - start_s for name, start_s, end_s in report.phases if name == "write")
    add_save(
        CheckpointTotals(
            saves=1,
            size_bytes=report.size_bytes,
            blocking_s=running.blocking_s,
            save_s=running.save_s,
            write_s=write_s,
            step=running.context.step,
            interval_s=schedule.optimal_s,
            mtbf_s=schedule.mtbf_s,
        )
    )
    for name, start_s, end_s in report.phases:
        record_past(f"checkpoint_{name}", start_s, end_s)


def log_saved(running: RunningSave, report: SaveReport, *, is_first_save: bool) -> None:
    """One line; that of the first save also says what blocked."""
    _LOG.info(
        "checkpoint of step %d: %s, blocked %.3f s%s, committed after %.1f s",
        running.context.step, report.path.name, running.blocking_s,
        f" ({running.what_blocked})" if is_first_save else "", running.save_s,
    )  # fmt: skip
    if is_first_save and report.needs:
        _LOG.warning(
            "checkpoints: to restore them, allow the classes of %s: Manager(..., allow=[%s])",
            ", ".join(f"state {key!r}" for key in report.needs.values()),
            ", ".join(f'"{name}"' for name in report.needs),
        )


def report_restored(restored: Restored, *, is_first: bool) -> None:
    """Record the phases; rank 0 also logs them."""
    for name, start_s, end_s in restored.phases:
        if name != "read":  # DCP's own phases
            record_past(f"checkpoint_{name}", start_s, end_s)
    if is_first:
        its = restored.read
        _LOG.info(
            "restored step %d from %s: %s; rank 0 read %s",
            restored.step, restored.name,
            ", ".join(f"{name} {s:.2f} s" for name, s in restored.phases_s.items()),
            ", ".join(f"{n / 1e6:,.1f} MB {tier}" for tier, n in its.size_bytes.items()),
        )  # fmt: skip
