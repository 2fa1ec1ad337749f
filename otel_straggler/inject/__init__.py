"""Faults that ranks inject into themselves, so that what detects them can be tried and measured.

``otel-straggler inject``, or the variable ``OTEL_STRAGGLER_INJECT``, names them; each is a span of
the run (``semconv.FAULT_SPAN``), so the truth is in the telemetry. Every fault is bounded, and
undone at its end, also when the rank dies before.
"""
