"""Why a tier cannot be had, as one of a closed list; and when it is worth another try."""

from __future__ import annotations

import re
from dataclasses import dataclass

from otel_straggler.semconv import GPU_TIMING_REASONS

_CODES = {
    14: "not_compatible",
    15: "not_initialized",
    27: "not_supported",
    33: "virtualized",
    35: "insufficient_privileges",
    39: "multiple_subscribers",
    40: "virtualized",
    41: "confidential",
    42: "not_supported",
    43: "not_supported",
    999: "cupti_unknown",
}
"""By result code of CUPTI."""
_WORDS = (
    ("no CUDA driver is loaded", "no_driver"),
    ("names a library that cannot be loaded", "broken_cupti"),
    ("no libcupti was found", "no_cupti"),
    ("libcupti has no ", "broken_cupti"),
    ("interface version", "old_cupti"),
    ("forked child", "forked"),
    ("address space", "no_memory"),
)
"""By what the extension says where it has no result code."""
_RETRY_S = {
    "kineto_active": 1.0,
    "no_torch": 1.0,
    "cuda_unused": 1.0,
    "no_driver": 1.0,
    "not_initialized": 60.0,
    "multiple_subscribers": 60.0,
    "takeover": 60.0,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A tier cannot be had.

    Attributes:
        code: one of ``semconv.GPU_TIMING_REASONS``.
        detail: what happened, in the words of who refused; empty where the code says it all.
    """

    code: str
    detail: str = ""

    @property
    def sentence(self) -> str:
        """Cause and remedy, for a log."""
        known = GPU_TIMING_REASONS[self.code]
        return f"{self.detail or known.cause}. What to do: {known.remedy}"

    @property
    def retry_s(self) -> float | None:
        """Seconds after which another try is worth it; None: not unless asked for."""
        return _RETRY_S.get(self.code)


def refusal_of(words: str) -> Refusal:
    """What the extension said, as a reason.

    >>> refusal_of("cuptiSubscribe gave 39: another profiler ...").code
    'multiple_subscribers'
    """
    given = re.search(r" gave (\d+)\b", words)
    if given is not None:
        return Refusal(_CODES.get(int(given[1]), "cupti_failed"), words)
    code = next((code for mark, code in _WORDS if mark in words), "cupti_failed")
    return Refusal(code, words)
