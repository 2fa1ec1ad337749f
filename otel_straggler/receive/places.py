"""How many connections an address may have, of the descriptors that the system gives a process."""

from __future__ import annotations


def places(most: int, part: float) -> int:
    """``most``, or the part of all descriptors if that is less; at least 8.

    With fewer descriptors than connections a flood of one address would keep the others, and the
    files of the history, from getting any.

    >>> places(4096, 0.0), places(4, 1.0)
    (8, 4)
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return most
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return most
    return min(most, max(8, int(soft * part)))
