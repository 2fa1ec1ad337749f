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
    NO_KERNEL,
    NO_SEQ,
    NO_STEP,
    Codes,
    Floats,
    Ints,
    Kernel,
    ObservationBatch,
    Section,
    kernel_class_of,
)
from otel_straggler.model.rank import Source
from otel_straggler.semconv import DEFAULT_ROLE, KERNEL_CLASSES, SECTION_KINDS

if TYPE_CHECKING:
    from _csv import Reader

REQUIRED = ("run_id", "rank", "node", "role", "section", "kind", "step", "start_ns", "duration_s")
PARALLEL = {
    "dp": "data",
    "pp": "pipeline",
    "vpp": "virtual_pipeline",
    "tp": "tensor",
    "cp": "context",
    "ep": "expert",
}
OPTIONAL = ("kernel", "kernel_class", *PARALLEL, "local_rank", "microbatch")
ROWS_AT_ONCE = 16_384
LARGEST_INTEGER = 2**62
SHORTEST_S, LONGEST_S = 1e-12, 1e9
_A_DURATION = "seconds above 0, finite, 1e-12 to 1e9"
_MAX_SHOWN = 80
_NO_NUL = ("text without a NUL byte", "Is the file broken?")

Names = tuple[str, ...]
Note = Callable[[str], None]


class _RefusedError(ValueError):
    """An invalid cell: column, value, expectation, remedy."""

    def __init__(self, column: str, value: str, expected: str, remedy: str) -> None:
        super().__init__(column)
        self.cell = (column, value, expected, remedy)


def read_csv(lines: Iterable[bytes], name: str, note: Note = lambda _: None) -> ObservationBatch:
    """All rows of a CSV file, in the order of the file.

    Args:
        lines: the first is the header.
        name: of the file, for messages.
        note: called with what was ignored.

    Raises:
        InputError: with line, column, value, expectation and remedy.

    Cost: about 3 us a row in time; 48 bytes a row stay.
    """
    rest = iter(lines)
    first = next(rest, b"").removeprefix(BOM_UTF8)
    reader = csv.reader(map(bytes.decode, chain([first], rest)), strict=True)
    try:
        return _read(reader, name, note)
    except UnicodeDecodeError as error:
        _fail(
            name, reader.line_num + 1, "", error.object[error.start : error.start + 8],
            "text in UTF-8", "Convert the file, for example with iconv.",
        )  # fmt: skip
    except csv.Error as error:
        if "NUL" in str(error):  # Python 3.10 reads no line with one
            _fail(name, reader.line_num, "", "a NUL byte", *_NO_NUL)
        _fail(
            name, reader.line_num, "", str(error), "a line of CSV",
            "Quote cells with commas, quotes or line breaks as RFC 4180 says.",
        )  # fmt: skip


def _read(reader: Reader, name: str, note: Note) -> ObservationBatch:
    columns = _header(next(reader, []), name, note)
    table = _Table(columns)
    line = reader.line_num + 1
    while rows := list(islice(reader, ROWS_AT_ONCE)):
        try:
            table.add([row for row in rows if row] if [] in rows else rows)
        except ValueError:
            _find_the_bad_row(rows, columns, name, line)
        line = reader.line_num + 1
    batch = table.build()
    if len(batch) == 0:
        _fail(name, line, "", "nothing", "rows below the header", "There is no data to score.")
    return batch


def _header(cells: list[str], name: str, note: Note) -> list[str]:
    columns = [cell.strip() for cell in cells]
    for column in REQUIRED:
        if column not in columns:
            _fail(
                name, 1, "", ",".join(columns), f"a header with a column {column!r}",
                f"Required columns: {','.join(REQUIRED)}.",
            )  # fmt: skip
    for column in columns:
        if column in (*REQUIRED, *OPTIONAL) and columns.count(column) > 1:
            _fail(
                name, 1, column, f"{columns.count(column)} columns of this name", "one",
                "Remove or rename the others.",
            )  # fmt: skip
    unknown = [c for c in columns if c not in REQUIRED and c not in OPTIONAL]
    if unknown:
        note(f"{name}: columns that mean nothing here are ignored: {', '.join(unknown)}")
    return columns


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


class _Codes(dict[Names, int]):
    """Texts to codes. A new text is read once and gets the next code."""

    def __init__(self, columns: Iterable[str], read: Callable[[Names], object]) -> None:
        super().__init__()
        self._columns = tuple(columns)
        self._read = read
        self.table: list[object] = []

    def __missing__(self, texts: Names) -> int:
        for column, text in zip(self._columns, texts, strict=True):
            if "\0" in text:
                raise _RefusedError(column, text, *_NO_NUL)
        meaning = self._read(texts)
        if meaning is None:
            self[texts] = NO_KERNEL
        else:
            self[texts] = len(self.table)
            self.table.append(meaning)
        return self[texts]


class _Table:
    """Columns that grow by chunks of rows."""

    def __init__(self, columns: list[str]) -> None:
        self._columns = columns
        optional = [c for c in (*PARALLEL, "local_rank") if c in columns]
        self._identity = ["run_id", "rank", "node", "role", *optional]
        self._sources = _Codes(self._identity, self._source)
        self._sections = _Codes(("section", "kind"), _section)
        self._kernels = _Codes(("kernel", "kernel_class"), _kernel)
        self._microbatches = {"": 1}
        self._parts: list[tuple[object, ...]] = []

    def add(self, rows: list[list[str]]) -> None:
        """Raises ValueError for an invalid row."""
        if not rows:
            return
        cells = dict(zip(self._columns, zip(*rows, strict=True), strict=True))
        identity = zip(*(cells[c] for c in self._identity), strict=True)
        source = np.array([self._sources[texts] for texts in identity], np.int32)
        section = np.array(
            [self._sections[texts] for texts in zip(cells["section"], cells["kind"], strict=True)],
            np.int32,
        )
        self._parts.append(
            (
                source,
                section,
                self._kernel_codes(cells, len(rows)),
                _steps(cells["step"]),
                _integers(cells["start_ns"]),
                _durations(cells["duration_s"]),
                self._runs(cells.get("microbatch", ("",) * len(rows))),
            )
        )

    def build(self) -> ObservationBatch:
        types = (np.int32, np.int32, np.int32, np.int64, np.int64, np.float64, np.int32)
        parts = zip(*self._parts, strict=True) if self._parts else [()] * len(types)
        source, section, kernel, step, start_ns, duration_s, runs = (
            np.concatenate([np.empty(0, kind), *part])
            for kind, part in zip(types, parts, strict=True)
        )
        return ObservationBatch(
            sources=tuple(self._sources.table),  # type: ignore[arg-type]
            sections=tuple(self._sections.table),  # type: ignore[arg-type]
            kernels=tuple(self._kernels.table),  # type: ignore[arg-type]
            source=source,
            section=section,
            kernel=kernel,
            step=step,
            start_ns=start_ns,
            duration_s=duration_s,
            seq=np.full(len(step), NO_SEQ, np.int64),
            runs=runs if (runs > 1).any() else None,
        )

    def _kernel_codes(self, cells: dict[str, Names], count: int) -> Codes:
        names = cells.get("kernel")
        if names is None:
            return np.full(count, NO_KERNEL, np.int32)
        classes = cells.get("kernel_class", ("",) * count)
        codes = [self._kernels[texts] for texts in zip(names, classes, strict=True)]
        return np.array(codes, np.int32)

    def _runs(self, microbatches: Names) -> Codes:
        """Executions that each row stands for; a cell may be empty."""
        known = self._microbatches
        for text in set(microbatches) - known.keys():
            known[text] = _whole_number("microbatch", text, at_least=1)
        if len(known) == 1:
            return np.ones(len(microbatches), np.int32)
        return np.array([known[text] for text in microbatches], np.int32)

    def _source(self, texts: Names) -> Source:
        cells = dict(zip(self._identity, texts, strict=True))
        if not cells["run_id"]:
            raise _RefusedError("run_id", "", "a name", "Give every row the id of its run.")
        dimensions = [(PARALLEL[c], c) for c in PARALLEL if cells.get(c)]
        local_rank = cells.get("local_rank", "")
        return Source(
            run_id=cells["run_id"],
            rank=_whole_number("rank", cells["rank"]),
            node=cells["node"],
            role=cells["role"] or DEFAULT_ROLE,
            local_rank=_whole_number("local_rank", local_rank) if local_rank else -1,
            parallel=tuple((name, _whole_number(c, cells[c])) for name, c in dimensions),
        )


def _section(texts: Names) -> Section:
    name, kind = texts
    if not name:
        raise _RefusedError("section", "", "a name", "Every row belongs to a section.")
    if kind not in SECTION_KINDS:
        raise _RefusedError("kind", kind, "one of " + ", ".join(SECTION_KINDS), "Correct the kind.")
    return Section(name, kind)


def _kernel(texts: Names) -> Kernel | None:
    name, kernel_class = texts
    if not name:
        return None
    if not kernel_class:
        return Kernel(name, kernel_class_of(name))
    for known in KERNEL_CLASSES:
        if kernel_class == known:
            return Kernel(name, known)
    expected = "one of " + ", ".join(KERNEL_CLASSES)
    raise _RefusedError("kernel_class", kernel_class, expected, "Leave it empty to go by the name.")


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
    durations = np.array(list(map(float, cells)), np.float64)
    is_right = (durations >= SHORTEST_S) & (durations <= LONGEST_S)  # NaN is neither
    if not is_right.all() or _has_bar(cells):
        raise ValueError
    return durations


def _whole_number(column: str, text: str, at_least: int = 0) -> int:
    digits = text.strip()
    if digits.isascii() and digits.isdigit() and len(digits) <= 10:
        number = int(digits)
        if at_least <= number < 2**31:
            return number
    remedy = "Remove the fraction." if "." in text else "Correct the cell."
    raise _RefusedError(column, text, f"a whole number of at least {at_least}", remedy)


def _find_the_bad_row(rows: list[list[str]], columns: list[str], name: str, line: int) -> NoReturn:
    """Raise an error that names the rejected row of the chunk, and why."""
    table = _Table(columns)
    for row in rows:
        if row and len(row) != len(columns):
            _fail(
                name, line, "", f"{len(row)} cells", f"{len(columns)}, as in the header",
                "Is a comma missing, or one too many?",
            )  # fmt: skip
        if row:
            try:
                table.add([row])
            except _RefusedError as refused:
                _fail(name, line, *refused.cell)
            except ValueError:
                _fail(name, line, *_bad_number(dict(zip(columns, row, strict=True))))
        line += 1 + sum(cell.count("\n") for cell in row)
    msg = f"{name}: a chunk was refused, but none of its rows"
    raise AssertionError(msg)


def _bad_number(cells: dict[str, str]) -> tuple[str, str, str, str]:
    """Column, value, expectation and remedy of the first invalid number."""
    step, start = cells["step"], cells["start_ns"]
    if step and not _is(step, int, 0, LARGEST_INTEGER):
        return "step", step, "a whole number of at least 0, or nothing", "Correct the cell."
    if not _is(start, int, 0, LARGEST_INTEGER):
        remedy = "Write nanoseconds since 1970, without a fraction or an exponent."
        return "start_ns", start, f"a whole number from 0 to {LARGEST_INTEGER}", remedy
    remedy = "Was it measured with a monotonic clock, and in seconds?"
    return "duration_s", cells["duration_s"], _A_DURATION, remedy


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
