"""What is recorded is what a collector reads: encoded and scanned, in C++ and in Python alike."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.client.packing import Request
from otel_straggler.model.observation import NO_STEP, Section, merge_batches
from otel_straggler.otlp.decode_spans import SpanDecoder

from .made_records import PHASES, Made, random_runs
from .test_native_spans import OFFSET_NS, packers

LONGEST_NAME = 256  # that a collector keeps
WHOLE_STEPS = {Section("step", "compute").in_phase(phase) for phase in PHASES}
"""As which a step is scored in which no section ended: client/test_two_exporters.py."""
Where = tuple[str, Section, int]


@dataclass(frozen=True)
class Run:
    """One run of a section, as recorded or as read."""

    session_id: str
    section: Section
    step: int
    start_ns: int
    length_ns: int
    seq: int
    tokens: float | None

    @property
    def where(self) -> Where:
        return self.session_id, self.section, self.step


@dataclass
class Recorded:
    """What runs a collector should read, of all that were recorded so far."""

    runs: list[Run] = field(default_factory=list)
    sequences: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    failed: int = 0

    def add(self, made: Made) -> None:
        """Failed runs take a number and are not scored; steps are no sections."""
        for frame, outer, end_ns, error, _ in made.records:
            timer, span, start_ns, context, work = frame
            if span == context.step_span:
                continue
            session_id = context.session.session_id
            name = timer.name[:LONGEST_NAME]
            seq = self.sequences[session_id, name]
            self.sequences[session_id, name] += 1
            if error is not None:
                self.failed += 1
                continue
            section = Section(
                name,
                timer.kind,
                outer[0].name[:LONGEST_NAME] if outer else "",
            ).in_phase(context.phase)
            self.runs.append(
                Run(
                    session_id,
                    section,
                    NO_STEP if context.step is None else context.step,
                    start_ns + OFFSET_NS,
                    max(end_ns - start_ns, 1),
                    seq,
                    work.tokens if work and work.tokens >= 0 else None,
                )
            )


def read(decoder: SpanDecoder, requests: list[Request]) -> list[Run]:
    """The rows of requests, in their order."""
    decoded = [decoder.decode(request.body) for request in requests]
    assert not any(part.rejected for part in decoded)
    batch = merge_batches([part.batch for part in decoded])
    tokens = np.full(len(batch), np.nan) if batch.tokens is None else batch.tokens
    columns = (batch.step, batch.start_ns, np.rint(batch.duration_s * 1e9), batch.seq, tokens)
    rows = zip(batch.source, batch.section, *(c.tolist() for c in columns), strict=True)
    return [
        Run(
            batch.sources[source].session_id,
            batch.sections[section],
            step,
            start_ns,
            int(length_ns),
            seq,
            None if np.isnan(size) else size,
        )
        for source, section, step, start_ns, length_ns, seq, size in rows
        if batch.sections[section] not in WHOLE_STEPS
    ]


def ways() -> Iterator[tuple[bool, SpanDecoder]]:
    """Whether C++ encodes, and a decoder of either form."""
    for is_cpp in (False, True):
        yield is_cpp, SpanDecoder()
        yield is_cpp, SpanDecoder(extension=None)


def encoded(packer: object, made: Made) -> list[Request]:
    if hasattr(packer, "pack_block"):
        return list(packer.pack_block(made.block, made.tables, OFFSET_NS))
    return list(packer.pack(made.records, OFFSET_NS))  # type: ignore[attr-defined]


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 40))
def test_every_run_is_read_as_it_was_recorded(seed: int, steps: int, runs: int) -> None:
    """Session, name, kind, phase, enclosing section, step, times to the nanosecond, number, size;
    in order, over two requests; whoever encodes and whoever reads."""
    for is_cpp, decoder in ways():
        rng = random.Random(seed)
        packer = packers()[is_cpp]
        recorded = Recorded()
        result = []
        for _ in range(2):
            made = random_runs(rng, steps, runs)
            recorded.add(made)
            result += read(decoder, encoded(packer, made))
        assert result == recorded.runs


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 60))
def test_folded_runs_are_read_with_their_count_sum_and_extremes(
    seed: int, budget: int, runs: int
) -> None:
    """Per session, section and step; exact, but for what a single run took and when it began."""
    for decoder in (SpanDecoder(), SpanDecoder(extension=None)):
        rng = random.Random(seed)
        packer = packers(budget)[1]
        recorded = Recorded()
        result = []
        for _ in range(3):
            made = random_runs(rng, rng.randrange(1, 8), runs)
            recorded.add(made)
            result += read(decoder, encoded(packer, made))
        assert summed(result) == summed(recorded.runs)
        assert tokens_of(result) == pytest.approx(tokens_of(recorded.runs))
        spans = times_of(recorded.runs)
        for where, (start_ns, end_ns) in times_of(result).items():
            assert spans[where][0] <= start_ns < end_ns <= spans[where][1]
        numbers = numbers_of(result)
        assert len(numbers) == len(result)  # no number twice
        assert len(result) + recorded.failed == sum(recorded.sequences.values())
        assert all(0 <= seq < recorded.sequences[who, name] for who, name, seq in numbers)


def summed(runs: list[Run]) -> dict[Where, tuple[int, int, int, int]]:
    lengths: dict[Where, list[int]] = defaultdict(list)
    for run in runs:
        lengths[run.where].append(run.length_ns)
    return {where: (len(ns), sum(ns), min(ns), max(ns)) for where, ns in lengths.items()}


def tokens_of(runs: list[Run]) -> dict[Where, float]:
    sizes: dict[Where, float] = defaultdict(float)
    for run in runs:
        sizes[run.where] += run.tokens or 0.0
    return sizes


def times_of(runs: list[Run]) -> dict[Where, tuple[int, int]]:
    """First start and last end."""
    times: dict[Where, tuple[int, int]] = {}
    for run in runs:
        end_ns = run.start_ns + run.length_ns
        first_ns, last_ns = times.get(run.where, (run.start_ns, end_ns))
        times[run.where] = min(first_ns, run.start_ns), max(last_ns, end_ns)
    return times


def numbers_of(runs: list[Run]) -> set[tuple[str, str, int]]:
    """Session, name without its phase, and number."""
    return {(run.session_id, run.section.name.rpartition("/")[2], run.seq) for run in runs}
