"""Text where ranks wait for each other out of sight: a slow one may look like the others."""

from __future__ import annotations

from typing import Final

HOW_TO_SEE: Final = (
    "let ranks report what they wait in collectives (OTEL_STRAGGLER_COLLECTIVES=on, with torch), "
    "time kernels on GPUs (gpu_timing), or put what waits (the collective) into a section of its "
    'own with kind="wait"'
)


def hidden_text(
    inside: str, *, is_unseen: bool, ranks: str = "all ranks", is_over: bool = False
) -> str:
    """What is hidden, without a full stop.

    Args:
        inside: section that holds work and waiting; or empty.
        is_unseen: no waiting is seen anywhere.
        is_over: the run has ended.

    >>> hidden_text("", is_unseen=True, ranks="all 8 ranks")
    'where all 8 ranks wait for each other is not known, and one that is slow there looks like the \
others'
    """
    wait, takes, looks, holds, is_ = (
        ("waited", "took", "looked", "held", "was")
        if is_over
        else ("wait", "take", "looks", "holds", "is")
    )
    if inside and is_unseen:
        return f"{ranks} {takes} equally long because they {wait} for each other in {inside}"
    slow = f"one that {is_} slow there {looks} like the others"
    if inside:
        return f"{ranks} {wait} for each other in {inside}, which {holds} much of a step: {slow}"
    return f"where {ranks} {wait} for each other is not known, and {slow}"
