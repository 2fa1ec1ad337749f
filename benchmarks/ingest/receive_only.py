"""``otel-straggler collector`` with all its flags, which forgets what it has received and decoded.

python -m benchmarks.ingest.receive_only --otlp-http 127.0.0.1:0 ...
"""

from __future__ import annotations

from otel_straggler.cli.collector import command
from otel_straggler.collector import service
from otel_straggler.otlp.span_rules import DecodedSpans
from otel_straggler.receive.handler import Request


class _Forgetful(service.Collector):
    def take_spans(self, spans: DecodedSpans, size: int) -> None:
        del spans
        self._budget.release(size)

    def take_original(self, request: Request, spans: DecodedSpans | None) -> None:
        """Nothing is forwarded."""


if __name__ == "__main__":
    service.Collector = _Forgetful  # type: ignore[misc]
    command()
