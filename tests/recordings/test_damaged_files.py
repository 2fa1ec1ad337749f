"""Damaged recordings: read, or refused with a sentence, never an exception of another kind."""

from __future__ import annotations

import contextlib
import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.errors import StragglerError
from otel_straggler.recordings.files import FORMATS, read_recording

from ..damage import damaged
from .test_files import CONTENT
from .test_kineto import step_of

KINETO = json.dumps(
    {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
        "traceEvents": [event for number in range(3) for event in step_of(number)],
    }
).encode()
VALID = [*CONTENT.values(), KINETO]


def read(content: bytes, form: str | None) -> None:
    with contextlib.suppress(StragglerError):
        read_recording(io.BytesIO(content), "run", form)  # type: ignore[arg-type]


@given(
    content=damaged([*VALID, *map(gzip.compress, VALID)]),
    form=st.none() | st.sampled_from([form for form in FORMATS if form != "parquet"]),
)
def test_a_damaged_recording_is_read_or_refused(content: bytes, form: str | None) -> None:
    """In its own format, found by its content, or in a wrong one."""
    read(content, form)


@pytest.fixture(scope="module")
def parquet() -> bytes:
    pyarrow = pytest.importorskip(
        "pyarrow", reason="pyarrow is not installed: Parquet was not read"
    )
    import pyarrow.parquet as pq
    from pyarrow import csv

    file = io.BytesIO()
    pq.write_table(csv.read_csv(io.BytesIO(CONTENT["csv"])), file)
    assert pyarrow
    return file.getvalue()


@given(data=st.data())
def test_a_damaged_parquet_file_is_read_or_refused(parquet: bytes, data: st.DataObject) -> None:
    """Also where only its footer or its pages are damaged."""
    read(data.draw(damaged([parquet])), data.draw(st.sampled_from([None, "parquet"])))
