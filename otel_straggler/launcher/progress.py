"""Whether attempts of a run still get anywhere: the step of its newest checkpoint, attempt by
attempt."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otel_straggler.checkpoint.folder import list_checkpoints
from otel_straggler.errors import InputError
from otel_straggler.regular_files import open_regular

_MAX_BYTES: Final = 4096
_NUMBER: Final = re.compile(r"\d+")


@dataclass(kw_only=True)
class Progress:
    """Counts attempts in a row that have not brought a newer checkpoint.

    Attributes:
        path: a file with the step of the newest checkpoint, such as Megatron's
            ``latest_checkpointed_iteration.txt``, or a folder of ``checkpoint.Manager``.
        max_attempts: so many in a row are one too many to go on; 0: never.
        min_steps: a checkpoint that is so many steps newer is progress.
        step: of the newest checkpoint when the last attempt with progress ended; None: unknown.
        attempts: without progress since then.
    """

    path: str
    max_attempts: int = 3
    min_steps: int = 1
    step: int | None = None
    attempts: int = 0

    def attempt_ended(self) -> str:
        """Look at the newest checkpoint, after an attempt that failed.

        Returns:
            Why no attempt should follow; empty if one may. A step that is not known is no reason.
        """
        step = newest_step(Path(self.path))
        if step is None:
            return ""
        if self.step is None or step - self.step >= self.min_steps or step < self.step:
            self.step, self.attempts = step, 0
        else:
            self.attempts += 1
        return self.why_no_attempt_follows

    @property
    def why_no_attempt_follows(self) -> str:
        """A sentence, empty if an attempt may follow."""
        if not 0 < self.max_attempts <= self.attempts:
            return ""
        return (
            f"{self.attempts} attempts in a row have made no progress: the newest checkpoint is "
            f"still that of step {self.step} ({self.path}), so no attempt follows "
            "(max_no_progress_cycles)"
        )


def newest_step(path: Path) -> int | None:
    """The step of the newest checkpoint; None if there is none, or nothing to read."""
    try:
        if path.is_dir():
            complete = [each.step for each in list_checkpoints(path) if each.manifest is not None]
            return max(complete, default=None)
        with os.fdopen(open_regular(path, os.O_RDONLY, follow=True), "rb") as file:
            text = file.read(_MAX_BYTES).decode(errors="replace")
    except (OSError, InputError):
        return None
    number = _NUMBER.search(text)
    return int(number.group()) if number else None
