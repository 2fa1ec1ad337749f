"""Two ways to make spans and get them out: ours as a user would write it, and the stock SDK."""

from __future__ import annotations

from typing import Protocol

SECTIONS = 15
"""A step of them makes 16 spans with us; the SDK makes as many spans without a step around."""
PATIENCE_S = 30.0


class Way(Protocol):
    """Records in the calling thread; sends in a thread of its own."""

    def record(self, spans: int) -> None:
        """Make so many spans."""

    def flush(self) -> None:
        """Wait until all are sent."""

    def drain_made(self) -> int:
        """Spans made since the last time."""

    def close(self) -> None: ...


class Ours:
    """``configure()`` and sections. Whole steps: at most 15 spans are left for the next call.

    No section runs twice in a step, so there is nothing to fold: every run is sent as a span.
    """

    def __init__(self, endpoint: str) -> None:
        import otel_straggler as ots

        self._ots = ots
        self._sections = [ots.section(f"section {n}") for n in range(SECTIONS)]
        self._owed = self._step = self._made = 0
        ots.configure(endpoint=endpoint, run_id="r", rank=0, world_size=1, span_budget=0)

    def record(self, spans: int) -> None:
        self._owed += spans
        while self._owed > SECTIONS:
            self._owed -= SECTIONS + 1
            self._ots.step(self._step)
            self._step += 1
            for each in self._sections:
                with each:
                    pass
            self._made += SECTIONS + 1

    def flush(self) -> None:
        if not self._ots.flush(PATIENCE_S):
            raise TimeoutError(f"not everything was sent within {PATIENCE_S:g} s")

    def drain_made(self) -> int:
        made, self._made = self._made, 0
        return made

    def close(self) -> None:
        self._ots.shutdown()


class StockSdk:
    """OpenTelemetry's own: BatchSpanProcessor and the OTLP/HTTP exporter, with their defaults."""

    def __init__(self, endpoint: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._provider = TracerProvider(shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces")
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("benchmark")
        self._made = self._numbered = 0

    def record(self, spans: int) -> None:
        for number in range(self._numbered, self._numbered + spans):
            with self._tracer.start_as_current_span("section", attributes=_attributes(number)):
                pass
        self._numbered += spans
        self._made += spans

    def flush(self) -> None:
        self._provider.force_flush(int(PATIENCE_S * 1_000))

    def drain_made(self) -> int:
        made, self._made = self._made, 0
        return made

    def close(self) -> None:
        self._provider.shutdown()


def _attributes(number: int) -> dict[str, str | int]:
    """As many as our spans have, of the same kinds."""
    step, at = divmod(number, SECTIONS + 1)
    return {
        "straggler.section": f"section {at}",
        "straggler.section.kind": "compute",
        "straggler.time_basis": "host",
        "training.step": step,
        "straggler.seq": number,
    }
