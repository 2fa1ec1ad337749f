"""You will see a program's own exporter print our sections, and its own span as a child of one.
Run it with: python examples/04_own_tracer_provider.py
It takes about 2 seconds.
"""

import time

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

import otel_straggler

SPANS: list[ReadableSpan] = []


def line(span: ReadableSpan) -> str:
    """Format a span as one line for the console exporter."""
    SPANS.append(span)
    took_ms = (span.end_time - span.start_time) / 1e6
    return f"{span.resource.attributes['service.name']}: {span.name} took {took_ms:.0f} ms\n"


def main() -> None:
    # The application's own setup: resource, exporter, tracer.
    provider = TracerProvider(resource=Resource({"service.name": "my-training"}))
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=line)))
    tracer = provider.get_tracer("my_model")

    otel_straggler.configure(
        tracer_provider=provider, propagate_context=True, run_id="example", rank=0, world_size=1
    )
    for n in range(2):
        with otel_straggler.step(n):
            with otel_straggler.section("data_loading", kind="data"):
                time.sleep(0.02)
            with otel_straggler.section("forward"), tracer.start_as_current_span("attention"):
                time.sleep(0.05)
    otel_straggler.shutdown()
    provider.shutdown()

    names = {span.context.span_id: span.name for span in SPANS}
    attention = next(span for span in SPANS if span.name == "attention")
    forward = next(span for span in SPANS if span.name == "forward")
    print(f"attention is a child of {names[attention.parent.span_id]},", end=" ")
    print(f"which is a child of {names[forward.parent.span_id]}")


if __name__ == "__main__":
    main()
