"""Meaning of a table's columns: names, units, and what a row becomes. CSV and Parquet share it.

Columns of other tools are recognized by their names; ``--column`` maps the rest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from otel_straggler.errors import ConfigError, InputError
from otel_straggler.model.observation import (
    NO_KERNEL,
    NO_SEQ,
    NO_STEP,
    Bools,
    Codes,
    Floats,
    Ints,
    Kernel,
    ObservationBatch,
    Section,
    kernel_class_of,
)
from otel_straggler.model.rank import Source
from otel_straggler.otlp.span_rules import SpanNames
from otel_straggler.semconv import DEFAULT_ROLE, KERNEL_CLASSES, SECTION_KINDS, SectionKind

PARALLEL = {
    "dp": "data",
    "pp": "pipeline",
    "vpp": "virtual_pipeline",
    "tp": "tensor",
    "cp": "context",
    "ep": "expert",
}
START, DURATION = "start_ns", "duration_s"
ALIASES: dict[str, tuple[str, ...]] = {
    "run_id": ("run", "job_id", "trial_name"),
    "rank": ("global_rank", "training.rank"),
    "node": ("host", "hostname", "host.name"),
    "role": (),
    "section": ("optype", "op_type", "operation", "op", "name"),
    "kind": (),
    "step": ("iteration", "iter", "global_step", "training.step"),
    "kernel": (),
    "kernel_class": (),
    "dp": ("dp_rank", "data_parallel_rank"),
    "pp": ("pp_rank", "stage", "pipeline_stage", "pipeline_parallel_rank"),
    "vpp": ("vpp_rank",),
    "tp": ("tp_rank", "tensor_parallel_rank"),
    "cp": ("cp_rank", "context_parallel_rank"),
    "ep": ("ep_rank", "expert_parallel_rank"),
    "local_rank": (),
    "microbatch": (),
}
"""Names of columns, and names that other tools give them."""
_UNITS = {"_ns": 1e-9, "_us": 1e-6, "_ms": 1e-3, "_s": 1.0}
TIMES = {
    START: ("start", "start_ts", "start_time", "timestamp"),
    DURATION: ("duration", "elapsed"),
}
"""Names without a unit; ``start_us``, ``duration_ms`` and the like have one."""
SHORTEST_S, LONGEST_S = 1e-12, 1e9
_LARGEST_START_S = 2**62 / 1e9
_MAX_SHOWN = 80

ZERO, NEGATIVE, NO_DURATION, NO_START = (
    "duration_zero", "duration_negative", "duration_unknown", "start_unknown",
)  # fmt: skip
SKIPPED_ROWS = {
    ZERO: "with a duration of zero",
    NEGATIVE: "with a negative duration",
    NO_DURATION: "without a duration",
    NO_START: "without a start",
}
"""Why a row of a table or trace is left out."""

Names = tuple[str, ...]
Note = Callable[[str], None]


class NotARecordingError(InputError):
    """Raised for a file that is none of the formats; in a directory it is skipped."""


class RefusedError(ValueError):
    """An invalid cell: column, value, expectation, remedy."""

    def __init__(self, column: str, value: str, expected: str, remedy: str) -> None:
        super().__init__(column)
        self.cell = (column, value, expected, remedy)


NO_NUL = ("text without a NUL byte", "Is the file broken?")

# --- kinds ---------------------------------------------------------------------------------------

_WORDS: dict[SectionKind, str] = {
    "wait": r"i?send|i?recv|receive|p2p|all[-_ ]?reduce|all[-_ ]?gather|reduce[-_ ]?scatter"
    r"|all[-_ ]?(?:to|2)[-_ ]?all\w*|broadcast|barrier|nccl\w*|rccl\w*|gloo|sync\w*|wait\w*"
    r"|clip[-_ ]\w*[-_ ]?grad\w*|grad\w*[-_ ]norm",  # the norm is one of all ranks
    "data": r"data[-_ ]?load\w*|next[-_ ]?batch",
    "checkpoint": r"(?:save|load)[-_ ]?(?:checkpoint|ckpt)|^checkpoint$",
    "eval": r"^eval\w*$|^validat\w*$",
}
_KIND_WORDS = {
    kind: re.compile(rf"(?<![a-z])(?:{words})(?![a-z])") for kind, words in _WORDS.items()
}


def kind_of_operation(name: str) -> SectionKind:
    """Kind of a section by the words in its name.

    >>> kind_of_operation("forward-compute"), kind_of_operation("grads-reduce-scatter")
    ('compute', 'wait')
    >>> kind_of_operation("optimizer"), kind_of_operation("optimizer-clip-main-grad")
    ('compute', 'wait')
    """
    lower = name.lower()
    return next((kind for kind, words in _KIND_WORDS.items() if words.search(lower)), "compute")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRules:
    """How rows are read that lack a column of ours.

    Attributes:
        run_id: of rows that name no run.
        columns: our column to that of the table, as the user maps them.
        names: kinds by patterns of names; for names without a pattern their words decide.
        skipped: counts rows that were left out, by reason.
    """

    run_id: str = "recording"
    columns: Mapping[str, str] = field(default_factory=dict)
    names: SpanNames = field(default_factory=SpanNames)
    skipped: Counter[str] = field(default_factory=Counter)

    def kind_of(self, name: str) -> SectionKind:
        kind = self.names.kind_of(name)
        return kind_of_operation(name) if kind == "compute" else kind


# --- names of columns ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Columns:
    """Where our columns are in a table.

    Attributes:
        of: our column to its own name.
        units: seconds that 1 of ``start_ns`` and ``duration_s`` means; None: unknown.
    """

    of: dict[str, str]
    units: dict[str, float | None]

    @property
    def has_whole_ns(self) -> bool:
        return self.units.get(START) == 1e-9

    def ignored(self, columns: Sequence[str]) -> list[str]:
        return [column for column in columns if column not in self.of.values()]


def parse_mapping(texts: Iterable[str]) -> dict[str, str]:
    """``NAME=COLUMN`` of the command line.

    Raises:
        ConfigError: a name is none of ours.

    >>> parse_mapping(["section=op", "duration_ms=took"])
    {'section': 'op', 'duration_ms': 'took'}
    """
    result = {}
    for text in texts:
        name, is_pair, column = text.partition("=")
        if not (is_pair and column and (name in ALIASES or _time_of(name))):
            expected = "NAME=COLUMN with one of the names " + ", ".join(
                (*ALIASES, "start_ns, start_us, start_ms, start_s and duration_... alike")
            )
            raise ConfigError.of("--column", text, expected, "For example section=op_name.")
        result[name] = column
    return result


def _time_of(name: str) -> tuple[str, float | None] | None:
    """Which time a column is, and its unit.

    >>> _time_of("duration_ms"), _time_of("start_ts"), _time_of("duration_h")
    (('duration_s', 0.001), ('start_ns', None), None)
    """
    for ours, plain in TIMES.items():
        if name in plain:
            return ours, None
        for suffix, unit in _UNITS.items():
            if name.endswith(suffix) and name.removesuffix(suffix) in plain:
                return ours, unit
    return None


def find_columns(columns: Sequence[str], rules: TableRules, where: str) -> Columns:
    """Our columns among those of a table: mapped ones, then by our names, then by others'.

    Raises:
        ConfigError: a mapped column is not there.
        NotARecordingError: the table has no rank, no duration, or neither step nor start.
    """
    result = Columns({}, {})
    for name, column in rules.columns.items():
        if column not in columns:
            expected = f"one of the columns of {where.removesuffix(':1')}: {', '.join(columns)}"
            raise ConfigError.of(f"--column {name}", column, expected, "Correct the name.")
        ours, unit = _time_of(name) or (name, None)
        _add(result, ours, column, unit)
    for name, others in ALIASES.items():
        for candidate in (name, *others):
            if candidate in columns and name not in result.of:
                _add(result, name, candidate, None)
    times = [(column, time) for column in columns if (time := _time_of(column.lower()))]
    for column, (ours, unit) in sorted(times, key=lambda item: item[0] not in TIMES):
        if ours not in result.of:
            _add(result, ours, column, unit)
    _require(result, columns, where)
    return result


def _add(result: Columns, ours: str, column: str, unit: float | None) -> None:
    result.of[ours] = column
    if ours in TIMES:
        result.units[ours] = unit


def _require(result: Columns, columns: Sequence[str], where: str) -> None:
    shown = ",".join(columns)
    shown = shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."
    unit = ", or duration_ms and the like by its unit"
    for name, more in (("rank", ""), (DURATION, unit)):
        if name not in result.of:
            raise NotARecordingError.of(
                where, shown, f"a header with a column {name!r}",
                f"If it has another name: --column {name}=ITS_NAME{more}.",
            )  # fmt: skip
    if "step" not in result.of and START not in result.of:
        raise NotARecordingError.of(
            where, shown, "a header with a column 'step' or 'start_ns'",
            "Without either, nobody knows which rows belong together. If it has another name: "
            "--column step=ITS_NAME.",
        )  # fmt: skip


def notes_on(columns: Columns, all_columns: Sequence[str], kept: str) -> Iterable[str]:
    """What is assumed and ignored."""
    if "section" not in columns.of:
        yield f"{kept}: no column names a section: every row is one of 'step'"
    if ignored := columns.ignored(all_columns):
        names = ", ".join(ignored)
        yield f"{kept}: columns that mean nothing here are ignored: {names}"


# --- cells ---------------------------------------------------------------------------------------


class CodeTable(dict[Names, int]):
    """Texts to codes. A new text is read once and gets the next code."""

    def __init__(self, columns: Iterable[str], read: Callable[[Names], object]) -> None:
        super().__init__()
        self.columns = tuple(columns)
        self._read = read
        self.table: list[object] = []

    def __missing__(self, texts: Names) -> int:
        for column, text in zip(self.columns, texts, strict=True):
            if "\0" in text:
                raise RefusedError(column, text, *NO_NUL)
        meaning = self._read(texts)
        if meaning is None:
            self[texts] = NO_KERNEL
        else:
            self[texts] = len(self.table)
            self.table.append(meaning)
        return self[texts]


class Meanings:
    """Sources, sections and kernels of a table by the texts of its cells; our names of columns."""

    def __init__(self, columns: Iterable[str], rules: TableRules) -> None:
        present = set(columns)
        identity = ("run_id", "rank", "node", "role", *PARALLEL, "local_rank")
        self.sources = CodeTable([c for c in identity if c in present], self._source)
        self.sections = CodeTable([c for c in ("section", "kind") if c in present], self._section)
        kernels = ("kernel", "kernel_class") if "kernel" in present else ()
        self.kernels = CodeTable([c for c in kernels if c in present], _kernel)
        self._rules = rules

    def _source(self, texts: Names) -> Source:
        cells = dict(zip(self.sources.columns, texts, strict=True))
        if not cells.get("run_id", self._rules.run_id):
            raise RefusedError("run_id", "", "a name", "Give every row the id of its run.")
        dimensions = [(PARALLEL[c], c) for c in PARALLEL if cells.get(c)]
        local_rank = cells.get("local_rank", "")
        return Source(
            run_id=cells.get("run_id", self._rules.run_id),
            rank=whole_number("rank", cells["rank"]),
            node=cells.get("node", ""),
            role=cells.get("role") or DEFAULT_ROLE,
            local_rank=whole_number("local_rank", local_rank) if local_rank else -1,
            parallel=tuple((name, whole_number(c, cells[c])) for name, c in dimensions),
        )

    def _section(self, texts: Names) -> Section:
        cells = dict(zip(self.sections.columns, texts, strict=True))
        name = cells.get("section", "step")
        if not name:
            raise RefusedError("section", "", "a name", "Every row belongs to a section.")
        kind = cells.get("kind")
        if kind is None:
            return Section(name, self._rules.kind_of(name))
        for known in SECTION_KINDS:
            if kind == known:
                return Section(name, known)
        expected = "one of " + ", ".join(SECTION_KINDS)
        raise RefusedError("kind", kind, expected, "Correct the kind.")


def _kernel(texts: Names) -> Kernel | None:
    name, kernel_class, *_ = (*texts, "", "")
    if not name:
        return None
    if not kernel_class:
        return Kernel(name, kernel_class_of(name))
    for known in KERNEL_CLASSES:
        if kernel_class == known:
            return Kernel(name, known)
    expected = "one of " + ", ".join(KERNEL_CLASSES)
    raise RefusedError("kernel_class", kernel_class, expected, "Leave it empty to go by the name.")


def whole_number(column: str, text: str, at_least: int = 0) -> int:
    digits = text.strip()
    if digits.isascii() and digits.isdigit() and len(digits) <= 10:
        number = int(digits)
        if at_least <= number < 2**31:
            return number
    remedy = "Remove the fraction." if "." in text else "Correct the cell."
    raise RefusedError(column, text, f"a whole number of at least {at_least}", remedy)


# --- rows ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRows:
    """Columns as they are in a table; times in its own units.

    Attributes:
        start: (n,) whole nanoseconds, or numbers of another unit; None: there is none.
    """

    source: Codes
    section: Codes
    kernel: Codes
    step: Ints
    start: Ints | Floats | None
    duration: Floats
    runs: Codes


def build_batch(
    rows: RawRows, meanings: Meanings, columns: Columns, rules: TableRules, note: Note
) -> ObservationBatch:
    """Rows with a length, with times in our units; the others are counted."""
    unit = columns.units.get(START) or _unit_of(rows.start)
    if unclear := [columns.of[name] for name in TIMES if columns.units.get(name, 0.0) is None]:
        name = next(suffix for suffix, seconds in _UNITS.items() if seconds == unit)[1:]
        note(
            f"{' and '.join(unclear)} read as {name}: no unit in the name "
            f"(--column duration_ms={columns.of[DURATION]} would set one)"
        )
    duration_s = rows.duration * (columns.units[DURATION] or unit)
    is_kept = _kept(duration_s, rows.start, rules.skipped)
    step, source, duration_s = rows.step[is_kept], rows.source[is_kept], duration_s[is_kept]
    start = None if rows.start is None else rows.start[is_kept]
    start_ns = None if start is None else _to_ns(start, unit)
    is_ours = columns.of.get(START) == START
    if start_ns is None or (not is_ours and _begins_again(step, start_ns, duration_s)):
        if start_ns is not None:
            note("all steps begin at the same time: they are laid end to end")
        start_ns = lay_out(step, source, start_ns, duration_s)
    runs = rows.runs[is_kept]
    return ObservationBatch(
        sources=tuple(meanings.sources.table),  # type: ignore[arg-type]
        sections=tuple(meanings.sections.table),  # type: ignore[arg-type]
        kernels=tuple(meanings.kernels.table),  # type: ignore[arg-type]
        source=source,
        section=rows.section[is_kept],
        kernel=rows.kernel[is_kept],
        step=step,
        start_ns=start_ns,
        duration_s=duration_s,
        seq=np.full(len(step), NO_SEQ, np.int64),
        runs=runs if (runs > 1).any() else None,
    )


def _unit_of(start: Ints | Floats | None) -> float:
    """Unit of starts without one: dates are large numbers in all units but seconds."""
    largest = 0.0 if start is None else float(np.nanmax(start, initial=0.0))
    dates = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3))
    return next((unit for limit, unit in dates if largest >= limit), 1.0)


def _kept(duration_s: Floats, start: Ints | Floats | None, skipped: Counter[str]) -> Bools:
    unknown = np.isnan(duration_s)
    negative = duration_s < 0.0
    zero = (np.abs(duration_s) < SHORTEST_S) & ~negative
    no_start = np.zeros(len(duration_s), np.bool_) if start is None else np.isnan(start)
    no_start &= ~(unknown | negative | zero)
    reasons = {ZERO: zero, NEGATIVE: negative, NO_DURATION: unknown, NO_START: no_start}
    skipped.update({name: n for name, rows in reasons.items() if (n := int(rows.sum()))})
    kept: Bools = ~(unknown | negative | zero | no_start)
    return kept


def _to_ns(start: Ints | Floats, unit: float) -> Ints:
    if np.issubdtype(start.dtype, np.integer) and unit == 1e-9:
        return start.astype(np.int64)
    seconds = start * unit
    is_far = np.abs(seconds) > _LARGEST_START_S
    if is_far.any():
        value = float(start[np.argmax(is_far)])
        raise RefusedError(START, f"{value:g}", "a time within 146 years", "Is the unit right?")
    result: Ints = np.rint(seconds * 1e9).astype(np.int64)
    return result


def _begins_again(step: Ints, start_ns: Ints, duration_s: Floats) -> bool:
    """Whether clocks are set back in every step."""
    steps, row = np.unique(step, return_inverse=True)
    if len(steps) < 2 or steps[0] == NO_STEP:
        return False
    begin, end = _extent(row, len(steps), start_ns / 1e9, duration_s)
    usual = float(np.median(end - begin))
    return float(begin.max() - begin.min()) < 0.5 * usual * (len(steps) - 1)


def _extent(row: Ints, n: int, start_s: Floats, duration_s: Floats) -> tuple[Floats, Floats]:
    begin, end = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(begin, row, start_s)
    np.maximum.at(end, row, start_s + duration_s)
    return begin, end


def lay_out(step: Ints, source: Codes, start_ns: Ints | None, duration_s: Floats) -> Ints:
    """Starts with one step after the other; without any, the rows of a rank follow each other.

    >>> lay_out(np.array([0, 0, 1]), np.array([0, 0, 0]), None, np.array([1.0, 2.0, 1.0])).tolist()
    [0, 1000000000, 3000000000]
    """
    if start_ns is None:
        order = np.lexsort((np.arange(len(step)), source, step))
        ends = np.cumsum(duration_s[order])
        begins = ends - duration_s[order]
        change = (np.diff(step[order]) != 0) | (np.diff(source[order]) != 0)
        first = np.concatenate([[True], change])[: len(step)]
        base = np.maximum.accumulate(np.where(first, begins, 0.0))
        start_s = np.empty(len(step))
        start_s[order] = begins - base
    else:
        start_s = start_ns / 1e9
    steps, row = np.unique(step, return_inverse=True)
    begin, end = _extent(row, len(steps), start_s, duration_s)
    shift = np.concatenate([[0.0], np.cumsum(end - begin)])[: len(steps)] - begin
    result: Ints = np.rint((start_s + shift[row]) * 1e9).astype(np.int64)
    return result
