"""Who is called: the rule, and the book of episodes in which somebody was."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

from otel_straggler.model.verdict import Verdict
from otel_straggler.score.verdicts.settings import VerdictSettings
from otel_straggler.score.verdicts.standing import ACTIVE


def may_page(verdict: Verdict, settings: VerdictSettings) -> bool:
    """Whether somebody is called for this, once it is confirmed.

    It is about a rank or a host that is known to be the culprit, among peers that were told; the
    slowdown and the part of the job's GPU time that is lost reach ``page_slowdown`` and
    ``page_loss``. A number that is not known (NaN) does not.
    """
    return (
        verdict.scope in ("rank", "host")
        and verdict.is_localised
        and not verdict.is_inferred
        and verdict.slowdown >= settings.page_slowdown
        and verdict.loss_share >= settings.page_loss
    )


def decided_anew(verdict: Verdict, settings: VerdictSettings) -> Verdict:
    """A recorded change of state as it had been under other settings for paging.

    What was recorded before the lost share was kept (NaN) pages if it did then and reaches the
    slowdown: with less known there is no better answer.
    """
    if math.isnan(verdict.loss_share):
        pages = verdict.pages and verdict.slowdown >= settings.page_slowdown
    else:
        pages = verdict.state in ACTIVE and may_page(verdict, settings)
    return replace(verdict, pages=pages)


@dataclass(slots=True, kw_only=True)
class Page:
    """One call.

    Attributes:
        verdict: as it was when it began to page.
        at_step, at_ns: newest step and sender's time then; the step is None where there are none.
        ended_ns: sender's time when the subject had recovered; None if it has not.
    """

    verdict: Verdict
    at_step: int | None
    at_ns: int
    ended_ns: int | None = None


class PageBook:
    """One page per episode: from the first evaluation at which a confirmed subject pages, until
    it has recovered. A slowdown that goes up and down around the least that counts is one episode,
    and so is a flapping subject, which is not let go for an hour.

    Args:
        max_pages: kept, the newest.
    """

    def __init__(self, max_pages: int) -> None:
        self._pages: deque[Page] = deque(maxlen=max_pages)
        self._open: dict[tuple[str, str], Page] = {}

    @property
    def pages(self) -> tuple[Page, ...]:
        """In the order in which they began."""
        return tuple(self._pages)

    def note(self, verdict: Verdict, *, step: int | None, at_ns: int) -> bool:
        """The newest verdict of a subject, at this moment; whether it begins to page. Cost:
        O(1)."""
        subject = verdict.group, verdict.subject_id
        if verdict.state not in ACTIVE:
            ended = self._open.pop(subject, None)
            if ended is not None:
                ended.ended_ns = at_ns
        elif verdict.pages and subject not in self._open:
            page = Page(verdict=verdict, at_step=step, at_ns=at_ns)
            self._open[subject] = page
            self._pages.append(page)
            return True
        return False
