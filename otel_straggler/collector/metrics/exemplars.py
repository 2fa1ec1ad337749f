"""Exemplars of a run's lost time: a step of its newest window whose trace was forwarded."""

from __future__ import annotations

from collections.abc import Callable

from otel_straggler import semconv
from otel_straggler.collector.metrics.families import labels
from otel_straggler.model.scores import WindowScores
from otel_straggler.otlp.ids import step_trace_id


def exemplar_of(window: WindowScores, has_sent: Callable[[bytes], bool]) -> str:
    """Trace and number of the newest step of a window whose trace was forwarded, with the seconds
    that a step of the window took, and when that ended; empty if there is none, as of spans that
    have traces of their own.

    Args:
        has_sent: whether a span of the trace with this id was forwarded.

    Cost: O(steps of the window).
    """
    if window.first_step is None or window.last_step is None:
        return ""
    for step in range(window.last_step, max(window.first_step, 0) - 1, -1):
        trace_id = step_trace_id(window.run_id, window.attempt, window.group, step)
        if has_sent(trace_id):
            step_s = (window.end_ns - window.start_ns) / 1e9 / max(window.n_steps, 1)
            named = labels(**{semconv.EXEMPLAR_TRACE: trace_id.hex(), semconv.EXEMPLAR_STEP: step})
            return f"{{{named}}} {step_s!r} {window.end_ns / 1e9:.3f}"
    return ""
