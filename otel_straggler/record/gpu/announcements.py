"""What was said last about GPU timing: in the log once for each reason, always to who asks."""

from __future__ import annotations

import logging
import time

from otel_straggler.record.gpu.reasons import Refusal
from otel_straggler.semconv import GpuTier

_SILENT = frozenset({"asked", "auto"})
_EXPECTED = frozenset({"kineto_active", "cuda_unused", "no_torch", "no_driver"})
_LOG = logging.getLogger("otel_straggler")


class Announcements:
    """The tier and its reason, changed together.

    Args:
        refusal: why the tier is off at the beginning.
    """

    def __init__(self, refusal: Refusal) -> None:
        self._now: tuple[GpuTier, Refusal | None, float] = ("off", refusal, time.time())
        self._of_tier: dict[GpuTier, Refusal | None] = {}
        self._logged: set[tuple[GpuTier, str]] = set()

    @property
    def tier(self) -> GpuTier:
        return self._now[0]

    @property
    def reason(self) -> str:
        refusal = self._now[1]
        return "" if refusal is None else refusal.code

    @property
    def sentence(self) -> str:
        refusal = self._now[1]
        return "" if refusal is None else refusal.sentence

    @property
    def since_s(self) -> float:
        """Unix time of the last change."""
        return self._now[2]

    def refusal_of(self, tier: GpuTier) -> Refusal | None:
        """With what reason this tier was last in charge."""
        return self._of_tier.get(tier)

    def forget(self) -> None:
        """Everything may be logged again."""
        self._logged.clear()

    def say(
        self, tier: GpuTier, refusal: Refusal | None, about: str = "", *, is_silent: bool = False
    ) -> None:
        """This tier is in charge, for this reason no higher one, and works with ``about``."""
        if (tier, refusal) == self._now[:2]:
            return
        if tier != "off":
            self._of_tier[tier] = refusal
        self._now = (tier, refusal, time.time())
        key = (tier, self.reason)
        if not is_silent and key not in self._logged:
            self._logged.add(key)
            _log(tier, refusal, about)


def _log(tier: GpuTier, refusal: Refusal | None, about: str) -> None:
    """One line. What the user asked for and what passes by itself is no warning."""
    if refusal is None or refusal.code in _SILENT:
        what = f"by {about}" if about else "host times only"
        _LOG.info("GPU timing is %s: %s", tier, what)
        return
    level = logging.INFO if refusal.code in _EXPECTED else logging.WARNING
    _LOG.log(level, "GPU timing is %s (%s): %s", tier, refusal.code, refusal.sentence)
