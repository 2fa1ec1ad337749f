"""Who shows the right token. A wrong one is told in the log once, not with every request."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping

from otel_straggler.semconv import COMMANDS_TOKEN_HEADER
from otel_straggler.throttle import Throttle

POLLS = "GET /v1/commands of the OTLP/HTTP port"
ASKS = "/v1/commands of the metrics address"
_LOG_EVERY_S = 60.0
_log = logging.getLogger(__name__)


class TokenGuard:
    """Compares in constant time. For one thread at a time, or where a second log line is no harm.

    Args:
        token: the right one; not empty.
        what: that it guards, for the log.
    """

    def __init__(self, token: str, what: str) -> None:
        self._token = token.encode()
        self._what = what
        self._warnings = Throttle(1 / _LOG_EVERY_S)

    def refusal(self, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Status and sentence for a request that does not show it; None for one that does."""
        given = headers.get(COMMANDS_TOKEN_HEADER)
        if given is not None and hmac.compare_digest(given.encode("utf-8", "replace"), self._token):
            return None
        status = 401 if given is None else 403
        if self._warnings.passes():
            said = "without a token" if given is None else "with a wrong token"
            _log.warning("%s: a request %s is refused; so are others like it", self._what, said)
        return status, f"the header {COMMANDS_TOKEN_HEADER} must have the collector's token"
