"""What a launcher reports: what happens to a job, an attempt and a rank."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from otel_straggler.semconv import LaunchEventName


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchEvent:
    """One event of a node's launcher.

    Attributes:
        at_unix_s: wall clock.
        run_id, attempt: as the ranks have them; ``job``: start of torchrun, from 1.
        rank: global rank; -1 where it is about the node. ``pid``: of the rank, 0 if unknown.
        exit_code: of a rank or of torchrun; negative: a signal; None where nothing ended.
        reason: a word for a label, such as ``SIGKILL`` or ``exit_1``; ``text``: a sentence.
        ranks: global ranks that the node has in this attempt.
        step: of the newest checkpoint when an attempt ended, None if unknown; ``stuck_attempts``:
            attempts in a row that have not brought a newer one.
    """

    name: LaunchEventName
    at_unix_s: float
    node: str
    run_id: str = ""
    job: int = 1
    attempt: int = 0
    rank: int = -1
    pid: int = 0
    exit_code: int | None = None
    reason: str = ""
    text: str = ""
    ranks: tuple[int, ...] = ()
    step: int | None = None
    stuck_attempts: int = 0

    def to_json(self) -> str:
        """One line, without its end."""
        return json.dumps(asdict(self))
