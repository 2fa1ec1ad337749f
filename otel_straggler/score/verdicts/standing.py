"""The state of one subject over time: ok, suspect, confirmed, recovered, flapping."""

from __future__ import annotations

from dataclasses import dataclass, field

from otel_straggler.model.verdict import State

ACTIVE: frozenset[State] = frozenset({"confirmed", "flapping"})
APART_STEPS = 10
"""Evaluations that confirm each other lie so far apart, and at most twice as far."""
HOLD = 3
"""Evaluations in a row without a finding that end a suspicion, or a confirmed fault."""
FLAPS = 3
FLAP_WITHIN_NS = 3_600 * 10**9
"""So many confirmations within an hour are one flapping subject, not many alarms."""


@dataclass(slots=True)
class Standing:
    """One subject.

    Attributes:
        state: now.
        since_step: first step of the present trouble; None if not known.
        confirmed_step: newest step seen when it was confirmed; None before.
        floor: the least excess that counted when it was flagged; it is clear at half of it.
    """

    state: State = "ok"
    since_step: int | None = None
    confirmed_step: int | None = None
    floor: float = 0.0
    flagged_at: list[int] = field(default_factory=list)
    confirmed_at_ns: list[int] = field(default_factory=list)
    quiet: int = 0

    def take(
        self,
        *,
        flagged: bool,
        sure: bool,
        clear: bool,
        steps: int,
        at_ns: int,
        confirmable: bool = True,
    ) -> bool:
        """One evaluation; True if the state has changed.

        Args:
            flagged: beyond its peers now.
            sure: confirmed at once (CUSUM, verified).
            clear: as fast as its peers again. Neither flagged nor clear: unchanged.
            confirmable: the evidence allows more than a suspicion.
            steps: observed so far, a count.
            at_ns: sender's time of the newest step.
        """
        before = self.state
        if flagged or sure:
            self.quiet = 0
            self._flag(steps, at_ns, sure=sure, confirmable=confirmable)
        elif self._is_quiet(clear):
            self._end(at_ns)
        return self.state != before

    def _flag(self, steps: int, at_ns: int, *, sure: bool, confirmable: bool) -> None:
        again = any(APART_STEPS <= steps - at <= 2 * APART_STEPS for at in self.flagged_at)
        self.flagged_at = [at for at in self.flagged_at if steps - at <= 2 * APART_STEPS]
        self.flagged_at.append(steps)
        if self.state in ("confirmed", "flapping"):
            return
        if not (confirmable and (sure or again)):
            self.state = "suspect"
            return
        recent = [at for at in self.confirmed_at_ns if at_ns - at < FLAP_WITHIN_NS]
        self.confirmed_at_ns = [*recent, at_ns]
        self.state = "flapping" if len(self.confirmed_at_ns) >= FLAPS else "confirmed"

    def _is_quiet(self, clear: bool) -> bool:
        """A suspicion ends without findings; what was confirmed must be clear."""
        if self.state in ("suspect", "recovered") or clear:
            self.quiet += 1
        else:
            self.quiet = 0
        return self.quiet >= HOLD

    def _end(self, at_ns: int) -> None:
        if self.state == "suspect":
            self.state = "recovered" if self.confirmed_at_ns else "ok"
        elif self.state == "confirmed" or self._has_calmed_down(at_ns):
            self.state = "recovered"

    def _has_calmed_down(self, at_ns: int) -> bool:
        last_ns = self.confirmed_at_ns[-1] if self.confirmed_at_ns else 0
        return self.state == "flapping" and at_ns - last_ns >= FLAP_WITHIN_NS
