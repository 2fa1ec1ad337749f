"""The page of all names on the wire, from ``semconv/``, with encoded example values."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, get_args

from described import code, only, table
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import phase, section, semconv, step
from otel_straggler.client import sender
from otel_straggler.client.native_records import NO_SECTION, RECORD, WAITED
from otel_straggler.client.packing import packer_for
from otel_straggler.client.recording import RECORDER
from otel_straggler.client.topology import Topology, resource_attributes
from otel_straggler.collector.access.refusals import REASONS as REFUSALS
from otel_straggler.collector.forwarding.deciding import KEPT, LEFT_OUT
from otel_straggler.collector.forwarding.trace_spans import (
    ClosedTrace,
    RankStep,
    StandIn,
    spans_of,
)
from otel_straggler.collector.history.failures import REASONS
from otel_straggler.collector.history.spool import REASONS as SPOOL_REASONS
from otel_straggler.config import ClientSettings, Endpoint
from otel_straggler.model.causes import Cause
from otel_straggler.model.rank import Source
from otel_straggler.model.verdict import Evidence, Scope, State
from otel_straggler.native import NATIVE
from otel_straggler.otlp.identity import read_attributes
from otel_straggler.semconv import Attribute, Metric

_ADD = "Add it to docs/wire_page.py."
_KINDS = {
    "compute": "work of this rank; the default",
    "data": "loading and preparing input",
    "wait": "collectives and other waiting; a rank with a long wait is a victim",
    "checkpoint": "saving and restoring",
    "eval": "evaluation",
    "other": "anything else",
}
_OUTCOMES = {
    "ok": "`shutdown()` was called without a pending exception",
    "failed": "`shutdown()` was called while an exception was propagating",
    "cancelled": "the same with Ctrl-C",
    "preempted": '`shutdown("preempted")`, or SIGTERM',
    "unknown": "the process ended without `shutdown()`",
}
_GPU_TIMES = {
    semconv.GPU_KERNEL_TIME: 41_250_000,
    semconv.GPU_BUSY_TIME: 38_900_000,
    semconv.GPU_NCCL_TIME: 6_120_000,
    semconv.GPU_KERNEL_COUNT: 212,
}
"""Attributes of a span with kernel times; only a GPU provides them."""
_REASONS = {
    "ring_full": "sections ended faster than the exporter thread could drain the ring",
    "inbox_full": "the exporter thread fell behind while in-process reports drained the ring",
    "queue_full": "the collector was down until `queue_bytes` were full; oldest dropped first",
    "rejected": "the receiver rejected the spans permanently",
    "process_ended": "still queued at process exit, after `exit_deadline_s` at most",
    "encode_error": "an internal error; see the log",
    "gpu_missing": "no span is lost: its GPU times did not arrive within 2 s, or incompletely",
    "gpu_dropped": "no span is lost: the driver dropped or corrupted these kernel records",
    "gpu_invalid": "no span is lost: kernels without timestamps",
    "gpu_lost": "no span is lost: kernels that could not be attributed to a section",
    "gpu_late": "no span is lost: kernels that arrived after their section's span was sent",
    "kernels_lost": "kernel times that were rejected, or waited too long for the collector",
    "span_budget": "above `span_budget`, without the native extension",
    "sdk_rate": "above `sdk_spans_per_s`",
    "sdk_error": "a processor or the sampler of the application's provider raised",
    "sdk_queue_full": "the application's processors were slower than the spans arrived",
}


def page() -> str:
    """Render ``docs/reference/names-on-the-wire.md``, except its first line.

    Raises:
        Undescribed: a kind, an outcome or a reason has no description.
    """
    return _TEXT.format(
        s=semconv,
        attributes="\n".join(_attribute_tables()),
        kinds=_text(semconv.SECTION_KINDS, _KINDS, "kind", listed=semconv.LISTED_KINDS),
        outcomes=_text(semconv.OUTCOMES, _OUTCOMES, "outcome"),
        aliases=_aliases(),
        metrics="\n".join(_metric_tables()),
        history=_text(tuple(REASONS), REASONS, "reason"),
        refused=_text(tuple(REFUSALS), REFUSALS, "reason"),
        spool=_text(tuple(SPOOL_REASONS), SPOOL_REASONS, "reason"),
        sampling=_text((*KEPT, *LEFT_OUT), {**KEPT, **LEFT_OUT}, "reason"),
        reasons=_text(sender.DROP_REASONS, _REASONS, "reason"),
        verdicts=_text_of_verdicts(),
    )


_TEXT = """# Names on the wire

Everything is OTLP. The package's own names are in `training.*` (the job) and `straggler.*`; \
names of OpenTelemetry's semantic conventions are used unchanged. Requests carry the schema URL \
`{s.SCHEMA_URL}` and the scope `{s.SCOPE_NAME}`. A collector that scores identifies itself with \
the response header `{s.SCORER_HEADER}: {s.WIRE_VERSION}`; over HTTP `{s.PAGE_HEADER}` has the \
URL of its live page.

The example values in the tables were encoded by the package when this page was generated.

## Attributes

{attributes}
A section span has the section's name. Verdicts add up the sections without a \
`{s.SECTION_PARENT}` of each step, so no time counts twice; scores use all sections. Spans from \
senders without this attribute count as top-level, whatever their parent ids: if they nest, \
exclude the outer ones (`spans.exclude` in [configuration](configuration.md)). The span that \
covers one step of one rank is named \
`{s.STEP_SPAN}`; it is scored if no section ended in the step, \
which it says by `{s.SECTION}` = `{s.STEP_SPAN}`. \
Section names beyond `scoring.max_section_names` of a run count as `{s.OTHER_SECTION}`.

Sections named after the one around them and `/{s.DDP_FORWARD}`, `/{s.DDP_BACKWARD}` or \
`/{s.DDP_COMMUNICATION}` are [DDP's own timers](../recipes/gpu-timing.md), with basis \
`{s.EVENTS_BASIS}`: own time on the GPU, and waiting, of the section around them in that step.

### Kinds of sections

{kinds}
### Outcomes

{outcomes}
## Accepted on input
If several keys are present, the first one is used. The collector's file can add keys \
(`attributes` in [configuration](configuration.md)). Without a run id the run is named after \
`{s.SERVICE_NAME}`; without a `{s.SESSION_ID}` processes are identified by \
`{s.SERVICE_INSTANCE_ID}`.

{aliases}
## Metrics
The name in Prometheus follows OpenTelemetry's translation of the OTLP name. If the collector's \
`metrics.cluster` is set, every series of `/metrics` also has a label `cluster`.

{metrics}
### Reasons of `straggler.collector.forward_spans`

{sampling}
### Reasons of `straggler.collector.history.failures`

{history}
### Reasons of `straggler.collector.refused`

{refused}
### Reasons of `straggler.collector.spool.failures`

{spool}
### Values of `what` of `straggler.collector.trouble`
See [alerts](../operate/alerts.md#trouble-of-a-collector).

### Reasons of `straggler.records.dropped`
In addition, invalid calls of the package are counted as `bad_section`, `bad_step`, \
`bad_phase` and `bad_work_size`; failures in measuring waits in collectives as \
`collective_wait`.

{reasons}
### Label values of `straggler.verdict.info`
Meanings and remedies: [verdicts](../operate/verdicts.md).

{verdicts}"""


# --- attributes --------------------------------------------------------------------------------


def _attribute_tables() -> Iterator[str]:
    examples = {**example_resource(), **example_fold(), **_GPU_TIMES, **example_span()}
    examples |= example_trace()
    for heading, names in by_heading(Attribute).items():
        rows = []
        for attribute in names:
            value = examples.get(str(attribute))
            kind = "" if value is None else _TYPE_NAMES[type(value)]
            kind = "bytes" if attribute is semconv.FOLD_SKETCH else kind
            shown = "" if value is None else code(value)
            rows.append([code(attribute), kind, shown, _sentence(attribute)])
        yield f"### {heading}\n\n" + table(["attribute", "type", "example", "meaning"], rows)


_TYPE_NAMES: dict[type, str] = {str: "text", int: "integer", float: "double", bool: "boolean"}


def _sentence(attribute: Attribute) -> str:
    """The meaning, with names of tuples replaced by their values."""
    return re.sub(
        r"\b[A-Z]+_?[A-Z]+S\b",
        lambda name: ", ".join(map(code, getattr(semconv, name[0], ()))) or name[0],
        attribute.meaning,
    )


def example_resource() -> dict[str, Any]:
    """The resource of a rank with all attributes."""
    topology = Topology(
        role="actor",
        parallel={d: (n, n + 2) for n, d in enumerate(semconv.PARALLEL_DIMENSIONS)},
        gpu_uuid="GPU-3f1c6b5e-8f4a-4d0b-9a55-0c1d2e3f4a5b",
        gpu_model="NVIDIA H100 80GB HBM3",
        gpu_pci_id="00000000:1b:00.0",
        gpu_tier="events",
        gpu_reason="insufficient_privileges",
        pod="trainer-3",
        is_ending=True,
    )
    result = dict(resource_attributes(_EXAMPLE, "9f2c4e1ab07d3356", topology))
    return {**result, str(semconv.PROCESS_PID): 20_731}


_NOWHERE = Endpoint(url="http://127.0.0.1:4318", is_enabled=False)
_EXAMPLE = ClientSettings(
    run_id="slurm-4711",
    attempt=1,
    group="actor",
    rank=3,
    local_rank=3,
    world_size=8,
    node="node-0",
    service_name="pretraining",
    page=False,
    team="vision",
    traces=_NOWHERE,
    metrics=_NOWHERE,
)


def example_span() -> dict[str, Any]:
    """Attributes of a section span, as the package encodes it."""
    RECORDER.enable()
    with step(17), phase("eval"), section("forward").run(microbatch=2, tokens=4096):
        pass
    RECORDER.disable()
    packer = packer_for(RECORDER, _EXAMPLE, lambda _: {}, None)
    [request] = packer.pack(RECORDER.drain(), 0)
    message = ExportTraceServiceRequest.FromString(request.body)
    spans = message.resource_spans[0].scope_spans[0].spans
    return read_attributes(next(s for s in spans if s.name == "forward").attributes)


def example_fold() -> dict[str, Any]:
    """Attributes of a folded span."""
    RECORDER.enable()
    assert NATIVE is not None
    at_step_17 = 9, 9, 17
    names = section("attention").section, NO_SECTION, 0, len(RECORDER.sessions) - 1, 0, 0
    for n in range(1, 9):
        times = 0, 1_000_000 + 3_000 * n
        NATIVE.keep(RECORD.pack(n, *at_step_17, *times, -1, -1, *names, 0, 250_000, WAITED))
    RECORDER.disable()
    settings = replace(_EXAMPLE, span_budget=1)
    packer = packer_for(RECORDER, settings, lambda _: {}, None)
    [request] = packer.pack(RECORDER.drain(), 0)
    message = ExportTraceServiceRequest.FromString(request.body)
    [span] = message.resource_spans[0].scope_spans[0].spans
    result = read_attributes(span.attributes)
    result[semconv.FOLD_SKETCH] = next(
        a.value.bytes_value.hex() for a in span.attributes if a.key == semconv.FOLD_SKETCH
    )
    return result


def example_trace() -> dict[str, Any]:
    """Attributes of the spans that a collector adds to a trace, of all of them together."""
    source = Source(run_id="slurm-4711", rank=3)
    steps = [RankStep(rank=r, start_ns=0, end_ns=412_000_000) for r in range(1_000)]
    made = ClosedTrace(
        trace_id=bytes(16),
        root_id=1,
        source=source,
        step=17,
        first_ns=0,
        last_ns=412_000_000,
        ranks=1_000,
        left_out=steps[4:],
        flagged=[3],
        spans_left_out=18_924,
        stand_ins=[StandIn(span_id=2, rank=3, start_ns=0, end_ns=1)],
        max_summaries=8,
    )
    message = ExportTraceServiceRequest.FromString(spans_of(made).body)
    spans = reversed(message.resource_spans[0].scope_spans[0].spans)
    return {key: value for s in spans for key, value in read_attributes(s.attributes).items()}


# --- aliases, words ------------------------------------------------------------------------------


def _aliases() -> str:
    rows = []
    for name, keys in vars(semconv).items():
        if name.endswith("_ALIASES"):
            what = name.removesuffix("_ALIASES").replace("_", " ").lower()
            each = keys.items() if isinstance(keys, dict) else [("", keys)]
            rows += [[f"{what} {part}".strip(), code(tuple(map(str, v)))] for part, v in each]
    return table(["what", "keys, in order"], rows)


def _text(
    text: tuple[str, ...],
    meanings: dict[str, str],
    what: str,
    listed: frozenset[str] | None = None,
) -> str:
    head = [what, "meaning"] if listed is None else [what, "listed as straggler", "meaning"]
    rows = []
    for word in text:
        row = [code(word), only(meanings, word, f"It is a {what}. {_ADD}")]
        if listed is not None:
            row.insert(1, "yes" if word in listed else "no, scored only")
        rows.append(row)
    return table(head, rows)


def _text_of_verdicts() -> str:
    kinds = {"scope": Scope, "state": State, "cause": Cause, "evidence": Evidence}
    return table(["label", "values"], [[code(k), code(get_args(v))] for k, v in kinds.items()])


# --- metrics -------------------------------------------------------------------------------------


def _metric_tables() -> Iterator[str]:
    for heading, metrics in by_heading(Metric).items():
        columns: dict[str, Callable[[Metric], str]] = {}
        if heading == "from a rank" or metrics[0] in semconv.PASSTHROUGH_METRICS:
            columns["attributes of its data points"] = attributes_of_points
        if heading != "from a rank":
            columns["labels"] = labels_of
        rows = [
            [code(m.name), code(m.prometheus_name), code(m.unit), m.kind, m.meaning]
            + [of(m) for of in columns.values()]
            for m in metrics
        ]
        yield f"### {heading}\n\n" + table(
            ["OTLP", "Prometheus", "unit", "kind", "meaning", *columns], rows
        )


def labels_of(metric: Metric) -> str:
    """Labels in ``/metrics`` of the collector."""
    names = code(label_names(metric))
    return f"{names}; of one section also {code('section')}" if _is_of_gpu(metric) else names


def label_names(metric: Metric) -> tuple[str, ...]:
    """The same as a tuple. A test compares it with a running collector."""
    left_out = ["section"] if _is_of_gpu(metric) else []
    names = (name for name in metric.published_labels if name not in left_out)
    of_supervisor = metric.name.startswith("straggler.supervisor.")
    return (*names, *(() if of_supervisor else ("collector",)))


def _is_of_gpu(metric: Metric) -> bool:
    """Kernel scores exist for the whole rank and for its sections."""
    return metric.name.startswith(("straggler.gpu.relative", "straggler.gpu.individual"))


def attributes_of_points(metric: Metric) -> str:
    """Data-point attributes of a metric that ranks send."""
    if metric is semconv.RANK_INFO:
        return "the rank description above"
    passes = metric in semconv.PASSTHROUGH_METRICS
    attributes = metric.labels or () if passes else metric.attributes
    return ", ".join(code(str(a)) for a in attributes)


# --- semconv, by subject -------------------------------------------------------------------------

_IN_ORDER = (
    semconv.attributes,
    semconv.goodput,
    semconv.rank_metrics,
    semconv.launch_events,
    semconv.run_metrics,
    semconv.collector_metrics,
    semconv.supervisor,
)
"""Modules that define attributes and metrics; a test checks that none is missing."""


def by_heading(kind: type) -> dict[str, list[Any]]:
    """All objects of a kind in ``semconv``, by the headings ``# --- ... ---`` of its modules."""
    result: dict[str, list[Any]] = {}
    for heading, part in _parts():
        for name in re.findall(r"^([A-Z][A-Z0-9_]*)\b(?:: Final[^=]*)? = ", part, re.MULTILINE):
            value = getattr(semconv, name)
            of_kind = [v for v in _values(value) if type(v) is kind]
            if of_kind:
                result.setdefault(heading, []).extend(of_kind)
    return result


def _parts() -> Iterator[tuple[str, str]]:
    for module in _IN_ORDER:
        pieces = re.split(r"^# --- (.+?) -+$", inspect.getsource(module), flags=re.MULTILINE)
        yield from zip(pieces[1::2], pieces[2::2], strict=True)


def _values(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.values()
    else:
        yield value
