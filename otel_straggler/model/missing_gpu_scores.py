"""Closed list of the reasons for which a rank has no GPU score, with all their texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from otel_straggler.model.rank_names import ranks_text
from otel_straggler.semconv import GPU_TIMING_REASONS, GpuReason

_OWN: Final = {
    "not_profiled": GpuReason(
        "no section asks for the times of its kernels", "open one with profile_cuda=True"
    ),
    "no_kernels": GpuReason(
        "no kernel was recorded in this window",
        "leave more time between reports, so that each has a step in which kernels are recorded",
    ),
    "outside_sections": GpuReason(
        "no kernel was launched in a section whose kernels count",
        "open a section around what computes, with profile_cuda=True",
    ),
    "not_compute": GpuReason(
        "only kernels that copy or communicate were recorded, and these depend on other ranks",
        "open a section around what computes",
    ),
    "unattributed": GpuReason(
        "kernels were recorded, but not in which section they were launched",
        "compare gpu_timing() and 'otel-straggler doctor'",
    ),
    "few_executions": GpuReason(
        "no kernel was recorded often enough yet to be a reference",
        "none: it has a score as soon as one was recorded five times",
    ),
    "none_in_common": GpuReason(
        "it has no kernel that all ranks of its role ran",
        "give ranks that run different kernels different roles",
    ),
    "not_received": GpuReason(
        "no kernel times of this window have arrived from it",
        "look at its GPU timing on the page, or at gpu_timing() in the process",
    ),
    "not_known": GpuReason("its reason is not known here", "run one version on all ranks"),
}
_IS_TIMING: Final = "kernels are not timed, because "
MISSING_GPU_SCORES: Final[dict[str, GpuReason]] = {**_OWN, **GPU_TIMING_REASONS}
"""By code: cause and remedy. Codes of ``GPU_TIMING_REASONS`` stand for "kernels are not timed"."""
_CODES: Final = ("", *MISSING_GPU_SCORES)
MAX_REASONS: Final = 3
"""In one line; the others are counted."""


def number_of_reason(code: str) -> float:
    """What ranks send each other for a code; 0: there is a score. Never raises: the other ranks
    wait for it."""
    return float(_CODES.index(code if code in _CODES else "not_known"))


def reason_of_number(number: float) -> str:
    """The code that a rank has sent; ``not_known`` of one that has another list.

    >>> reason_of_number(number_of_reason("few_executions")), reason_of_number(1e9)
    ('few_executions', 'not_known')
    """
    is_known = math.isfinite(number) and 0 <= number < len(_CODES)
    return _CODES[int(number)] if is_known else "not_known"


def why_missing(relative: float, individual: float, why_no_kernels: str) -> Codes:
    """Codes of why a relative and an individual GPU score are NaN; "" of one that is not.

    Args:
        why_no_kernels: the code if there are no kernels to score; "" if there are.

    >>> why_missing(math.nan, 1.0, ""), why_missing(math.nan, math.nan, "no_cuda")
    (('none_in_common', ''), ('no_cuda', 'no_cuda'))
    """
    return (
        (why_no_kernels or "none_in_common") if math.isnan(relative) else "",
        (why_no_kernels or "few_executions") if math.isnan(individual) else "",
    )


def why_missing_in_window(relative: float, individual: float) -> Codes:
    """The same of a collector's window, where every rank with kernels has an individual score."""
    return why_missing(relative, individual, "not_received" if math.isnan(individual) else "")


Codes = tuple[str, str]
"""Of a rank's relative and individual score; "" of one that is not missing."""


def missing_text(ranks: Mapping[Codes, Sequence[int]]) -> str:
    """One line on the scores that are missing, from the ranks by codes; "" if none is.

    >>> missing_text({("no_cuda", "no_cuda"): [0, 1]})
    'no GPU scores of ranks 0 and 1: kernels are not timed, because torch was built without CUDA, \
or sees no GPU (no_cuda). What to do: install a torch for CUDA'
    >>> missing_text({("", "few_executions"): [2], ("", ""): [3]})
    'no individual GPU score of rank 2: no kernel was recorded often enough yet to be a reference \
(few_executions). What to do: none: it has a score as soon as one was recorded five times'
    """
    by_text: dict[Codes, list[int]] = {}
    for codes, named in sorted(ranks.items(), key=lambda each: each[1][0]):
        for code in dict.fromkeys(filter(None, codes)):
            which = "" if codes == (code, code) else _WHICH[codes.index(code)]
            by_text.setdefault((which, code), []).extend(named)
    texts = [_text(which, code, named) for (which, code), named in by_text.items()]
    more = len(texts) - MAX_REASONS
    return "; ".join(texts[:MAX_REASONS] + ([f"and {more} more reasons"] if more > 0 else []))


_WHICH: Final = ("relative", "individual")


def _text(which: str, code: str, ranks: list[int]) -> str:
    scores = f"{which} GPU score" if which else "GPU score"
    plural = "s" if len(ranks) > 1 or not which else ""
    reason = MISSING_GPU_SCORES[code]
    cause = f"{_IS_TIMING if code in GPU_TIMING_REASONS else ''}{reason.cause}"
    return (
        f"no {scores}{plural} of {ranks_text(ranks)}: {cause} ({code}). What to do: {reason.remedy}"
    )
