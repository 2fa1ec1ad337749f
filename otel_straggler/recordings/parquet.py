"""Rows of a Parquet file to columns, by pyarrow, which is optional."""

from __future__ import annotations

from typing import Any, BinaryIO, NoReturn

import numpy as np

from otel_straggler.errors import InputError, UnavailableError
from otel_straggler.model.observation import NO_STEP, Codes, Floats, Ints, ObservationBatch
from otel_straggler.recordings.columns import (
    DURATION,
    LONGEST_S,
    START,
    CodeTable,
    Columns,
    Meanings,
    Note,
    RawRows,
    RefusedError,
    TableRules,
    build_batch,
    find_columns,
    notes_on,
    whole_number,
)

MAX_ROWS = 50_000_000
_LARGEST_INTEGER = 2**62


def read_parquet(
    file: BinaryIO, name: str, note: Note, rules: TableRules, max_bytes: int
) -> ObservationBatch:
    """All rows of a Parquet file that have a length, in the order of the file.

    Args:
        file: seekable.
        max_bytes: of all columns, uncompressed.

    Raises:
        UnavailableError: pyarrow is not installed.
        InputError: with row, column, value, expectation and remedy.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise UnavailableError.of(
            name, "a Parquet file", "pyarrow to read it with",
            "Install it with: pip install 'otel-straggler[parquet]'",
        ) from None  # fmt: skip
    try:
        with parquet.ParquetFile(file) as content:
            names = content.schema_arrow.names
            columns = find_columns(names, rules, name)
            wanted = list(dict.fromkeys(columns.of.values()))
            _check_size(content.metadata, name, max_bytes)
            table = content.read(columns=wanted)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError.of(
            name, reason[:160], "a complete Parquet file", "Was the download or copy cut off?"
        ) from None
    for text in notes_on(columns, names, name):
        note(text)
    if table.num_rows == 0:
        raise InputError.of(name, "no rows", "rows of ranks", "There is no data to score.")
    reader = _Rows({ours: table.column(theirs) for ours, theirs in columns.of.items()}, name)
    return reader.batch(columns, rules, lambda text: note(f"{name}: {text}"))


def _check_size(metadata: Any, name: str, max_bytes: int) -> None:
    """By row groups: damaged metadata of a column ends the process."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    size = sum(group.total_byte_size for group in groups)
    for value, unit, limit in ((metadata.num_rows, "rows", MAX_ROWS), (size, "bytes", max_bytes)):
        if value > limit:
            remedy = "Split it, for example by steps, and score one part."
            raise InputError.of(name, f"{value:,} {unit}", f"at most {limit:,}", remedy)


class _Rows:
    """Columns of an Arrow table under our names."""

    def __init__(self, columns: dict[str, Any], name: str) -> None:
        self._columns = columns
        self._name = name

    def batch(self, columns: Columns, rules: TableRules, note: Note) -> ObservationBatch:
        meanings = Meanings(self._columns, rules)
        if self._is_time(START):
            columns.units[START] = 1e-9
        if self._is_time(DURATION):
            columns.units[DURATION] = 1e-9
        rows = RawRows(
            source=self._codes(meanings.sources),
            section=self._codes(meanings.sections),
            kernel=self._codes(meanings.kernels),
            step=self._steps(),
            start=self._starts(columns),
            duration=self._durations(columns),
            runs=self._runs(),
        )
        try:
            return build_batch(rows, meanings, columns, rules, note)
        except RefusedError as refused:
            self._refuse(refused, columns.of)

    def _codes(self, known: CodeTable) -> Codes:
        """Each combination of texts is read once."""
        n = len(self._columns["rank"])
        combined = np.zeros(n, np.int64)
        parts = [self._texts(column) for column in known.columns]
        for codes, names in parts:
            combined = combined * (len(names) + 1) + codes
            _, combined = np.unique(combined, return_inverse=True)
        _, first, code = np.unique(combined, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")  # as they come in the file
        meaning = np.empty(len(first), np.int32)
        for at in order.tolist():
            row = int(first[at])
            texts = tuple(names[int(codes[row])] for codes, names in parts)
            try:
                meaning[at] = known[texts]
            except RefusedError as refused:
                self._refuse(refused, dict(zip(known.columns, known.columns, strict=True)), row)
        result: Codes = meaning[code]
        return result

    def _texts(self, column: str) -> tuple[Ints, list[str]]:
        """Codes of rows, and texts; an empty one for null."""
        import pyarrow as pa

        values = self._columns[column].combine_chunks()
        if isinstance(values, pa.ChunkedArray):
            values = pa.concat_arrays(values.chunks)
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        values = values.dictionary_encode()
        codes = values.indices.fill_null(len(values.dictionary)).to_numpy(zero_copy_only=False)
        try:
            texts = values.dictionary.to_pylist()
        except UnicodeDecodeError as error:
            shown = error.object[error.start : error.start + 8]
            self._fail(column, shown, "text in UTF-8", "Is the file damaged?")
        return codes.astype(np.int64), [*map(_text, texts), ""]

    def _is_time(self, column: str) -> bool:
        import pyarrow as pa

        if column not in self._columns:
            return False
        kind = self._columns[column].type
        return bool(pa.types.is_timestamp(kind) or pa.types.is_duration(kind))

    def _numbers(self, column: str) -> Floats:
        """NaN for null."""
        import pyarrow as pa

        values = self._columns[column]
        try:
            if pa.types.is_duration(values.type):
                values = values.cast(pa.duration("ns")).cast(pa.int64())
            cast = values.cast(pa.float64(), safe=False)
        except pa.ArrowException:
            self._fail(column, f"a column of {values.type}", "numbers", "Convert the column.")
        result: Floats = np.asarray(cast.to_numpy(), np.float64)
        return result

    def _integers(self, column: str, null: int | None) -> Ints:
        import pyarrow as pa

        values = self._columns[column]
        if null is not None:
            values = values.fill_null(null)
        elif values.null_count:
            row = int(np.argmax(values.is_null().to_numpy()))
            self._fail(f"{column}, row {row + 1}", None, "a whole number", "Fill the cell.")
        try:
            if pa.types.is_timestamp(values.type):
                values = values.cast(pa.timestamp("ns", values.type.tz))
            result: Ints = values.cast(pa.int64()).to_numpy()
        except pa.ArrowException as error:
            reason = str(error).splitlines()[0][:80]
            self._fail(column, f"{values.type}: {reason}", "whole numbers", "Convert the column.")
        lowest = 0 if null is None else null
        is_wrong = (result < lowest) | (result > _LARGEST_INTEGER)
        if is_wrong.any():
            row = int(np.argmax(is_wrong))
            expected = "a whole number of at least 0"
            self._fail(f"{column}, row {row + 1}", int(result[row]), expected, "Correct the cell.")
        return result

    def _steps(self) -> Ints:
        if "step" not in self._columns:
            return np.full(len(self._columns["rank"]), NO_STEP, np.int64)
        return self._integers("step", NO_STEP)

    def _starts(self, columns: Columns) -> Ints | Floats | None:
        if START not in self._columns:
            return None
        return self._integers(START, None) if columns.has_whole_ns else self._numbers(START)

    def _durations(self, columns: Columns) -> Floats:
        seconds = self._numbers(DURATION)
        is_far = seconds > LONGEST_S / (columns.units[DURATION] or 1e-9)
        if is_far.any():
            row = int(np.argmax(is_far))
            where = f"{DURATION}, row {row + 1}"
            remedy = "Was it measured with a monotonic clock, and is its unit right?"
            self._fail(where, float(seconds[row]), "at most 1e9 seconds", remedy)
        return seconds

    def _runs(self) -> Codes:
        if "microbatch" not in self._columns:
            return np.ones(len(self._columns["rank"]), np.int32)
        codes, texts = self._texts("microbatch")
        try:
            counts = [whole_number("microbatch", text, 1) if text else 1 for text in texts]
        except RefusedError as refused:
            self._refuse(refused, {"microbatch": "microbatch"})
        return np.array(counts, np.int32)[codes]

    def _refuse(
        self, refused: RefusedError, names: dict[str, str], row: int | None = None
    ) -> NoReturn:
        column, *rest = refused.cell
        where = names.get(column, column) + ("" if row is None else f", row {row + 1}")
        self._fail(where, *rest)

    def _fail(self, column: str, value: object, expected: str, remedy: str) -> NoReturn:
        raise InputError.of(f"{self._name}, column {column}", value, expected, remedy) from None


def _text(value: object) -> str:
    """As a CSV would have it: 3.0 of a column with gaps is 3."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None or value != value else str(value)
