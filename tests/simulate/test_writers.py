"""What is written is read back as the same observations."""

import io

import numpy as np
import pytest

from otel_straggler import semconv
from otel_straggler.model.observation import ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.recordings.files import read_recording
from otel_straggler.simulate.scenarios import SCENARIOS, Plan, simulate
from otel_straggler.simulate.writers import (
    as_json_line,
    encode_requests,
    frame,
    resource_of,
    write_csv,
)


def rows_of(batch: ObservationBatch) -> list[tuple]:
    """What a row says, whatever the order and the codes; durations in whole nanoseconds."""
    sources = [(s.run_id, s.rank, s.node, s.role, s.local_rank) for s in batch.sources]
    duration_ns = np.rint(batch.duration_s * 1e9).astype(np.int64)
    columns = (batch.source, batch.section, batch.step, batch.start_ns, duration_ns)
    return sorted(
        (*sources[source], batch.sections[section].name, batch.sections[section].kind, *rest)
        for source, section, *rest in zip(*(c.tolist() for c in columns), strict=True)
    )


def written(batch: ObservationBatch, form: str) -> bytes:
    if form == "csv":
        return "".join(write_csv([batch])).encode()
    if form == "otlp-json":
        return "".join(map(as_json_line, encode_requests(batch))).encode()
    return b"".join(map(frame, encode_requests(batch)))


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("form", ["csv", "otlp-json", "otlp-proto"])
def test_a_file_holds_exactly_the_rows_of_the_scenario(name, form):
    """Not a nanosecond is lost, in any of the three formats."""
    batch = simulate(name, Plan(ranks=4, steps=30, slow_rank=1, onset_step=3)).batch
    recording = read_recording(io.BytesIO(written(batch, form)), "simulated")
    assert recording.form == form
    assert not recording.clashes
    assert rows_of(recording.batch) == rows_of(batch)


def test_requests_hold_one_rank_each_and_all_that_a_live_rank_says_of_itself():
    """Decoded sources are equal to the simulated ones: session, world size, node and role."""
    batch = simulate("healthy", Plan(ranks=3, steps=200, slow_rank=0)).batch
    decoder = SpanDecoder()
    decoded = [decoder.decode(request) for request in encode_requests(batch)]
    assert all(len(d.batch.sources) == 1 for d in decoded)
    assert {d.batch.sources[0] for d in decoded} == set(batch.sources)
    assert sum(len(d.batch) for d in decoded) == len(batch)
    assert not any(d.rejected for d in decoded)


def test_no_two_spans_share_an_id():
    """Across ranks and sections, so that a trace viewer keeps all of them."""
    batch = simulate("healthy", Plan(ranks=3, steps=50, slow_rank=0)).batch
    decoder = SpanDecoder()
    seqs = [
        (d.batch.sources[0].rank, section, seq)
        for d in map(decoder.decode, encode_requests(batch))
        for section, seq in zip(
            [d.batch.sections[c].name for c in d.batch.section], d.batch.seq.tolist(), strict=True
        )
    ]
    assert len(set(seqs)) == len(batch)
    assert np.array_equal(np.unique(batch.seq), np.arange(50))


def test_a_resource_names_its_world_where_it_has_a_name() -> None:
    """So that actors and critics of one run are not taken for one world."""
    critic = resource_of(Source(run_id="rlhf", group="critic", rank=0))
    alone = resource_of(Source(run_id="rlhf", rank=0))
    assert (critic[semconv.GROUP], semconv.GROUP in alone) == ("critic", False)
