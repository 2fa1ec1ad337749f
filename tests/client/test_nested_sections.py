"""What a section says of the section around it, from ``with`` to the collector's columns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from otel_straggler import phase, section, step
from otel_straggler.client.python_packing import SpanPacker
from otel_straggler.client.recording import RECORDER
from otel_straggler.config import ClientSettings, Endpoint
from otel_straggler.model.observation import Section
from otel_straggler.otlp.decode_spans import SpanDecoder

_NOWHERE = Endpoint(url="http://127.0.0.1:1", is_enabled=False)
SETTINGS = ClientSettings(
    run_id="run",
    attempt=0,
    group="",
    rank=0,
    local_rank=0,
    world_size=1,
    node="node",
    service_name="job",
    traces=_NOWHERE,
    metrics=_NOWHERE,
)


@pytest.fixture(autouse=True)
def _recording() -> Iterator[None]:
    RECORDER.enable()
    yield
    RECORDER.disable()
    RECORDER.drain()


class Pipe:
    """From the recorder over the wire into columns."""

    def __init__(self) -> None:
        resource = {"training.rank": 0, "training.run.id": "run"}
        self._packer = SpanPacker(SETTINGS, lambda _: resource, RECORDER.session.generation)

    def sections(self) -> set[Section]:
        """Sections of what has ended since the last time."""
        requests = self._packer.pack(RECORDER.drain(), 10**18)
        batches = [SpanDecoder().decode(request.body).batch for request in requests]
        return {section for batch in batches for section in batch.sections}


def test_a_section_inside_another_says_which_is_around_it() -> None:
    """The innermost; a step is none."""
    pipe = Pipe()
    with step(1), section("forward"), section("layer"), section("attention"):
        pass
    assert pipe.sections() == {
        Section("forward"),
        Section("layer", parent="forward"),
        Section("attention", parent="layer"),
    }


def test_a_section_that_is_sent_before_the_one_around_it_has_ended_knows_it() -> None:
    """A long section does not hold back what is in it."""
    pipe = Pipe()
    with step(1), section("epoch"):
        with section("forward"):
            pass
        assert pipe.sections() == {Section("forward", parent="epoch")}
    assert pipe.sections() == {Section("epoch")}


def test_a_section_around_steps_is_around_none_of_what_is_in_them() -> None:
    """Otherwise a section around the whole loop would hide all of it."""
    pipe = Pipe()
    with section("train"), step(1), section("forward"):
        pass
    assert pipe.sections() == {Section("train"), Section("forward")}


def test_sections_of_a_phase_keep_their_names_and_lie_within_it() -> None:
    """The phase itself is the top-level section."""
    pipe = Pipe()
    with step(1), phase("eval"), section("forward"):
        pass
    assert pipe.sections() == {
        Section("eval", "eval"),
        Section("eval/forward", "eval", parent="eval"),
    }
