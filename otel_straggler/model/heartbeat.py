"""A rank's sign of life: that it lives, how far it is, what it is doing."""

from __future__ import annotations

from dataclasses import dataclass, field

from otel_straggler.model.rank import Source
from otel_straggler.semconv import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One metrics request of one rank. ``None`` = the request did not carry the value.

    Attributes:
        source: who sent it.
        sent_at_s: the sender's wall clock (``straggler.heartbeat.timestamp``).
        progress_at_s: the sender's wall clock when it last progressed.
        step: last step begun.
        open_section, open_time_s: the innermost open section and its age; "step" while a step is
            open and none of its sections, with the time since the last one ended.
        phase: declared phase, empty if none.
        finished_at_s, outcome: set once the rank has ended.
        dropped: records lost so far in this session, by reason.
        folded: section runs sent in spans for several so far, by section.
        gpu_tier, gpu_reason: what times the rank on its GPU, and why not more; empty if not told.
        page: whether people may be called for the run; None if not told.
        team: whose run it is; empty if not told.
        is_ending: SIGTERM has come, and the rank's own handler decides what follows.
    """

    source: Source
    sent_at_s: float | None = None
    progress_at_s: float | None = None
    step: int | None = None
    open_section: str = ""
    open_time_s: float | None = None
    phase: str = ""
    finished_at_s: float | None = None
    outcome: Outcome | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    folded: dict[str, int] = field(default_factory=dict)
    gpu_tier: str = ""
    gpu_reason: str = ""
    page: bool | None = None
    team: str = ""
    is_ending: bool = False
