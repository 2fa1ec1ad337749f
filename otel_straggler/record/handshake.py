"""Is the other side a scorer? Full-rate spans go only to one; a tracing backend gets a sample."""

from __future__ import annotations

import logging
from urllib.parse import urlsplit

from otel_straggler import semconv
from otel_straggler.config import ClientSettings
from otel_straggler.transport.client import Response

ESTIMATE_AFTER_S = 30.0
BYTES_PER_SPAN = 300
_LOG = logging.getLogger("otel_straggler")


class Handshake:
    """Decides between all spans and a sample, and tells the user once."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._one_origin = is_one_origin(settings)
        self._spans = 0
        self._has_told = settings.is_trusted or not settings.traces.is_enabled
        self.is_scorer = settings.is_trusted

    @property
    def one_in(self) -> int:
        """Of how many steps one is sent."""
        return 1 if self.is_scorer else self._settings.sample_steps

    def note_traces(self, response: Response) -> None:
        if semconv.SCORER_HEADER in response.headers:
            self.is_scorer = True

    def note_metrics(self, response: Response) -> None:
        if self._one_origin:
            self.note_traces(response)

    def note_spans(self, spans: int, age_s: float) -> None:
        """Count recorded spans; ``age_s`` after the start, say once what full rate would mean."""
        self._spans += spans
        if self._has_told or age_s < ESTIMATE_AFTER_S:
            return
        self._has_told = True
        if not self.is_scorer:
            self._tell(self._spans / age_s)

    def _tell(self, spans_per_s: float) -> None:
        level = logging.WARNING if self._settings.rank == 0 else logging.DEBUG
        _LOG.log(
            level,
            "%s did not say that it scores, so it gets the spans of 1 step in %d, heartbeats and "
            "histograms. This rank records %.1f spans/s; all of them would be about %s a day. "
            "If it is an otel-straggler collector, name it in OTEL_STRAGGLER_ENDPOINT or "
            "configure(endpoint=...).",
            self._settings.traces.url,
            self._settings.sample_steps,
            spans_per_s,
            _readable_bytes(spans_per_s * BYTES_PER_SPAN * 86_400),
        )


def is_one_origin(settings: ClientSettings) -> bool:
    """Whether spans and metrics go to one server, so that each tells of the other."""
    return _origin(settings.traces.url) == _origin(settings.metrics.url)


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _readable_bytes(count: float) -> str:
    """
    >>> _readable_bytes(25_920_000)
    '25.9 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
