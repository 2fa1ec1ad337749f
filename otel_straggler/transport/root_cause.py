"""What the system said of a connection that failed, without what libraries wrap around it."""

from __future__ import annotations


def root_cause(error: BaseException) -> str:
    """The system's own words, such as "Connection refused"; those of the error where there are
    none, as of one that took too long.

    >>> wrapped = RuntimeError("HTTPConnectionPool(host='a', port=1): Max retries exceeded")
    >>> wrapped.__cause__ = ConnectionRefusedError(111, "Connection refused")
    >>> root_cause(wrapped), root_cause(ValueError("no header"))
    ('Connection refused', 'no header')
    """
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        found = waiting.pop(0)
        if not isinstance(found, BaseException) or id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, OSError) and found.strerror:
            return found.strerror
        # urllib3 keeps what went wrong in attributes of its own where it does not chain
        inside = (getattr(found, name, None) for name in ("reason", "original_error"))
        waiting += [found.__cause__, *inside, found.__context__]
    return str(error)
