"""Files with diagnostics of a hang: folders of stacks files, and of PyTorch flight-recorder dumps.

Untrusted: every length is bounded. A dump is a pickle, and a pickle may run any program: only plain
numbers, texts, lists and maps are read. The JSON form is read as well.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from otel_straggler.errors import InputError
from otel_straggler.model.diagnostics import SUFFIX, StacksDump, StacksHead, parse_dumps
from otel_straggler.model.flight_dumps import flight_record_of
from otel_straggler.model.flight_records import FlightRecord
from otel_straggler.regular_files import open_regular, read_tail

MAX_READ_BYTES = 8 * 1024 * 1024
MAX_FILES = 100_000
_MAX_RANK_DIGITS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStacks:
    """One session of a rank.

    Attributes:
        head: the newest, of a dump or an announcement.
        newest: the newest dump with stacks; None if there is none.
        was_asked: stacks were requested, with or without success.
        is_silent: the last request was not answered.
    """

    path: Path
    rank: int
    head: StacksHead
    newest: StacksDump | None
    was_asked: bool
    is_silent: bool


def read_stacks_folder(folder: Path) -> tuple[list[RankStacks], list[str]]:
    """All ``*.stacks.txt`` of a folder, the newest session of each rank; and a remark for every
    file that is damaged.

    Raises:
        OSError: the folder cannot be read.
    """
    newest: dict[tuple[str, str, int], RankStacks] = {}
    remarks: list[str] = []
    for path in sorted(folder.glob(f"*{SUFFIX}"))[:MAX_FILES]:
        try:
            dumps = read_stacks_file(path)
        except OSError as error:
            remarks.append(f"{path}: it cannot be read ({error.strerror or error})")
            continue
        rank = dumps[0].head.rank if dumps else ""
        if not (rank.isascii() and rank.isdecimal() and len(rank) <= _MAX_RANK_DIGITS):
            why = "it is empty" if not dumps else "it does not say of which rank it is"
            remarks.append(f"{path}: no stacks were read, {why}: its disk was full, or it was cut")
            continue
        result = _summed_up(path, int(rank), dumps)
        head = dumps[-1].head
        key = head.run, head.group, int(rank)
        if key not in newest or newest[key].head.at <= head.at:
            newest[key] = result
    return sorted(newest.values(), key=lambda result: result.rank), remarks


def read_stacks_file(path: Path) -> list[StacksDump]:
    """The dumps of one file, the last 8 MiB of it.

    Raises:
        OSError: it cannot be read.
    """
    return parse_dumps(read_tail(path, MAX_READ_BYTES).decode("utf-8", "replace"))


def _summed_up(path: Path, rank: int, dumps: list[StacksDump]) -> RankStacks:
    with_stacks = [dump for dump in dumps if dump.threads]
    return RankStacks(
        path=path,
        rank=rank,
        head=dumps[-1].head,
        newest=with_stacks[-1] if with_stacks else None,
        was_asked=bool(with_stacks) or any(not dump.head.is_announcement for dump in dumps),
        is_silent=not dumps[-1].threads and not dumps[-1].head.is_announcement,
    )


MAX_DUMP_BYTES = 256 * 1024 * 1024
_RANK = re.compile(r"(\d+)(?:\.json|\.pkl|\.pickle)?$")


def read_flight_records(folder: Path) -> tuple[list[FlightRecord], list[str]]:
    """All dumps in a folder, by rank; and a remark for every file that is none.

    The name of a dump ends with its rank (``nccl_trace_rank_12``, ``_dump_12``, ``rank12.json``).
    An empty file is the dump of a rank that had nothing to write.

    Raises:
        InputError: there is no such folder, or no dump in it; two dumps of one rank.
    """
    if not folder.is_dir():
        remedy = (
            "Set TORCH_NCCL_DUMP_ON_TIMEOUT=1 and TORCH_NCCL_TRACE_BUFFER_SIZE=2000, "
            "and give the folder of TORCH_NCCL_DEBUG_INFO_TEMP_FILE."
        )
        expected = "a folder with one dump for each rank"
        raise InputError.of("flight records", str(folder), expected, remedy)
    records: dict[int, FlightRecord] = {}
    remarks: list[str] = []
    for path in sorted(folder.iterdir(), key=lambda p: (len(p.name), p.name)):
        named = _RANK.search(path.name)
        if named is None or path.is_dir():
            continue
        rank = int(named.group(1))
        if rank in records:
            value = f"a second dump of rank {rank}"
            remedy = "Give a folder with the dumps of one hang."
            raise InputError.of(str(path), value, "one dump for each rank", remedy)
        try:
            records[rank] = read_flight_record(path, rank)
        except InputError as error:
            remarks.append(str(error))
    if not records:
        expected = "files whose names end with a rank, as nccl_trace_rank_12"
        remedy = "Give the folder that TORCH_NCCL_DEBUG_INFO_TEMP_FILE names."
        raise InputError.of(str(folder), remarks[0] if remarks else "no dump", expected, remedy)
    return [records[rank] for rank in sorted(records)], remarks


def read_flight_record(path: Path, rank: int) -> FlightRecord:
    """One dump.

    Raises:
        InputError: it is none, or larger than 256 MiB.
    """
    body = _body(path)
    if not body.strip():
        return FlightRecord(rank=rank)
    dump = _decoded(path, body)
    if not isinstance(dump, Mapping) or "pg_config" not in dump:
        _refuse(path, type(dump).__name__, "a map with pg_config, pg_status and entries")
    try:
        return flight_record_of(dump, rank)
    except ValueError as error:
        _refuse(path, str(error), "pg_config, pg_status and entries")


def _body(path: Path) -> bytes:
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_DUMP_BYTES:
                _refuse(path, f"{size} bytes", f"at most {MAX_DUMP_BYTES}")
            return file.read(MAX_DUMP_BYTES)
    except OSError as error:
        _refuse(path, str(error.strerror or error), "a file that can be read")


class _PlainUnpickler(pickle._Unpickler):  # noqa: SLF001  there is no other name for it
    """Loads no class and no function.

    In Python, at 0.2 s for a megabyte: the one in C allocates memory for every memo up to the
    number that five damaged bytes name, which are many gigabytes.
    """

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it wants {module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError(f"it wants an object from outside, {pid!r}")


def _decoded(path: Path, body: bytes) -> Any:
    try:
        if body.lstrip()[:1] == b"{":
            return json.loads(body)
        return _PlainUnpickler(io.BytesIO(body)).load()
    except Exception as error:  # noqa: BLE001  a broken pickle raises whatever it likes
        _refuse(path, f"{type(error).__name__}: {error}", "plain numbers, texts, lists and maps")


def _refuse(path: Path, value: str, expected: str) -> NoReturn:
    remedy = "Leave the file out if it is none; it was not run."
    raise InputError.of(str(path), value, f"a flight-recorder dump: {expected}", remedy)
