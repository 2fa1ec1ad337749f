"""The spans that no rank sends: of a step its root, what stands for ranks that are left out, and
for spans that did not come."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from statistics import median

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_straggler import semconv
from otel_straggler.model.rank import Source
from otel_straggler.otlp.encode_spans import encode_request, encode_resource, submessage
from otel_straggler.semconv import AttributeValue

_SPANS = 2
_SIMILAR = 1.1
"""Ranks of one summary: sorted by the time of their step, each took at most so many times as long
as the one before."""
_MAX_LISTED = 32
"""Ranges of ranks in a list; beyond it only how many more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStep:
    """The ``step`` span of one rank, Unix time, ns."""

    rank: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """A parent that did not come, from the first start to the last end of its children; its id as
    a little-endian number."""

    span_id: int
    rank: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedTrace:
    """What was sent of one step, and what was not.

    Attributes:
        source: any of its ranks.
        first_ns, last_ns: of all its spans, also those left out, Unix time.
        ranks: number of those that ran the step.
        left_out: ``step`` spans of ranks that are not in the trace.
        flagged: ranks in the trace that a verdict or a window names.
        spans_left_out: number of them.
        stand_ins: for parents that did not come.
        max_summaries: spans for groups of ranks.
    """

    trace_id: bytes
    root_id: int
    source: Source
    step: int
    first_ns: int
    last_ns: int
    ranks: int
    left_out: Sequence[RankStep]
    flagged: Sequence[int]
    spans_left_out: int
    stand_ins: Sequence[StandIn]
    max_summaries: int


@dataclass(frozen=True, slots=True)
class MadeSpans:
    """A request with the spans of one trace, and how many of each kind."""

    body: bytes
    summaries: int
    stand_ins: int


def spans_of(trace: ClosedTrace) -> MadeSpans:
    """The root, a summary for each group of ranks that were left out, and the stand-ins. Their
    resource has no rank."""
    groups = similar_ranks(trace.left_out, trace.max_summaries)
    spans = [_root(trace)]
    spans += [_summary(trace, number, group) for number, group in enumerate(groups)]
    spans += [_stand_in(trace, missing) for missing in trace.stand_ins]
    rows = [submessage(_SPANS, span.SerializeToString()) for span in spans]
    body = encode_request(encode_resource(_resource_of(trace.source)), rows)
    return MadeSpans(body, len(groups), len(trace.stand_ins))


def similar_ranks(steps: Sequence[RankStep], max_groups: int) -> list[list[RankStep]]:
    """Groups of ranks whose steps take nearly the same time, fastest first: cut where the next one
    takes more than 1.1 times as long, at the largest such gaps.

    >>> steps = [RankStep(rank=r, start_ns=0, end_ns=ns)
    ...          for r, ns in enumerate([100, 300, 102, 101])]
    >>> [[step.rank for step in group] for group in similar_ranks(steps, 8)]
    [[0, 3, 2], [1]]
    """
    if not steps or max_groups < 1:
        return []
    ordered = sorted(steps, key=lambda step: (step.end_ns - step.start_ns, step.rank))
    lengths = [max(step.end_ns - step.start_ns, 1) for step in ordered]
    gaps = [(lengths[at] / lengths[at - 1], at) for at in range(1, len(lengths))]
    wide = sorted((gap for gap in gaps if gap[0] > _SIMILAR), reverse=True)[: max_groups - 1]
    cuts = [0, *sorted(at for _, at in wide), len(ordered)]
    return [ordered[a:b] for a, b in pairwise(cuts)]


def rank_list(ranks: Iterable[int]) -> str:
    """
    >>> rank_list([9, 1, 2, 3, 7])
    '1-3,7,9'
    """
    ranges: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in ranges[:_MAX_LISTED]]
    more = sum(b - a + 1 for a, b in ranges[_MAX_LISTED:])
    return ",".join(texts) + (f" and {more} more" if more else "")


def _resource_of(source: Source) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        semconv.SERVICE_NAME: source.job,
        semconv.RUN_ID: source.run_id,
        semconv.RUN_ATTEMPT: source.attempt,
        semconv.GROUP: source.group,
    }
    return {key: value for key, value in attributes.items() if value != ""}


def _root(trace: ClosedTrace) -> Span:
    span = _span(trace, semconv.ROOT_SPAN, trace.root_id, trace.first_ns, trace.last_ns)
    span.ClearField("parent_span_id")
    _set(span, semconv.TRACE_RANKS, trace.ranks)
    if trace.spans_left_out:
        _set(span, semconv.TRACE_SPANS_LEFT_OUT, trace.spans_left_out)
    if trace.flagged:
        _set(span, semconv.TRACE_FLAGGED_RANKS, rank_list(trace.flagged))
    return span


def _summary(trace: ClosedTrace, number: int, group: Sequence[RankStep]) -> Span:
    first_ns, last_ns = min(s.start_ns for s in group), max(s.end_ns for s in group)
    digest = blake2b(trace.trace_id, digest_size=8, person=b"ranks %d" % number).digest()
    span_id = int.from_bytes(digest, "little")
    span = _span(trace, semconv.SIMILAR_RANKS_SPAN, span_id, first_ns, last_ns)
    _set(span, semconv.TRACE_RANKS, len(group))
    _set(span, semconv.TRACE_RANK_LIST, rank_list(s.rank for s in group))
    typical_ns = median(s.end_ns - s.start_ns for s in group)
    _set(span, semconv.TRACE_STEP_TIME, math.floor(typical_ns))
    return span


def _stand_in(trace: ClosedTrace, missing: StandIn) -> Span:
    name = semconv.STEP_SPAN
    span = _span(trace, name, missing.span_id, missing.start_ns, missing.end_ns)
    _set(span, semconv.TRACE_RANK_LIST, str(missing.rank))
    span.attributes.add(key=semconv.TRACE_STAND_IN).value.bool_value = True
    return span


def _span(trace: ClosedTrace, name: str, span_id: int, start_ns: int, end_ns: int) -> Span:
    """A child of the root."""
    span = Span(
        trace_id=trace.trace_id,
        span_id=span_id.to_bytes(8, "little"),
        parent_span_id=trace.root_id.to_bytes(8, "little"),
        name=name,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=start_ns,
        end_time_unix_nano=end_ns,
    )
    _set(span, semconv.STEP, max(trace.step, 0))
    return span


def _set(span: Span, key: str, value: int | str) -> None:
    wanted = span.attributes.add(key=key).value
    if isinstance(value, int):
        wanted.int_value = value
    else:
        wanted.string_value = value
