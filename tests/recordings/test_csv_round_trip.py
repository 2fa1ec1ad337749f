"""Whatever rows a program writes with Python's csv module, the same rows are read."""

from __future__ import annotations

import csv
import io
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.model.observation import NO_KERNEL, NO_STEP, ObservationBatch
from otel_straggler.recordings.csv import read_csv
from otel_straggler.semconv import KERNEL_CLASSES, SECTION_KINDS

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=12)
names = text.filter(bool)


class Row(NamedTuple):
    """One row, as a user knows it; the names of the fields are the columns."""

    run_id: str
    rank: int
    node: str
    role: str
    section: str
    kind: str
    step: int | None
    start_ns: int
    duration_s: float
    kernel: str
    kernel_class: str


rows = st.builds(
    Row,
    run_id=names,
    rank=st.integers(0, 2**31 - 1),
    node=text,
    role=names,
    section=names,
    kind=st.sampled_from(SECTION_KINDS),
    step=st.none() | st.integers(0, 2**62),
    start_ns=st.integers(0, 2**62),
    duration_s=st.floats(1e-9, 1e9),
    kernel=text,
    kernel_class=st.sampled_from(KERNEL_CLASSES),
)


def written(table: list[Row], columns: list[str]) -> list[bytes]:
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(columns)
    for row in table:
        cells = row._asdict()
        writer.writerow("" if cells[c] is None else cells[c] for c in columns)
    return out.getvalue().encode().splitlines(keepends=True)


def rows_of(batch: ObservationBatch) -> list[Row]:
    result = []
    for i in range(len(batch)):
        source = batch.sources[batch.source[i]]
        section = batch.sections[batch.section[i]]
        code = batch.kernel[i]
        kernel = None if code == NO_KERNEL else batch.kernels[code]
        step = int(batch.step[i])
        result.append(
            Row(
                source.run_id, source.rank, source.node, source.role, section.name, section.kind,
                None if step == NO_STEP else step, int(batch.start_ns[i]),
                float(batch.duration_s[i]),
                kernel.name if kernel else "", kernel.kernel_class if kernel else "",
            )
        )  # fmt: skip
    return result


@given(st.lists(rows, min_size=1, max_size=8), st.permutations(Row._fields))
def test_rows_are_read_as_they_were_written(table: list[Row], columns: list[str]) -> None:
    """Names with commas, quotes and line breaks, columns in any order, every digit of a time."""
    expected = [row if row.kernel else row._replace(kernel_class="") for row in table]
    assert rows_of(read_csv(written(table, list(columns)), "run.csv")) == expected
