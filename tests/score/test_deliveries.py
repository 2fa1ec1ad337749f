"""Which rows of a window count, against the plain definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.scores.step_tables import one_session_per_rank, without_duplicates
from otel_straggler.model.observation import NO_KERNEL, NO_SEQ, Kernel, ObservationBatch, Section
from otel_straggler.model.rank import Source

SOURCES = tuple(
    Source(run_id="r", rank=rank, session_id=session)
    for rank, session in ((0, "a"), (1, "a"), (0, "b"), (1, "b"))
)
ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(-1, 1), st.integers(-1, 3)),
    min_size=1,
    max_size=40,
)


def batch(rows: list[tuple[int, int, int, int]], *, spread: int = 1) -> ObservationBatch:
    """Rows of source, section, kernel (-1: none) and seq (-1: none); each a nanosecond later."""
    source, section, kernel, seq = (np.array(column) for column in zip(*rows, strict=True))
    has_kernels = bool((kernel >= 0).any())
    return ObservationBatch(
        sources=SOURCES,
        sections=(Section("f"), Section("g")),
        kernels=(Kernel("k"), Kernel("m")) if has_kernels else (),
        source=source.astype(np.int32),
        section=section.astype(np.int32),
        kernel=np.where(kernel < 0, NO_KERNEL, kernel).astype(np.int32),
        step=np.zeros(len(rows), np.int64),
        start_ns=np.arange(len(rows)),
        duration_s=np.ones(len(rows)),
        seq=np.where(seq < 0, NO_SEQ, seq * spread).astype(np.int64),
    )


@pytest.mark.parametrize("spread", [1, 2**60])
@settings(max_examples=80)
@given(ROWS, st.booleans())
def test_of_one_run_the_first_delivery_counts(
    spread: int, rows: list[tuple[int, int, int, int]], has_kernels: bool
) -> None:
    """What differs in source, section, kernel or number is another run; what has no number too."""
    if not has_kernels:
        rows = [(source, section, -1, seq) for source, section, _, seq in rows]
    kept = [at for at, row in enumerate(rows) if row[3] < 0 or rows.index(row) == at]
    assert without_duplicates(batch(rows, spread=spread)).start_ns.tolist() == kept


@settings(max_examples=80)
@given(ROWS)
def test_of_two_processes_of_a_rank_the_one_with_most_rows_counts(
    rows: list[tuple[int, int, int, int]],
) -> None:
    """Of equals the newer; they are never put together."""
    result = one_session_per_rank(batch(rows))
    count = [sum(row[0] == code for row in rows) for code in range(4)]
    winners = {rank: max((count[code], code) for code in (rank, rank + 2))[1] for rank in (0, 1)}
    kept = [at for at, row in enumerate(rows) if row[0] in winners.values()]
    assert result.start_ns.tolist() == kept
