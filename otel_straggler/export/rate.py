"""A rate kept by tokens: what may be spent in a second, saved up for one second at most."""

from __future__ import annotations


class TokenBucket:
    """Says whether there is room for more. Who is let in may overdraw; what follows then waits.

    Two threads may lose each other's update now and then: this is a budget, not an account.

    Args:
        per_s: tokens that come in a second.
    """

    def __init__(self, per_s: float) -> None:
        self._per_ns = per_s / 1e9
        self._most = per_s
        self._tokens = per_s
        self._filled_at_ns: int | None = None

    def has_room(self, now_ns: int) -> bool:
        """Whether a token is left at ``now_ns`` (any clock; going back counts as standing still).

        >>> bucket = TokenBucket(2)
        >>> bucket.spend(5)
        >>> [bucket.has_room(second * 1_000_000_000) for second in (0, 1, 2)]
        [False, False, True]
        """
        before_ns = now_ns if self._filled_at_ns is None else self._filled_at_ns
        self._filled_at_ns = max(before_ns, now_ns)
        came = (self._filled_at_ns - before_ns) * self._per_ns
        self._tokens = min(self._most, self._tokens + came)
        return self._tokens > 0

    def spend(self, tokens: int) -> None:
        self._tokens -= tokens
