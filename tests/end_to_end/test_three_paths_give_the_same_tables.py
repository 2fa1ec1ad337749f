"""A CSV, an OTLP file and a live collector give layer 2 the same tables of the same run."""

from __future__ import annotations

import http.client
import io
import time
from dataclasses import replace

import numpy as np
import pytest

from otel_straggler.cli.score import score_recording
from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import CollectorSettings, MetricsSettings, ReceiverSettings
from otel_straggler.detect.scores.scorer import ScoreSettings
from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.model.observation import NO_SEQ, ObservationBatch, Section
from otel_straggler.model.step_table import StepTable
from otel_straggler.model.verdict import Verdict
from otel_straggler.recordings.files import read_recording
from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import encode_requests, frame, write_csv

STEPS = 42
FREE = "127.0.0.1:0"
LONGEST_S = 30.0


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[StepTable]:
    """What the judges are given, in order; they judge as ever."""
    seen: list[StepTable] = []
    take = VerdictEngine.observe

    def seen_take(self: VerdictEngine, table: StepTable) -> tuple[Verdict, ...]:
        seen.append(table)
        return take(self, table)

    monkeypatch.setattr(VerdictEngine, "observe", seen_take)
    return seen


@pytest.fixture(scope="module")
def run() -> ObservationBatch:
    """Eight ranks, two microbatches a step, tokens told by one section, another one nested."""
    batch = simulate("one_slow_rank", Plan(steps=STEPS, seed=3)).batch
    forward = [section.name for section in batch.sections].index("forward")
    again = batch.take(batch.section == forward)
    rows = np.concatenate([np.arange(len(batch)), np.flatnonzero(batch.section == forward)])
    twice = batch.take(rows)
    second = np.arange(len(rows)) >= len(batch)
    tokens = np.where(twice.section == forward, 1000.0 + twice.step + 7 * second, np.nan)
    twice = replace(
        twice,
        seq=np.where(second, twice.seq + STEPS, twice.seq),
        start_ns=np.where(second, twice.start_ns + 1, twice.start_ns),
        tokens=tokens,
    )
    assert len(twice) == len(batch) + len(again)
    return twice.take(np.argsort(twice.start_ns, kind="stable"))


def same(one: list[StepTable], other: list[StepTable], *, tokens: bool = True) -> None:
    assert [t.steps.tolist() for t in one] == [t.steps.tolist() for t in other]
    for a, b in zip(one, other, strict=True):
        assert [s.rank for s in a.sources] == [s.rank for s in b.sources]
        assert [s.name for s in a.sections] == [s.name for s in b.sections]
        np.testing.assert_array_equal(a.runs, b.runs)
        np.testing.assert_array_equal(a.start_ns, b.start_ns)
        np.testing.assert_array_equal(a.end_ns, b.end_ns)
        np.testing.assert_allclose(a.seconds, b.seconds, rtol=1e-9)
        np.testing.assert_allclose(a.run_cv, b.run_cv, rtol=1e-6, atol=1e-9)
        if tokens:
            np.testing.assert_array_equal(a.tokens, b.tokens)


def taken(tables: list[StepTable]) -> list[StepTable]:
    result = list(tables)
    tables.clear()
    return result


def of_file(content: bytes, tables: list[StepTable], window_steps: int | None) -> list[StepTable]:
    recording = read_recording(io.BytesIO(content), "run")
    score_recording(recording, ScoreSettings(window_steps=window_steps))
    return taken(tables)


def of_collector(bodies: list[bytes], tables: list[StepTable]) -> list[StepTable]:
    """What a live collector has judged once it has stopped; every request is sent twice."""
    settings = CollectorSettings(
        receivers=ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE),
        metrics=MetricsSettings(listen=FREE),
    )
    collector = Collector(settings)
    address = collector.start()["otlp_http"]
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=LONGEST_S)
    for body in bodies:
        for _ in range(2):
            headers = {"Content-Type": "application/x-protobuf"}
            connection.request("POST", "/v1/traces", body, headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
    connection.close()
    deadline_s = time.monotonic() + LONGEST_S
    while not tables and time.monotonic() < deadline_s:
        time.sleep(0.05)
    collector.stop()
    return taken(tables)


def test_all_paths_sum_up_alike(run: ObservationBatch, tables: list[StepTable]) -> None:
    """Step by step to 1e-9, however windows of scores are cut, and with every request twice."""
    bodies = list(encode_requests(run))
    collected = of_collector(bodies, tables)
    assert [s for table in collected for s in table.steps.tolist()] == list(range(STEPS))
    otlp = of_file(b"".join(map(frame, bodies)), tables, None)
    same(otlp, collected)
    assert np.isfinite(otlp[0].tokens).all()
    assert otlp[0].tokens[0].tolist() == [2007.0] * 8
    csv = of_file("".join(write_csv([run])).encode(), tables, None)
    same(csv, otlp, tokens=False)
    assert np.isnan(csv[0].tokens).all()
    for window_steps in (1, 20):
        same(of_file("".join(write_csv([run])).encode(), tables, window_steps), csv)


def test_nested_sections_are_left_out_on_the_way_from_a_sender_to_the_tables(
    run: ObservationBatch, tables: list[StepTable]
) -> None:
    """A file with the section inside another gives the tables of one without it."""
    sections = tuple(
        Section(s.name, s.kind, "step_work" if s.name == "forward" else "") for s in run.sections
    )
    forward = [section.name for section in run.sections].index("forward")
    nested = of_file(
        b"".join(map(frame, encode_requests(replace(run, sections=sections)))), tables, None
    )
    plain = of_file(
        b"".join(map(frame, encode_requests(run.take(run.section != forward)))), tables, None
    )
    same(nested, plain)


def test_a_row_for_several_runs_counts_as_they_do(
    run: ObservationBatch, tables: list[StepTable]
) -> None:
    """A CSV that sums up microbatches beforehand: the same seconds and the same number of runs."""
    twice = np.bincount(run.section)[run.section] > STEPS * 8
    summed: dict[tuple[int, int, int], float] = {}
    keys = zip(run.source.tolist(), run.section.tolist(), run.step.tolist(), strict=True)
    for key, seconds in zip(keys, run.duration_s.tolist(), strict=True):
        summed[key] = summed.get(key, 0.0) + seconds
    first = run.seq < STEPS
    kept = run.take(first)
    keys = zip(kept.source.tolist(), kept.section.tolist(), kept.step.tolist(), strict=True)
    kept = replace(
        kept,
        duration_s=np.array([summed[key] for key in keys]),
        runs=np.where(twice[first], 2, 1).astype(np.int32),
        seq=np.full(len(kept), NO_SEQ, np.int64),
    )
    by_row = of_file("".join(write_csv([kept])).encode(), tables, None)
    by_run = of_file("".join(write_csv([run])).encode(), tables, None)
    for one, other in zip(by_row, by_run, strict=True):
        np.testing.assert_array_equal(one.runs, other.runs)
        np.testing.assert_allclose(one.seconds, other.seconds, rtol=1e-8)
