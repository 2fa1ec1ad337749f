"""All that a scalability report can read: what is missing or wrong is noted and skipped."""

from __future__ import annotations

import csv
import gzip
import io
import re
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from otel_straggler.collector.history.postgres import is_postgres
from otel_straggler.errors import InputError, StragglerError
from otel_straggler.model.operator_tables import NOT_TRACES
from otel_straggler.recordings.columns import Note
from otel_straggler.recordings.files import (
    MAX_FILES,
    MAX_PLAIN_BYTES,
    SNIFFED_BYTES,
    RecordingReader,
    open_input,
    sniff,
    unzipped,
)
from otel_straggler.recordings.trace_events import KinetoTrace, Progress, read_traces
from otel_straggler.scalability.gpu_traces import RankTrace, rank_trace, run_of_traces
from otel_straggler.scalability.itwinai import OperatorTimes, is_itwinai, read_itwinai
from otel_straggler.scalability.mlflow import (
    MlflowRuns,
    is_of_store,
    is_run,
    read_database,
    read_run,
    run_of_artifact,
)
from otel_straggler.scalability.recorded import RecordedRuns
from otel_straggler.scalability.runs import Key, ScalingRun
from otel_straggler.scalability.stored import stored_runs
from otel_straggler.secret import without_secrets

_SQLITE = b"SQLite format 3\0"
_TRACE_FOLDERS = frozenset({"torch-traces", "profiler-traces", "traces", "trace"})
"""Names of folders that name no run."""

_PLOTS = frozenset({".png", ".svg", ".pdf", ".jpg", ".eps"})
"""Ends of files in a folder that were made of a report, not for one."""
_CHUNK_BYTES = 1 << 20
_PROCESS = re.compile(r"[0-9]{1,9}")

ShowProgress = Callable[[str], AbstractContextManager[Progress]]
"""Shows how much of a file has been read."""


class ScalingInputs:
    """Reads files one by one.

    Args:
        note: called with what was skipped, and why.
        progress: opened with the name of each trace.
    """

    def __init__(self, note: Note, progress: ShowProgress) -> None:
        self._note, self._progress = note, progress
        self._runs: list[ScalingRun] = []
        self._operators = OperatorTimes()
        self._mlflow = MlflowRuns()
        self._recorded = RecordedRuns()
        self._traces: dict[str, list[RankTrace]] = {}

    def read(self, paths: Iterable[str]) -> None:
        """Read files, and all files below folders."""
        for path in paths:
            if is_postgres(path):
                self._guarded(path, lambda path=path: self._runs.extend(stored_runs(path)))  # type: ignore[misc]
                continue
            if not Path(path).exists():
                what = "an address; name the collector's history, a file or a postgresql:// URL"
                none = "there is no such file or folder"
                self._note(f"{without_secrets(path)}: {what if '://' in path else none}; skipped")
                continue
            for file in files_below(path, self._note):
                if is_of_store(file):
                    if is_run(file):
                        self._guarded(str(file.parent), lambda file=file: self._read_mlflow(file))  # type: ignore[misc]
                    continue
                self._guarded(str(file), lambda file=file: self._read(file))  # type: ignore[misc]

    def runs(self) -> list[ScalingRun]:
        """All that was read; what several sources know of a run is put together."""
        each = [*self._runs, *self._mlflow.runs(self._note), *self._recorded.runs()]
        each += self._operators.runs(self._mlflow.names)
        each += filter(None, (run_of_traces(name, r) for name, r in self._traces.items()))
        joined: dict[tuple[str, Key], ScalingRun] = {}
        for run in each:
            known = joined.get((run.name, run.key))
            joined[run.name, run.key] = run if known is None else known.joined(run)
        return list(joined.values())

    def _guarded(self, name: str, act: Callable[[], object]) -> None:
        try:
            act()
        except (StragglerError, OSError, EOFError, zlib.error) as error:
            self._note(f"{without_secrets(name)}: skipped: {error}")

    def _read(self, path: Path) -> None:
        with open_input(str(path)) as file:
            if file.read(len(_SQLITE)) == _SQLITE:
                mlflow = read_database(path)
                if mlflow is None:
                    self._runs += stored_runs(str(path))
                else:
                    self._mlflow.add(mlflow)
                return
            file.seek(0)
            with unzipped(file, str(path)) as plain:
                self._read_plain(plain, path)

    def _read_mlflow(self, meta: Path) -> None:
        self._mlflow.add([read_run(meta.parent, self._note)])

    def _read_plain(self, plain: io.BufferedReader, path: Path) -> None:
        name = str(path)
        form = sniff(plain.peek(SNIFFED_BYTES)[:SNIFFED_BYTES], name)
        if form == "otlp-json":
            self._recorded.add_json(plain, name)
        elif form == "otlp-proto":
            self._recorded.add_proto(plain, name)
        elif form == "kineto":
            with self._progress(name) as progress:
                traces = read_kineto_traces(plain, name, self._note, progress)
            of_run = self._traces.setdefault(run_of_path(path), [])
            of_run += (rank_trace(trace, name) for trace in traces)
        elif form == "csv" and is_itwinai(_header(plain)):
            text = io.TextIOWrapper(plain, "utf-8-sig", errors="replace", newline="")
            run = run_of_artifact(path)
            self._runs += read_itwinai(text, name, self._note, self._operators, run)
            text.detach()
        else:
            reader = RecordingReader(name, note=self._note)
            reader.read(plain, name)
            self._recorded.add_rows(reader.recording().batch)


def _header(plain: io.BufferedReader) -> list[str]:
    line = plain.peek(SNIFFED_BYTES)[:SNIFFED_BYTES].partition(b"\n")[0]
    return next(csv.reader([line.decode("utf-8-sig", "replace")]), [])


def read_kineto_traces(
    plain: io.BufferedIOBase, name: str, note: Note, progress: Progress = lambda _: None
) -> list[KinetoTrace]:
    """The traces of the ranks in a file, as far as it goes. Processes that do not say which rank
    they are get their process id for it, with a note.

    Raises:
        InputError: it is no trace, or too large.
    """
    content = _as_far_as_it_goes(plain, name, note)
    if len(content) > MAX_PLAIN_BYTES:
        limit = f"at most {MAX_PLAIN_BYTES >> 20:,} MiB"
        raise InputError.of(name, "a larger trace", limit, "Record fewer steps.")
    text = content.decode("utf-8-sig", "replace")
    del content

    def cut_off(error: InputError) -> None:
        note(f"{name}: what comes before the place where it is cut off is used: {error}")

    traces = read_traces(text, name, Counter(), cut_off=cut_off, progress=progress)
    unnamed = [trace for trace in traces if _PROCESS.fullmatch(trace.process)]
    for trace in unnamed:
        trace.labeled_rank = int(trace.process)
    if unnamed:
        named = ", ".join(trace.process for trace in unnamed[:4])
        note(f"{name}: nothing says which rank processes {named} are: their ids stand for ranks")
    return traces


def _as_far_as_it_goes(plain: io.BufferedIOBase, name: str, note: Note) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        while size <= MAX_PLAIN_BYTES and (part := plain.read1(_CHUNK_BYTES)):
            parts.append(part)
            size += len(part)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        if not parts:
            raise
        note(f"{name}: what comes before the place where it is damaged is used: {error}")
    return b"".join(parts)


def run_of_path(path: Path) -> str:
    """The folder of a trace, without folders that only say what is in them."""
    for folder in path.absolute().parents:
        if folder.name and folder.name not in _TRACE_FOLDERS:
            return folder.name
    return path.stem


def files_below(path: str, note: Note) -> Iterator[Path]:
    """The file, or the regular files below a folder, in order."""
    if Path(path).is_file():
        yield Path(path)
        return
    if not Path(path).is_dir():
        note(f"{path}: no file and no folder; skipped")
        return
    count = 0
    for file in sorted(Path(path).rglob("*")):
        is_hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if is_hidden or file.suffix.lower() in _PLOTS or file.name.endswith(NOT_TRACES):
            continue
        if _is_regular(file):
            count += 1
            if count > MAX_FILES:
                note(f"{path}: more than {MAX_FILES:,} files; the others are skipped")
                return
            yield file
    if not count:
        note(f"{path}: there is no file in it; skipped")


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False
