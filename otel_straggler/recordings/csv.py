"""Rows of a CSV file to columns.

Rows are read in chunks and transposed, each column is converted as a whole, and names become codes
by a dictionary. Only the rows of a rejected chunk are checked one by one, to name the line.
"""

from __future__ import annotations

import csv
import math
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from otel_straggler.errors import InputError
from otel_straggler.model.observation import (
    NO_STEP,
    Codes,
    Floats,
    Ints,
    ObservationBatch,
)
from otel_straggler.model.rank import Source
from otel_straggler.recordings.columns import (
    DURATION,
    LONGEST_S,
    NO_NUL,
    START,
    CodeTable,
    Columns,
    Meanings,
    Names,
    NotARecordingError,
    Note,
    RawRows,
    RefusedError,
    TableRules,
    build_batch,
    find_columns,
    notes_on,
    whole_number,
)

if TYPE_CHECKING:
    from _csv import Reader

ROWS_AT_ONCE = 16_384
LARGEST_INTEGER = 2**62
_A_DURATION = "a number of seconds, at most 1e9"
_MAX_SHOWN = 80


def read_csv(
    lines: Iterable[bytes],
    name: str,
    note: Note = lambda _: None,
    rules: TableRules | None = None,
) -> ObservationBatch:
    """All rows of a CSV file that have a length, in the order of the file.

    Args:
        lines: the first is the header.
        name: of the file, for messages.
        note: called with what was ignored or assumed.

    Raises:
        InputError: with line, column, value, expectation and remedy.

    Cost: about 3 us a row in time; 48 bytes a row stay.
    """
    rest = iter(lines)
    first = next(rest, b"").removeprefix(BOM_UTF8)
    reader = csv.reader(map(bytes.decode, chain([first], rest)), strict=True)
    try:
        return _read(reader, name, note, rules or TableRules())
    except UnicodeDecodeError as error:
        shown = error.object[error.start : error.start + 8]
        if reader.line_num == 0:
            raise NotARecordingError.of(
                f"{name}:1", shown, "text in UTF-8", "Is it a recording?"
            ) from None
        remedy = "Convert the file, for example with iconv."
        _fail(name, reader.line_num + 1, "", shown, "text in UTF-8", remedy)
    except csv.Error as error:
        if "NUL" in str(error):  # Python 3.10 reads no line with one
            _fail(name, reader.line_num, "", "a NUL byte", *NO_NUL)
        _fail(
            name, reader.line_num, "", str(error), "a line of CSV",
            "Quote cells with commas, quotes or line breaks as RFC 4180 says.",
        )  # fmt: skip


def _read(reader: Reader, name: str, note: Note, rules: TableRules) -> ObservationBatch:
    header, columns = _header(next(reader, []), name, note, rules)
    table = _Table(header, columns, rules)
    line = reader.line_num + 1
    while rows := list(islice(reader, ROWS_AT_ONCE)):
        try:
            table.add([row for row in rows if row] if [] in rows else rows)
        except ValueError:
            _find_the_bad_row(rows, table, name, line)
        line = reader.line_num + 1
    if table.is_empty:
        _fail(name, line, "", "nothing", "rows below the header", "There is no data to score.")
    try:
        return table.build(lambda text: note(f"{name}: {text}"))
    except RefusedError as refused:
        column, *rest = refused.cell
        raise InputError.of(f"{name}, column {columns.of[column]}", *rest) from None


def _header(
    cells: list[str], name: str, note: Note, rules: TableRules
) -> tuple[list[str], Columns]:
    """The columns under our names where they have one, and where ours are."""
    names = [cell.strip() for cell in cells]
    if len(names) == 1:
        raise NotARecordingError.of(
            f"{name}:1", names[0][:_MAX_SHOWN], "columns separated by commas", "Is it a CSV file?"
        )
    columns = find_columns(names, rules, f"{name}:1")
    for column in columns.of.values():
        if names.count(column) > 1:
            _fail(
                name, 1, column, f"{names.count(column)} columns of this name", "one",
                "Remove or rename the others.",
            )  # fmt: skip
    for text in notes_on(columns, names, name):
        note(text)
    ours = {column: known for known, column in columns.of.items()}
    taken = set(columns.of)
    return [ours.get(n, n if n not in taken else f"{n} (not used)") for n in names], columns


def split_csv_clashes(batch: ObservationBatch) -> tuple[ObservationBatch, tuple[Source, ...]]:
    """A rank of a run on two nodes or in two roles is two processes: a CSV has no sessions.

    Returns:
        The batch with a session id for each of them, so that their times never mix; and them.

    >>> from otel_straggler.model.observation import BatchBuilder
    >>> builder = BatchBuilder()
    >>> for node in "ab":
    ...     builder.add(Source(run_id="r", rank=0, node=node), 0, start_ns=1, duration_s=1.0)
    >>> [source.node for source in split_csv_clashes(builder.build())[1]]
    ['a', 'b']
    """
    claims: dict[tuple[str, int], set[tuple[str, str]]] = {}
    for source in batch.sources:
        claims.setdefault((source.run_id, source.rank), set()).add((source.node, source.role))
    sources = tuple(
        replace(source, session_id=f"{source.node}/{source.role}")
        if len(claims[source.run_id, source.rank]) > 1
        else source
        for source in batch.sources
    )
    clashing = {(s.run_id, s.rank, s.session_id): s for s in sources if s.session_id}
    return replace(batch, sources=sources), tuple(clashing.values())


class _Table:
    """Columns that grow by chunks of rows."""

    def __init__(self, header: list[str], columns: Columns, rules: TableRules) -> None:
        self.header = header
        self.columns = columns
        self._rules = rules
        self._meanings = Meanings(header, rules)
        self._microbatches = {"": 1}
        self._parts: list[tuple[object, ...]] = []

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def fresh(self) -> _Table:
        """The same columns without rows."""
        return _Table(self.header, self.columns, self._rules)

    def add(self, rows: list[list[str]]) -> None:
        """Raises ValueError for an invalid row."""
        if not rows:
            return
        cells = dict(zip(self.header, zip(*rows, strict=True), strict=True))
        meanings, count = self._meanings, len(rows)
        starts = cells.get(START)
        self._parts.append(
            (
                _codes(meanings.sources, cells, count),
                _codes(meanings.sections, cells, count),
                _codes(meanings.kernels, cells, count),
                _steps(cells.get("step", ("",) * count)),
                np.zeros(count, np.int64) if starts is None else self._starts(starts),
                _durations(cells[DURATION]),
                self._runs(cells.get("microbatch", ("",) * count)),
            )
        )

    def build(self, note: Note) -> ObservationBatch:
        source, section, kernel, step, start, duration, runs = (
            np.concatenate(part) for part in zip(*self._parts, strict=True)
        )
        rows = RawRows(
            source=source,
            section=section,
            kernel=kernel,
            step=step,
            start=start if START in self.columns.of else None,
            duration=duration,
            runs=runs,
        )
        return build_batch(rows, self._meanings, self.columns, self._rules, note)

    def _starts(self, cells: Names) -> Ints | Floats:
        return _integers(cells) if self.columns.has_whole_ns else _numbers(cells)

    def _runs(self, microbatches: Names) -> Codes:
        """Executions that each row stands for; a cell may be empty."""
        known = self._microbatches
        for text in set(microbatches) - known.keys():
            known[text] = whole_number("microbatch", text, at_least=1)
        if len(known) == 1:
            return np.ones(len(microbatches), np.int32)
        return np.array([known[text] for text in microbatches], np.int32)


def _codes(known: CodeTable, cells: dict[str, Names], count: int) -> Codes:
    if not known.columns:
        return np.full(count, known[()], np.int32)
    texts = zip(*(cells[column] for column in known.columns), strict=True)
    return np.array([known[each] for each in texts], np.int32)


def _steps(cells: Names) -> Ints:
    if "" in cells:
        known = _integers(tuple(text for text in cells if text))
        steps = np.full(len(cells), NO_STEP, np.int64)
        steps[[bool(text) for text in cells]] = known
        return steps
    return _integers(cells)


def _integers(cells: Names) -> Ints:
    """Raises ValueError; also for 1_000, which ``int`` would read."""
    try:
        numbers = np.array(list(map(int, cells)), np.int64)
    except OverflowError as error:
        raise ValueError from error
    if numbers.min(initial=0) < 0 or numbers.max(initial=0) > LARGEST_INTEGER or _has_bar(cells):
        raise ValueError
    return numbers


def _has_bar(cells: Names) -> bool:
    return "_" in "".join(cells)


def _durations(cells: Names) -> Floats:
    """NaN for an empty cell."""
    durations = _numbers(tuple(text or "nan" for text in cells) if "" in cells else cells)
    if (durations > LONGEST_S).any():
        raise ValueError
    return durations


def _numbers(cells: Names) -> Floats:
    """Raises ValueError; also for 1_0, which ``float`` would read."""
    numbers = np.array(list(map(float, cells)), np.float64)
    if _has_bar(cells):
        raise ValueError
    return numbers


def _find_the_bad_row(rows: list[list[str]], of: _Table, name: str, line: int) -> NoReturn:
    """Raise an error that names the rejected row of the chunk, and why."""
    table = of.fresh()
    for row in rows:
        if row and len(row) != len(of.header):
            _fail(
                name, line, "", f"{len(row)} cells", f"{len(of.header)}, as in the header",
                "Is a comma missing, or one too many?",
            )  # fmt: skip
        if row:
            try:
                table.add([row])
            except RefusedError as refused:
                column, *rest = refused.cell
                _fail(name, line, of.columns.of[column], *rest)
            except ValueError:
                column, *rest = _bad_number(dict(zip(of.header, row, strict=True)), of.columns)
                _fail(name, line, of.columns.of[column], *rest)
        line += 1 + sum(cell.count("\n") for cell in row)
    msg = f"{name}: a chunk was refused, but none of its rows"
    raise AssertionError(msg)


def _bad_number(cells: dict[str, str], columns: Columns) -> tuple[str, str, str, str]:
    """Our column, value, expectation and remedy of the first invalid number."""
    step, start = cells.get("step", ""), cells.get(START, "0")
    if step and not _is(step, int, 0, LARGEST_INTEGER):
        return "step", step, "a whole number of at least 0, or nothing", "Correct the cell."
    if columns.has_whole_ns and not _is(start, int, 0, LARGEST_INTEGER):
        remedy = "Write nanoseconds since 1970, without a fraction or an exponent."
        return START, start, f"a whole number from 0 to {LARGEST_INTEGER}", remedy
    if not columns.has_whole_ns and not _is(start, float, -math.inf, math.inf):
        return START, start, "a number", "Write times as numbers, such as seconds since 1970."
    remedy = "Was it measured with a monotonic clock, and in seconds?"
    return DURATION, cells[DURATION], _A_DURATION, remedy


def _is(text: str, kind: Callable[[str], float], lowest: float, highest: float) -> bool:
    try:
        return "_" not in text and lowest <= kind(text) <= highest and math.isfinite(kind(text))
    except ValueError:
        return False


def _fail(name: str, line: int, column: str, value: object, expected: str, remedy: str) -> NoReturn:
    if isinstance(value, str) and len(value) > _MAX_SHOWN:
        value = f"{value[:_MAX_SHOWN]}... ({len(value):,} characters)"
    raise InputError.of(
        f"{name}:{line}" + (f", column {column}" if column else ""), value, expected, remedy
    ) from None
