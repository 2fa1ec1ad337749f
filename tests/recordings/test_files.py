"""Recorded files: formats by content, gzip, and how each wrong file is named."""

import gzip
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from otel_straggler.errors import InputError
from otel_straggler.otlp.encode_metrics import SectionHistogram, encode_histograms
from otel_straggler.recordings.files import Recording, open_input, read_recording
from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import as_json_line, encode_requests, frame, write_csv

RUN = simulate("one_slow_rank", Plan(ranks=2, steps=3, slow_rank=1)).batch
REQUESTS = list(encode_requests(RUN))
CSV = "".join(write_csv([RUN])).encode()
JSON_LINES = "".join(map(as_json_line, REQUESTS)).encode()
PROTO = b"".join(map(frame, REQUESTS))
CONTENT = {"csv": CSV, "otlp-json": JSON_LINES, "otlp-proto": PROTO}


def read(content: bytes, form: str | None = None) -> Recording:
    return read_recording(io.BytesIO(content), "run", form)  # type: ignore[arg-type]


def refusal(content: bytes, form: str | None = None) -> str:
    with pytest.raises(InputError) as refused:
        read(content, form)
    return str(refused.value)


@pytest.mark.parametrize("form", CONTENT)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_the_content_says_what_a_file_is(form: str, pack: Callable[[bytes], bytes]) -> None:
    """Neither a flag nor a file name is needed; gzip is seen by its first bytes."""
    recording = read(pack(CONTENT[form]))
    assert recording.form == form
    assert len(recording.batch) == len(RUN)
    assert sorted(recording.batch.duration_s) == pytest.approx(sorted(RUN.duration_s), rel=1e-12)


def test_a_bare_request_is_read() -> None:
    """One ExportTraceServiceRequest without a length before it."""
    assert len(read(REQUESTS[0]).batch) == 15


def test_a_pretty_printed_request_is_read() -> None:
    """As people save one request by hand."""
    pretty = json.dumps(json.loads(as_json_line(REQUESTS[0])), indent=2).encode()
    assert len(read(pretty).batch) == 15
    assert len(read(pretty + b"\n" + pretty).batch) == 30


def test_requests_of_metrics_and_logs_are_skipped_and_counted() -> None:
    """The Collector's file exporter writes all signals into one file if it is told to."""
    recording = read(b'{"resourceMetrics":[]}\n' + JSON_LINES + b'\n{"resourceLogs":[]}\n')
    assert recording.skipped == 2
    assert len(recording.batch) == len(RUN)


def histograms(runs: int, at_s: float) -> bytes:
    """Cumulative section times of the two ranks, one request a line; rank 1 takes twice as long."""
    lines = []
    for rank in (0, 1):
        slow_s = 0.1 * (1 + rank)
        values = {"section": "exchange", "kind": "compute", "bounds_s": [0.05, 0.15, 0.3]}
        counts = [0, runs, 0, 0] if rank == 0 else [0, 0, runs, 0]
        times = SectionHistogram(**values, counts=counts, sum_s=slow_s * runs)
        resource = {"training.rank": rank, "training.run.id": "run", "straggler.session.id": "a"}
        body = encode_histograms([times], resource=resource, started_at_s=1.0, now_s=at_s)
        message = ExportMetricsServiceRequest.FromString(body)
        lines.append(json.dumps(MessageToDict(message, use_integers_for_enums=True)).encode())
    return b"\n".join(lines) + b"\n"


def test_section_histograms_of_a_file_are_scored() -> None:
    """Cumulative points count once; a file may hold nothing else."""
    recording = read(histograms(10, 61.0) + histograms(30, 121.0) + histograms(30, 121.0))
    batch = recording.batch
    assert recording.skipped == 0
    assert [(s.rank, s.run_id) for s in batch.sources] == [(0, "run"), (1, "run")]
    for code, seconds in enumerate((0.1, 0.2)):
        times_s = batch.duration_s[batch.source == code]
        assert len(times_s) == 30
        assert (np.mean(times_s), np.median(times_s)) == pytest.approx((seconds, seconds))
    assert batch.start_ns.min() >= 10**9
    assert batch.start_ns.max() <= 121 * 10**9


def test_section_histograms_beside_spans_of_the_section_are_left_out() -> None:
    """No run counts twice."""
    spans = json.loads(JSON_LINES.splitlines()[0])
    for pair in spans["resourceSpans"][0]["resource"]["attributes"]:
        if pair["key"] == "straggler.session.id":
            pair["value"] = {"stringValue": "a"}
    [reported] = [s for s in read(json.dumps(spans).encode()).batch.sources if s.rank == 0]
    assert (reported.session_id, reported.rank) == ("a", 0)
    names = {s.name for s in RUN.sections}
    same = histograms(30, 61.0).replace(b"exchange", min(names).encode())
    resource = json.dumps(spans["resourceSpans"][0]["resource"]).encode()
    lines = [json.loads(line) for line in same.splitlines()]
    lines[0]["resourceMetrics"][0]["resource"] = json.loads(resource)
    document = json.dumps(spans).encode() + b"\n" + json.dumps(lines[0]).encode()
    assert len(read(document).batch) == len(read(json.dumps(spans).encode()).batch)


def test_a_bad_metrics_line_is_named_by_its_number() -> None:
    """As a bad line of spans is."""
    bad = b'{"resourceMetrics": [{"scopeMetrics": [{"metrics": "straggler.section.duration"}]}]}'
    message = refusal(JSON_LINES + bad)
    assert message.startswith(f"run:{len(REQUESTS) + 1}: got '")
    assert "expected an OTLP-JSON ExportMetricsServiceRequest" in message


def test_bad_spans_are_counted_by_reason_and_the_others_scored() -> None:
    """One bad span does not cost the run."""
    documents = [json.loads(line) for line in JSON_LINES.splitlines()]
    spans = documents[0]["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans[0]["traceId"] = "xyz"
    spans[1]["endTimeUnixNano"] = spans[1]["startTimeUnixNano"]
    recording = read("\n".join(map(json.dumps, documents)).encode())
    assert recording.not_scored == {"bad_id": 1, "duration_not_positive": 1}
    assert len(recording.batch) == len(RUN) - 2


def test_a_file_whose_spans_have_no_rank_is_no_data() -> None:
    """The message says what is missing on them."""
    content = JSON_LINES.replace(b"training.rank", b"some.attribute")
    assert refusal(content) == (
        "run: got 'no data: 30 spans not scored (no_rank)'; expected spans of ranks. "
        "Put training.rank on the resource or on the spans."
    )


def test_a_file_of_metrics_only_is_no_data() -> None:
    """An empty report would look like a healthy run."""
    assert "no data: 2 requests of metrics or logs" in refusal(b'{"resourceMetrics":[]}\n' * 2)


@pytest.mark.parametrize("content", [b"", gzip.compress(b"")], ids=["plain", "gzip"])
def test_an_empty_file_is_refused(content: bytes) -> None:
    """Packed or not."""
    assert "run: got " in refusal(content)


def test_a_file_of_blanks_is_refused() -> None:
    """As an empty one."""
    assert "only blanks" in refusal(b" \n\n")


def test_a_bad_json_line_is_named_by_its_number() -> None:
    """The lines before it were good."""
    lines = JSON_LINES.splitlines(keepends=True)
    message = refusal(lines[0] + b'{"resourceSpans": [}\n' + lines[1])
    assert message.startswith("run:2: got '{\"resourceSpans\": [}'; expected an OTLP-JSON")


def test_a_pretty_document_that_is_cut_off_is_named_by_its_line() -> None:
    """The place is where the reader stumbled."""
    message = refusal(b'{\n  "resourceSpans": [\n')
    assert message.startswith("run:3: got 'the end of the file'; expected valid JSON")


def test_json_that_is_no_otlp_is_refused() -> None:
    """Expected is said, and how to get it."""
    assert "expected an OTLP-JSON ExportTraceServiceRequest" in refusal(b'{"rank": 1}\n')


@pytest.mark.parametrize("content", [b"{" * 200_000, b'{"resourceSpans":' + b"[" * 200_000])
def test_json_of_absurd_depth_is_refused(content: bytes) -> None:
    """A parser that gives up is an answer, not a crash."""
    assert refusal(content).startswith("run:1: got '{")


_DIGITS = b"9" * 5_000


@pytest.mark.parametrize(
    "content",
    [
        b'{"timestamp": %s}\n' % _DIGITS,
        b'{\n"resourceSpans": %s\n}' % _DIGITS,
        b'{"resourceSpans": []}\n{"resourceSpans": -%s}\n' % _DIGITS,
        b'{"schemaVersion": %s, "traceEvents": []}' % _DIGITS,
        b'{"traceEvents": [{"ph": "X", "ts": %s}]}' % _DIGITS,
        b'{"traceEvents": [{"ph": "X", "ts": -%s}]}' % _DIGITS,
    ],
    ids=["a line", "a request", "a later request", "a trace", "an event", "a negative one"],
)
def test_an_integer_of_5000_digits_is_refused(content: bytes) -> None:
    """Python itself reads none of more than 4,300."""
    assert re.match(r"run(:[12])?: got '", refusal(content))


def test_a_csv_with_a_nul_byte_is_still_a_csv() -> None:
    """The message is about the byte, not about protobuf."""
    assert "text without a NUL byte" in refusal(CSV.replace(b"forward", b"for\0ward", 1))


@pytest.mark.parametrize("cut", [2, 5, len(PROTO) // 3, len(PROTO) - 1])
def test_a_protobuf_file_that_is_cut_off_is_named_by_message_and_byte(cut: int) -> None:
    """Wherever it is cut."""
    message = refusal(PROTO[:cut], "otlp-proto")
    assert "at byte" in message
    assert "cut off" in message


def test_bytes_that_are_no_otlp_are_refused() -> None:
    """A message of the right length, but of something else."""
    assert "expected an ExportTraceServiceRequest" in refusal(frame(b"\xff\xff\xff\xff"))


@pytest.mark.parametrize(
    ("content", "form"), [(CSV, "otlp-json"), (JSON_LINES, "csv"), (PROTO, "otlp-json")]
)
def test_a_format_that_the_content_does_not_have_is_refused(content: bytes, form: str) -> None:
    """And the message says which format it has."""
    message = refusal(content, form)
    assert f"expected {form}, as --format says" in message
    assert "Use --format " in message


def test_gzip_that_is_cut_off_is_refused() -> None:
    """A half-copied file is not half a run."""
    assert "expected a complete gzip file" in refusal(gzip.compress(CSV * 50)[:-20])


def test_gzip_within_gzip_is_named() -> None:
    """It happens when a packed file is packed again on its way."""
    assert "got 'gzip within gzip'" in refusal(gzip.compress(gzip.compress(CSV)))


def test_zstd_is_named() -> None:
    """The file exporter can write it; this reader cannot read it."""
    assert "Unpack it first: zstd -d." in refusal(b"\x28\xb5\x2f\xfd" + bytes(20))


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    """Before anything is read."""
    with pytest.raises(InputError, match="got 'No such file or directory'"):
        open_input(str(tmp_path / "none.csv"))
    with pytest.raises(InputError, match="got 'a directory'; expected a file"):
        open_input(str(tmp_path))


def test_a_rank_on_two_nodes_of_a_csv_is_a_clash() -> None:
    """Rank is unique in a run: the two are told apart and named."""
    again = CSV.decode().splitlines()[1].replace("node-0", "node-9")
    recording = read(CSV + again.encode() + b"\n")
    assert [(s.rank, s.node) for s in recording.clashes] == [(0, "node-0"), (0, "node-9")]


def test_a_rank_in_two_roles_of_a_csv_is_a_clash() -> None:
    """The same number, but two kinds of work: their times must not mix."""
    again = CSV.decode().splitlines()[1].replace("default", "critic")
    recording = read(CSV + again.encode() + b"\n")
    assert [(s.rank, s.role) for s in recording.clashes] == [(0, "default"), (0, "critic")]


def test_sessions_that_overlap_are_a_clash_and_a_restart_is_none() -> None:
    """Two processes of one rank at one time, against one after the other."""
    later = simulate("one_slow_rank", Plan(ranks=2, steps=3, slow_rank=1, seed=1)).batch
    at_once = b"".join(map(frame, [*REQUESTS, *encode_requests(later)]))
    assert {s.rank for s in read(at_once).clashes} == {0, 1}
    start_ns = int(RUN.start_ns.max()) + 10**9
    restarted = Plan(ranks=2, steps=3, slow_rank=1, seed=1, start_ns=start_ns)
    after = encode_requests(simulate("one_slow_rank", restarted).batch)
    assert read(b"".join(map(frame, [*REQUESTS, *after]))).clashes == ()
