"""Exemplars of a run's lost time: a step of its newest window whose trace is forwarded."""

from __future__ import annotations

from otel_straggler import semconv
from otel_straggler.collector.metrics.families import labels
from otel_straggler.collector.settings import ForwardSettings
from otel_straggler.model.scores import WindowScores
from otel_straggler.otlp.ids import is_sampled, step_trace_id


def exemplar_of(window: WindowScores, forward: ForwardSettings) -> str:
    """Trace and number of the newest step of a window whose trace reaches the backend, with the
    seconds that a step of the window took, and when that ended; empty if there is none.

    Of sampled forwarding it is one of ``forward.sample_every``, which every rank and the sampler
    choose alike. Cost: O(steps of the window).
    """
    if not forward.is_on or window.first_step is None or window.last_step is None:
        return ""
    for step in range(window.last_step, max(window.first_step, 0) - 1, -1):
        trace_id = step_trace_id(window.run_id, window.attempt, window.group, step)
        if not forward.is_sampled or is_sampled(trace_id, forward.sample_every):
            step_s = (window.end_ns - window.start_ns) / 1e9 / max(window.n_steps, 1)
            named = labels(**{semconv.EXEMPLAR_TRACE: trace_id.hex(), semconv.EXEMPLAR_STEP: step})
            return f"{{{named}}} {step_s!r} {window.end_ns / 1e9:.3f}"
    return ""
