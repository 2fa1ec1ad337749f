"""``otel-straggler collector`` with all its flags, which forgets what it has received and decoded.

python -m benchmarks.ingest.receive_only --otlp-http 127.0.0.1:0 ...
"""

from __future__ import annotations

from otel_straggler.cli.collector import command
from otel_straggler.collector import service
from otel_straggler.collector.settings import CollectorSettings
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.otlp.span_rules import DecodedSpans


class _Forgetful(service.Collector):
    def __init__(self, settings: CollectorSettings | None = None) -> None:
        super().__init__(settings)
        ingest = self._intake.ingest

        def forget_spans(content: DecodedSpans | DecodedMetrics, size: int) -> None:
            if isinstance(content, DecodedSpans):
                self._budget.release(size)
            else:
                ingest(content, size)

        self._intake.ingest = forget_spans  # type: ignore[method-assign]


if __name__ == "__main__":
    service.Collector = _Forgetful  # type: ignore[misc]
    command()
