"""What a receiver process and the scoring process say to each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.collector.processes import frames
from otel_straggler.collector.processes.frames import FrameError, Kind, SpansReader
from otel_straggler.model.gpu_times import GpuTimes
from otel_straggler.model.observation import NO_SEQ, BatchBuilder, Kernel, Section
from otel_straggler.model.rank import Source
from otel_straggler.receive.handler import Answer, Request
from otel_straggler.wire.span_rules import DecodedSpans, Progress

JSON = "application/json"
COLUMNS = ("source", "section", "kernel", "step", "start_ns", "duration_s", "seq", "runs", "tokens")
REQUEST = Request(
    signal="traces",
    content_type="application/json",
    body=b"{}" * 50,
    raw_body=b"zipped",
    content_encoding="gzip",
)
texts = st.text(max_size=8)
sources = st.builds(
    Source,
    run_id=texts,
    rank=st.integers(0, 2**31 - 1),
    group=texts,
    node=texts,
    session_id=texts,
    parallel=st.lists(st.tuples(texts, st.integers(0, 99)), max_size=2).map(tuple),
)
rows = st.lists(
    st.tuples(
        sources,
        st.builds(Section, texts, st.sampled_from(["compute", "wait"]), texts),
        st.integers(0, 2**62),
        st.floats(1e-9, 1e9),
        st.integers(-1, 2**62),
        st.integers(NO_SEQ, 2**62),
        st.sampled_from([None, Kernel("k"), Kernel("nccl", "nccl")]),
        st.integers(1, 3),
        st.sampled_from([float("nan"), 1.0, 4096.0]),
    ),
    max_size=20,
)


def made(drawn: list[Any], further: Source | None = None) -> DecodedSpans:
    builder = BatchBuilder()
    progress = {}
    for source, section, start_ns, duration_s, step, seq, kernel, runs, tokens in drawn:
        builder.add(
            source, section, start_ns=start_ns, duration_s=duration_s, step=step, seq=seq,
            kernel=kernel, runs=runs, tokens=tokens,
        )  # fmt: skip
        progress[source] = Progress(step=step, end_ns=start_ns)
    if further is not None:
        progress[further] = Progress(end_ns=5)
    return DecodedSpans(batch=builder.build(), fates={"row": len(drawn), "x": 2}, progress=progress)


@given(drawn=rows, further=st.none() | sources)
def test_what_is_read_is_what_was_written(drawn: list[Any], further: Source | None) -> None:
    """Every column, name, count and sign of progress; also of a source without rows."""
    spans = made(drawn, further)
    found = SpansReader().read(bytearray(frames.encode_spans(spans, REQUEST)))
    assert (found.size, found.content_type, found.content_encoding) == (100, JSON, "gzip")
    assert (found.spans.fates, found.spans.progress) == (spans.fates, spans.progress)
    read, wrote = found.spans.batch, spans.batch
    assert (read.sources, read.sections, read.kernels) == (
        wrote.sources,
        wrote.sections,
        wrote.kernels,
    )
    for name in COLUMNS:
        one, other = getattr(read, name), getattr(wrote, name)
        assert (one is None) == (other is None)
        if one is not None:
            assert one.dtype == other.dtype
            assert one.flags.aligned
            assert one.flags.writeable
            np.testing.assert_array_equal(one, other)


def test_gpu_times_travel_too() -> None:
    """With what was refused; a basis of nobody is no frame of ours."""
    batch = SpansReader().read(a_frame()).spans.batch
    half = np.array([0.5, np.nan, 0.25])
    gpu = GpuTimes(np.array([2, 0, 1], np.uint8), half, half * 2, half * 3)
    spans = DecodedSpans(batch=replace(batch, gpu=gpu), fates={}, progress={}, refused_gpu_times=7)
    found = SpansReader().read(bytearray(frames.encode_spans(spans, REQUEST))).spans
    assert found.refused_gpu_times == 7
    assert found.batch.gpu is not None
    for name in ("basis", "busy_s", "nccl_s", "kernel_s"):
        np.testing.assert_array_equal(getattr(found.batch.gpu, name), getattr(gpu, name))
    gpu.basis[1] = 3
    with pytest.raises(FrameError, match="time basis"):
        SpansReader().read(bytearray(frames.encode_spans(spans, REQUEST)))


def a_frame() -> bytearray:
    builder = BatchBuilder()
    for rank in range(3):
        builder.add(Source(run_id="r", rank=rank), Section("s"), start_ns=1, duration_s=1.0)
    return bytearray(
        frames.encode_spans(DecodedSpans(batch=builder.build(), fates={}, progress={}), REQUEST)
    )


def test_a_frame_that_is_cut_off_or_too_long_is_refused() -> None:
    """At every byte; nothing is read beyond the end."""
    whole = a_frame()
    for size in range(len(whole)):
        with pytest.raises(FrameError):
            SpansReader().read(whole[:size])
    with pytest.raises(FrameError, match="after the last column"):
        SpansReader().read(whole + bytes(8))


def test_a_code_beyond_its_table_is_refused() -> None:
    """It would name somebody else, or fail far away in scoring."""
    spans = SpansReader().read(a_frame()).spans
    for name in ("source", "section", "kernel"):
        for wrong in (-2, 3):
            codes = np.full(3, wrong, np.int32)
            batch = replace(spans.batch, **{name: codes})
            part = frames.encode_spans(replace(spans, batch=batch), REQUEST)
            with pytest.raises(FrameError, match="beyond its table"):
                SpansReader().read(bytearray(part))


@pytest.mark.parametrize("head", [b"\xff" * frames.HEAD.size, b"\x63" + bytes(15)])
def test_a_head_of_nobody_is_refused(head: bytes) -> None:
    """An unknown kind, or a size that no request has."""
    with pytest.raises(FrameError):
        frames.read_head(head)


@pytest.mark.parametrize("raw", [b"body", b"zipped"])
def test_requests_and_answers_travel_whole(raw: bytes) -> None:
    """Both bodies where they differ; every field of an answer."""
    sent = replace(REQUEST, signal="metrics", body=b"body", raw_body=raw)
    part, original = frames.encode_request(sent)
    assert frames.read_request(bytearray(part), original) == sent
    assert len(original) == len(b"body") + (len(raw) if raw != b"body" else 0)
    answer = Answer(status="ok", rejected=3, message="bad", retry_after_s=7)
    assert frames.read_answer(frames.encode_answer(answer)) == answer


def test_a_whole_frame_is_its_head_and_both_parts() -> None:
    """As the other end reads it."""
    whole = frames.frame(Kind.SPANS, 7, b"ab", b"cde")
    assert frames.read_head(whole[: frames.HEAD.size]) == (Kind.SPANS, 7, 2, 3)
    assert whole[frames.HEAD.size :] == b"abcde"
