"""Which verdicts page, and who was notified of them."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.model.verdict import CALLED_SLOW, Verdict

KEPT_PART: Final = 0.5
"""A verdict that pages goes on until its excess and its loss are below this part of what began it:
the newest numbers scatter around any limit."""


def would_page(verdict: Verdict, settings: VerdictSettings, *, is_paging: bool = False) -> bool:
    """Whether this would page once confirmed: a localized rank or host among reported peers, with a
    slowdown of ``page_slowdown`` and a loss of ``page_loss`` of the job's GPU time, or of
    ``page_gpu_hours`` per hour. NaN does not. ``is_paging``: it pages already.
    """
    part = KEPT_PART if is_paging else 1.0
    lost_hours = verdict.gpu_seconds_lost_per_hour / 3_600.0
    is_costly = (
        verdict.loss_share >= part * settings.page_loss
        or lost_hours >= part * settings.page_gpu_hours
    )
    return (
        verdict.scope in ("rank", "host")
        and verdict.is_localised
        and not verdict.is_inferred
        and verdict.slowdown - 1.0 >= part * (settings.page_slowdown - 1.0)
        and is_costly
    )


def decided_anew(verdict: Verdict, settings: VerdictSettings) -> Verdict:
    """A recorded change of state under other paging settings. One from before the lost share was
    kept (NaN) pages if it did then and reaches the slowdown."""
    if math.isnan(verdict.loss_share):
        pages = verdict.pages and verdict.slowdown >= settings.page_slowdown
    else:
        pages = verdict.state in CALLED_SLOW and would_page(verdict, settings)
    return replace(verdict, pages=pages)


@dataclass(slots=True, kw_only=True)
class Notification:
    """A verdict as it was when it began to page; ``ended_ns`` is None until recovery."""

    verdict: Verdict
    at_step: int | None
    at_ns: int
    ended_ns: int | None = None


class NotificationLog:
    """One per episode: from the evaluation at which a confirmed subject pages to recovery."""

    def __init__(self, maximum: int) -> None:
        self._newest: deque[Notification] = deque(maxlen=maximum)
        self._open: dict[tuple[str, str], Notification] = {}

    @property
    def notifications(self) -> tuple[Notification, ...]:
        """In the order in which they began."""
        return tuple(self._newest)

    def rename(self, old: tuple[str, str], new: tuple[str, str]) -> None:
        """Go on under another group and subject."""
        if old in self._open:
            self._open[new] = self._open.pop(old)

    def record(self, verdict: Verdict, *, step: int | None, at_ns: int) -> bool:
        """Record the newest verdict of a subject; True if it begins to page."""
        subject = verdict.group, verdict.subject_id
        if verdict.state not in CALLED_SLOW:
            ended = self._open.pop(subject, None)
            if ended is not None:
                ended.ended_ns = at_ns
        elif verdict.pages and subject not in self._open:
            new = Notification(verdict=verdict, at_step=step, at_ns=at_ns)
            self._open[subject] = new
            self._newest.append(new)
            return True
        return False
