"""What the GPUs of a generated run tell: the work that launches hide, and who waits for whom."""

from __future__ import annotations

import io

import numpy as np
import pytest

from otel_straggler.detect.scores.scorer import Scorer
from otel_straggler.detect.scores.step_tables import build_step_table
from otel_straggler.errors import ConfigError
from otel_straggler.model.observation import BASIS_CODES, COLLECTIVE, CUPTI, HOST, merge_batches
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.recordings.files import read_recording
from otel_straggler.simulate.runs import SimulatedRun
from otel_straggler.simulate.writers import (
    as_json_line,
    encode_requests_of,
    frame,
    write_csv,
)

from .generated import QUIET, label_of, make

ONSET = 30
ROUNDED_S = 2e-8
"""Durations are whole nanoseconds, of eight microbatches in a step."""
SLOW = f"compute:1.3@rank5:step{ONSET}"


def columns(run: SimulatedRun, name: str) -> np.ndarray:
    """(steps, ranks, sections) of what the GPU tells."""
    return np.concatenate([getattr(table.gpu, name) for table in run.tables(20)])


def excess(run: SimulatedRun, *sections: str) -> np.ndarray:
    """(ranks,) slowdown of own work after the onset, against before."""
    names = [section.name for section in run.plan.sections]
    own = columns(run, "own_s")[..., [names.index(name) for name in sections]].sum(axis=2)
    return np.median(own[ONSET + 1 :], axis=0) / np.median(own[1:ONSET], axis=0)


@pytest.mark.parametrize("layout", ["dp8", "tp4,pp2,dp4"])
@pytest.mark.parametrize("timing", ["local", "synchronised", "asynchronous"])
def test_kernels_show_the_culprits_work_whatever_the_host_sees(layout: str, timing: str) -> None:
    """Also in a tensor group, in backward with its collective, and behind launches."""
    run = make(layout, SLOW, **QUIET, timing=timing, gpu_timing="cupti")
    slow = excess(run, "forward", "backward", "optimizer")
    assert slow[5] == pytest.approx(1.3)
    assert np.allclose(np.delete(slow, 5), 1.0)
    assert label_of(run).is_localisable


@pytest.mark.parametrize("timing", ["local", "synchronised", "asynchronous"])
def test_the_culprit_spends_least_in_communication_kernels(timing: str) -> None:
    """The others wait in theirs."""
    run = make("dp8", SLOW, **QUIET, timing=timing, gpu_timing="cupti")
    waited = np.nansum(columns(run, "nccl_s"), axis=2)[ONSET:]
    assert (waited.argmin(axis=1) == 5).all()


def test_between_events_there_is_waiting_too() -> None:
    """So a culprit in backward looks like its victims; one before it does not."""
    plan = {**QUIET, "timing": "asynchronous", "gpu_timing": "events"}
    hidden = make("dp8", f"backward:1.3@rank5:step{ONSET}", **plan)
    assert np.ptp(excess(hidden, "backward")) < 1e-9
    assert not label_of(hidden).is_localisable
    shown = make("dp8", f"forward:1.3@rank5:step{ONSET}", **plan)
    assert excess(shown, "forward").argmax() == 5
    assert label_of(shown).is_localisable


def test_host_times_are_the_same_with_and_without_gpu_times() -> None:
    """The same plan, told in another way."""
    plain = list(make("tp2,dp4", SLOW, timing="asynchronous").tables(20))
    timed = list(make("tp2,dp4", SLOW, timing="asynchronous", gpu_timing="cupti").tables(20))
    for one, other in zip(plain, timed, strict=True):
        assert one.gpu is None
        np.testing.assert_array_equal(one.seconds, other.seconds)


def test_waiting_in_collectives_shows_the_culprits_work_where_the_host_waits() -> None:
    """In a tensor group and in backward; behind launches the host waits for none of them."""
    for layout in ("dp8", "tp4,pp2,dp4"):
        for timing in ("local", "synchronised"):
            run = make(layout, SLOW, **QUIET, timing=timing, report_collectives=True)
            slow = excess(run, "forward", "backward", "optimizer")
            assert slow[5] == pytest.approx(1.3)
            assert np.allclose(np.delete(slow, 5), 1.0)
            waited = np.nansum(columns(run, "nccl_s"), axis=2)[ONSET:]
            assert (waited.argmin(axis=1) == 5).all()
            assert label_of(run).is_localisable
    hidden = make("dp8", SLOW, **QUIET, timing="asynchronous", report_collectives=True)
    assert np.nansum(columns(hidden, "nccl_s"), axis=2).max() < 1e-4
    assert not label_of(hidden).is_localisable


def test_a_run_reports_one_kind_of_waiting() -> None:
    """Times of the GPU would win anyway."""
    with pytest.raises(ConfigError, match="report_collectives"):
        make("dp4", gpu_timing="cupti", report_collectives=True)


@pytest.mark.parametrize("counts_microbatches", [False, True])
@pytest.mark.parametrize("way", ["events", "cupti", "collective"])
def test_rows_add_up_to_the_tables(way: str, counts_microbatches: bool) -> None:
    """And tell nothing where a report is missing."""
    plan = {"timing": "asynchronous", "gpu_timing": way}
    if way == "collective":
        plan = {"timing": "synchronised", "report_collectives": True}
    run = make("tp2,pp2,dp4", SLOW, **plan, missing_reports=0.1)
    [table] = run.tables(60)
    [batch] = run.batches(60, counts_microbatches=counts_microbatches)
    summed = build_step_table(batch)
    assert summed is not None
    assert summed.gpu is not None
    assert table.gpu is not None
    order = [table.sections.index(section) for section in summed.sections]
    expected = table.gpu.of_rows(np.s_[:, :, order])
    np.testing.assert_array_equal(summed.gpu.basis, expected.basis)
    np.testing.assert_allclose(summed.gpu.own_s, expected.own_s, rtol=1e-9, atol=ROUNDED_S)
    np.testing.assert_allclose(summed.gpu.nccl_s, expected.nccl_s, rtol=1e-9, atol=1e-12)
    reported = summed.gpu.basis[np.isfinite(summed.seconds)]
    assert set(reported.tolist()) == {BASIS_CODES[way]}
    assert (summed.gpu.basis[np.isnan(summed.seconds)] == HOST).all()


@pytest.mark.parametrize("form", ["otlp-json", "otlp-proto"])
@pytest.mark.parametrize("basis", [CUPTI, COLLECTIVE])
def test_gpu_times_are_written_and_read_back(form: str, basis: int) -> None:
    """To the nanosecond; of rows that tell tokens and of those that do not."""
    plan = {"timing": "asynchronous", "gpu_timing": "cupti"}
    if basis == COLLECTIVE:
        plan = {"timing": "synchronised", "report_collectives": True}
    run = make("dp4", steps=6, **plan, report_tokens=True)
    requests = encode_requests_of(run.batches())
    pieces = (
        map(frame, requests)
        if form == "otlp-proto"
        else map(str.encode, map(as_json_line, requests))
    )
    read = read_recording(io.BytesIO(b"".join(pieces)), "run").batch
    made = merge_batches(list(run.batches()))
    assert read.gpu is not None
    assert made.gpu is not None
    for one, other in ((read.gpu.own_s(), made.gpu.own_s()), (read.gpu.nccl_s, made.gpu.nccl_s)):
        np.testing.assert_allclose(np.sort(one), np.sort(other), rtol=0, atol=4e-9)
    assert np.bincount(read.gpu.basis).tolist() == np.bincount(made.gpu.basis).tolist()
    assert basis in read.gpu.basis


def test_a_csv_file_has_no_gpu_times() -> None:
    """It has no columns for them."""
    run = make("dp4", steps=6, gpu_timing="cupti")
    text = "".join(write_csv(run.batches()))
    assert read_recording(io.BytesIO(text.encode()), "run").batch.gpu is None
    assert text == "".join(write_csv(make("dp4", steps=6).batches()))


def test_spans_sent_to_a_scorer_name_the_rank_that_launches_hide() -> None:
    """All the way: bytes, columns, windows, verdict."""
    run = make("dp8", SLOW, steps=90, timing="asynchronous", gpu_timing="cupti", spikes=0.0)
    decoder, scorer = SpanDecoder(), Scorer()
    for now_s, body in enumerate(encode_requests_of(run.batches(5, counts_microbatches=False))):
        scorer.observe(decoder.decode(body).batch, now_s * 10**6)
        scorer.close_due(now_s * 10**6)
    scorer.close_all()
    newest = {v.subject_id: v for v in scorer.verdicts(run.plan.run_id).changes}
    [verdict] = newest.values()
    assert (verdict.rank, verdict.state) == (5, "confirmed")
    assert (verdict.cause, verdict.evidence) == ("slow_gpu", "cupti")
