"""A recorded run from files or a pipe: CSV, Parquet, OTLP-JSON, OTLP protobuf or traces of
torch.profiler, gzipped or not.

The content decides, never the name. OTLP is read as the OpenTelemetry Collector's file exporter
writes it: one JSON request a line, or protobuf requests preceded by their length; a single request,
pretty-printed or bare, is read too.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import stat
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import BinaryIO, Literal, NoReturn, cast

import numpy as np

from otel_straggler.errors import InputError
from otel_straggler.model.kernels import KernelTimes
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.model.observation import (
    NO_STEP,
    Ints,
    ObservationBatch,
    merge_batches,
    overlapping_sessions,
)
from otel_straggler.model.operator_tables import NOT_TRACES
from otel_straggler.model.rank import Source
from otel_straggler.otlp.identity import NO_RANK
from otel_straggler.recordings.columns import (
    SKIPPED_ROWS,
    NotARecordingError,
    Note,
    TableRules,
)
from otel_straggler.recordings.csv import read_csv, split_csv_clashes
from otel_straggler.recordings.kineto import read_kineto
from otel_straggler.recordings.otlp import BOM, Decoders, OtlpBuilder, read_json, read_proto
from otel_straggler.recordings.parquet import MAX_ROWS, read_parquet

Format = Literal["csv", "parquet", "otlp-json", "otlp-proto", "kineto"]
FORMATS: tuple[Format, ...] = ("csv", "parquet", "otlp-json", "otlp-proto", "kineto")

MAX_PLAIN_BYTES = 2**31
"""Of a file after decompression, and of one that is read as a whole."""
MAX_FILES = 100_000


STDIN = "<stdin>"
SNIFFED_BYTES = 4_096

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_NEVER_IN_TEXT = frozenset((*range(9), *range(14, 27), *range(28, 32)))
_PARQUET = b"PAR1"
_TRACE_MARKS = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"', b'"distributedInfo"')
_OTHERS = {
    _ZSTD: ("a file compressed by zstd", "Unpack it first: zstd -d."),
    b"BZh": ("a file compressed by bzip2", "Unpack it first: bunzip2."),
    b"\xfd7zXZ": ("a file compressed by xz", "Unpack it first: unxz."),
    b"PK\x03\x04": ("a zip archive", "Unpack it first, and name the folder with the files."),
    b"SQLite format 3\0": (
        "an SQLite database",
        "For a collector's history, use: otel-straggler report --history FILE.",
    ),
}
_ANY_FORMAT = "CSV, Parquet, OTLP-JSON, OTLP protobuf or a trace of torch.profiler"
_ENDINGS = frozenset({".gz", ".csv", ".json", ".jsonl", ".parquet", ".pb", ".pt", ".trace"})
_MAX_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Content of a file.

    Attributes:
        batch: rows in the order of the file.
        form: of the first file.
        not_scored: spans and rows left out, by reason.
        skipped: requests with logs other than events of launchers, or with metrics other than
            histograms of sections and kernels.
        kernels: histograms of kernels, in the order of the file.
        clashes: sessions that claim a rank that another one has.
        launches: events of launchers, in the order of the file.
    """

    batch: ObservationBatch
    form: Format
    not_scored: dict[str, int] = field(default_factory=dict)
    skipped: int = 0
    kernels: tuple[KernelTimes, ...] = ()
    clashes: tuple[Source, ...] = ()
    launches: tuple[LaunchEvent, ...] = ()


def input_files(path: str, note: Note = lambda _: None) -> list[str]:
    """The file, or all files of a directory; never what is no regular file, such as a link,
    nor deeper folders, nor what a profile writes next to its trace.

    Raises:
        InputError: the directory cannot be read, or there is no file in it.
    """
    if path == "-" or not is_directory(path):
        return [path]
    try:
        entries = sorted(Path(path).iterdir())
    except OSError as error:
        _fail(path, str(error.strerror), "a directory that can be read", "May you read it?")
    visible = [
        entry
        for entry in entries
        if not entry.name.startswith(".") and not entry.name.endswith(NOT_TRACES)
    ]
    kinds = {entry: _kind_of(entry, follow=False) for entry in visible}
    files = [str(entry) for entry, kind in kinds.items() if stat.S_ISREG(kind)]
    folders = [entry.name for entry, kind in kinds.items() if stat.S_ISDIR(kind)]
    if not files:
        remedy = (
            f"Name one of its folders: {_listed(folders)}." if folders else "Is it the right one?"
        )
        _fail(path, "a directory without files", "recordings of one run", remedy)
    if len(files) > MAX_FILES:
        _fail(path, f"{len(files):,} files", f"at most {MAX_FILES:,}", "Is it the right one?")
    if folders:
        note(f"{path}: folders in it are not read: {_listed(folders)}")
    if others := [e.name for e, kind in kinds.items() if not _is_plain(kind)]:
        note(f"{path}: left out, no regular files: {_listed(others)}")
    return files


def _is_plain(kind: int) -> bool:
    return stat.S_ISREG(kind) or stat.S_ISDIR(kind)


def is_directory(path: str) -> bool:
    """Whether it is one; what cannot be reached is none."""
    return stat.S_ISDIR(_kind_of(Path(path)))


def _kind_of(path: Path, *, follow: bool = True) -> int:
    """Mode of what a path leads to; 0 if that is unknown, as of a link to nothing."""
    try:
        return path.stat(follow_symlinks=follow).st_mode
    except OSError:
        return 0


def open_input(path: str) -> BinaryIO:
    """Open a file or pipe, or standard input for ``-``.

    Raises:
        InputError: it cannot be read.
    """
    if path == "-":
        return sys.stdin.buffer
    try:
        kind = Path(path).stat().st_mode
        if stat.S_ISDIR(kind):
            _fail(path, "a directory", "a file", "Name one file in it.")
        if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
            _fail(path, "a device or socket", "a file or a pipe", "For standard input, give -.")
        return Path(path).open("rb")
    except OSError as error:
        _fail(path, str(error.strerror), "a file that can be read", "Is the path right?")


def run_name(path: str) -> str:
    """Name of a run whose files do not name it.

    >>> run_name("/data/trace-AR.parquet"), run_name("<stdin>")
    ('trace-AR', 'recording')
    """
    name = PurePath("" if path.startswith(("/dev/", "/proc/")) else path)
    while name.suffix in _ENDINGS:
        name = name.with_suffix("")
    return name.name if path != STDIN and name.name else "recording"


class RecordingReader:
    """Reads the files of a recording one by one."""

    def __init__(
        self,
        where: str,
        *,
        is_directory: bool = False,
        form: Format | None = None,
        note: Note = lambda _: None,
        decoders: Decoders | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            where: file or directory, for messages; its name is that of a run without one.
            is_directory: files that are no recordings are skipped.
            form: required format; None: by the content.
            note: called with what was ignored.
            decoders: meaning of attributes and span names in OTLP.
            columns: our column to that of a table, where it has another name.
        """
        decoders = decoders or Decoders()
        self._where = where
        self._is_directory = is_directory
        self._form = form
        self._note = note
        self._builder = OtlpBuilder(decoders)
        name = run_name(str(Path(where).absolute()) if is_directory else where)
        self._rules = TableRules(run_id=name, columns=columns or {}, names=decoders.names)
        self._tables: list[ObservationBatch] = []
        self._steps: dict[tuple[int, str], list[tuple[str, Ints]]] = {}
        self._forms: Counter[Format] = Counter()
        self._strangers: list[tuple[str, NotARecordingError]] = []

    def read(self, file: BinaryIO, name: str) -> None:
        """Read all of ``file``.

        Raises:
            InputError: the content is wrong.
            UnavailableError: what reads this format is not installed.
        """
        try:
            with unzipped(file, name) as plain:
                form = self._format_of(plain, name)
                if form in ("otlp-json", "otlp-proto"):
                    (read_json if form == "otlp-json" else read_proto)(plain, name, self._builder)
                else:
                    rows = self._rows_of(form, plain, name)
                    if self._is_directory:
                        self._check_steps(rows, name)
                    self._add_rows(rows, name)
                self._forms[form] += 1
        except NotARecordingError as error:
            if not self._is_directory:
                raise
            self._strangers.append((PurePath(name).name, error))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            _fail(name, str(error), "a complete gzip file", "Was the download or copy cut off?")
        except OSError as error:
            value = str(error.strerror or error)
            _fail(name, value, "a file that can be read", "Is the disk well?")

    def recording(self) -> Recording:
        """All that was read.

        Raises:
            InputError: nothing of it can be scored.
        """
        if self._strangers:
            if not self._forms:
                raise self._strangers[0][1]
            names = _listed([name for name, _ in self._strangers])
            self._note(f"{self._where}: left out, no recordings: {names}")
        spans = self._builder.batch()
        rows, clashes = split_csv_clashes(merge_batches(self._tables))
        recording = Recording(
            batch=merge_batches([each for each in (spans, rows) if len(each)]),
            form=next(iter(self._forms)),
            not_scored={**self._builder.not_scored, **self._rules.skipped},
            skipped=self._builder.skipped,
            kernels=self._builder.kernels,
            clashes=(*overlapping_sessions(spans), *clashes),
            launches=tuple(self._builder.launches),
        )
        if len(recording.batch) == 0:
            expected = "rows with a length" if self._rules.skipped else "spans of ranks"
            remedy = _remedy_for_nothing(recording)
            _fail(self._where, _nothing(recording), expected, remedy)
        return recording

    def _format_of(self, plain: io.BufferedReader, name: str) -> Format:
        result = sniff(plain.peek(SNIFFED_BYTES)[:SNIFFED_BYTES], name)
        if self._form not in (None, result):
            value = f"content that looks like {result}"
            expected = f"{self._form}, as --format says"
            raise NotARecordingError.of(name, value, expected, f"Use --format {result}.")
        return result

    def _rows_of(self, form: Format, plain: io.BufferedReader, name: str) -> ObservationBatch:
        if form == "csv":
            return read_csv(plain, name, self._note, self._rules)
        if form == "parquet":
            content = plain if _is_plain_file(plain) else io.BytesIO(_whole(plain, name))
            return read_parquet(content, name, self._note, self._rules, MAX_PLAIN_BYTES)
        try:
            text = _whole(plain, name).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            _fail(name, error.object[error.start :][:8], "text in UTF-8", "Is it a trace?")
        return read_kineto(text, name, self._note, self._rules)

    def _add_rows(self, batch: ObservationBatch, name: str) -> None:
        self._tables.append(batch)
        if (rows := sum(map(len, self._tables))) > MAX_ROWS:
            _fail(name, f"{rows:,} rows so far", f"at most {MAX_ROWS:,}", "Score it in parts.")

    def _check_steps(self, batch: ObservationBatch, name: str) -> None:
        """Of files that name no run, each must hold other ranks, steps or sections."""
        for source, section, steps in _steps_of(batch, self._rules.run_id):
            known = self._steps.setdefault((source, section), [])
            for other, others in known:
                if len(again := np.intersect1d(steps, others)):
                    _fail(
                        name, f"step {again[0]} of rank {source}, which {other} has as well",
                        "files of one run", "Put the files of each run into a folder of its own.",
                    )  # fmt: skip
            known.append((name, steps))


def _steps_of(batch: ObservationBatch, run_id: str) -> Iterator[tuple[int, str, Ints]]:
    """Rank, section and steps of what belongs to a run."""
    ranks = [source.rank if source.run_id == run_id else -1 for source in batch.sources]
    rank = np.array(ranks, np.int64)[batch.source]
    has_step = (batch.step != NO_STEP) & (rank >= 0)
    if not has_step.any():
        return
    cells = (rank * len(batch.sections) + batch.section)[has_step]
    order = np.lexsort((batch.step[has_step], cells))
    cells, steps = cells[order], batch.step[has_step][order]
    names, first = np.unique(cells, return_index=True)
    for cell, its_own in zip(names.tolist(), np.split(steps, first[1:]), strict=True):
        source, section = divmod(cell, len(batch.sections))
        yield source, batch.sections[section].name, np.unique(its_own)


def _is_plain_file(plain: io.BufferedReader) -> bool:
    raw = plain.raw
    return not isinstance(raw, _Bounded) and raw.seekable()


def _whole(plain: io.BufferedReader, name: str) -> bytes:
    content = plain.read(MAX_PLAIN_BYTES + 1)
    if len(content) > MAX_PLAIN_BYTES:
        _fail_too_large(name, "Score it in parts: fewer steps in a file.")
    return content


class _Bounded(io.RawIOBase):
    """Decompressed content up to a limit."""

    def __init__(self, file: gzip.GzipFile, name: str) -> None:
        self._file = file
        self._name = name
        self._left = MAX_PLAIN_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = self._file.readinto(buffer)
        self._left -= count
        if self._left < 0:
            _fail_too_large(self._name, "If it is not damaged, unpack it first: gunzip.")
        return count


def _fail_too_large(name: str, remedy: str) -> NoReturn:
    limit = f"at most {MAX_PLAIN_BYTES >> 20:,} MiB"
    _fail(name, "more content than is read at once", limit, remedy)


def read_recording(
    file: BinaryIO,
    name: str,
    form: Format | None = None,
    note: Note = lambda _: None,
    decoders: Decoders | None = None,
) -> Recording:
    """Read all of one file; arguments and errors of :class:`RecordingReader`."""
    reader = RecordingReader(name, form=form, note=note, decoders=decoders)
    reader.read(file, name)
    return reader.recording()


@contextlib.contextmanager
def unzipped(file: BinaryIO, name: str) -> Iterator[io.BufferedReader]:
    """The plain content of ``file``, which stays open.

    Raises:
        NotARecordingError: it is empty, or packed in another way than by gzip.
    """
    packed: io.BufferedReader = io.BufferedReader(cast("io.RawIOBase", file))
    try:
        start = packed.peek(16)[:16]
        if not start:
            _fail_as_none(name, "an empty file", "There is no data.")
        for mark, (what, remedy) in _OTHERS.items():
            if start.startswith(mark):
                _fail_as_none(name, what, remedy)
        if start[:2] != _GZIP:
            yield packed
            return
        raw = _Bounded(gzip.GzipFile(fileobj=packed), name)
        with cast("io.BufferedReader", io.BufferedReader(raw, 128 * 1024)) as plain:
            if not plain.peek(1):
                _fail_as_none(name, "gzip of nothing", "It is empty.")
            if plain.peek(2)[:2] == _GZIP:
                _fail(name, "gzip within gzip", "one layer of it", "Unpack it first: gunzip.")
            yield plain
    finally:
        packed.detach()


def sniff(start: bytes, name: str) -> Format:
    """The format of a file by its first bytes."""
    text = start.removeprefix(BOM).lstrip()
    if start.startswith(_PARQUET):
        return "parquet"
    if text[:1] in (b"{", b"["):
        is_list = text[:1] == b"[" and b'"ph"' in text
        is_trace = is_list or any(mark in text for mark in _TRACE_MARKS)
        return "kineto" if is_trace and b'"resourceSpans"' not in text else "otlp-json"
    is_text_so_far = start[:1] >= b" "  # a length before a message, or the tag of a field, is not
    if not is_text_so_far and not _NEVER_IN_TEXT.isdisjoint(start):
        return "otlp-proto"
    if not text:
        _fail_as_none(name, "only blanks", "There is no data.")
    return "csv"


def _fail_as_none(name: str, value: str, remedy: str) -> NoReturn:
    raise NotARecordingError.of(name, value, _ANY_FORMAT, remedy)


def _nothing(recording: Recording) -> str:
    result = [
        f"{n:,} row{'' if n == 1 else 's'} {SKIPPED_ROWS[reason]}"
        if reason in SKIPPED_ROWS
        else f"{n} spans not scored ({reason})"
        for reason, n in recording.not_scored.items()
    ]
    if recording.skipped:
        result.append(f"{recording.skipped} requests of metrics or logs")
    return "no data: " + (", ".join(result) or "no spans")


def _remedy_for_nothing(recording: Recording) -> str:
    if NO_RANK in recording.not_scored:
        return "Put training.rank on the resource or on the spans."
    if any(reason in SKIPPED_ROWS for reason in recording.not_scored):
        return "Was it measured with a clock that works, and is it the right column?"
    return "Record the run's traces."


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


def _fail(where: str, value: object, expected: str, remedy: str) -> NoReturn:
    raise InputError.of(where, value, expected, remedy) from None
