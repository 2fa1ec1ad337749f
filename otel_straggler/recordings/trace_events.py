"""Events of a trace of torch.profiler (Kineto, Chrome's JSON) that mean something to us."""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, NamedTuple, NoReturn

from otel_straggler.errors import InputError
from otel_straggler.model.observation import kernel_class_of
from otel_straggler.model.traced_collective import Collective
from otel_straggler.recordings.columns import NEGATIVE, NO_DURATION, ZERO

_STEP = re.compile(r"ProfilerStep#(\d{1,15})")
_RANK = re.compile(r"(?<![a-z])rank[-_. ]?(\d{1,9})(?!\d)", re.IGNORECASE)
_FOLDER = re.compile(r"(?:rank|worker)[-_. ]?(\d{1,9})(?:\..*)?", re.IGNORECASE)
"""Of one rank, as itwinai's ``worker_3``."""
_LABEL = re.compile(r"(?<![a-z])(?:rank|tp)[-_. ]?(\d{1,9})(?![\d-])", re.IGNORECASE)
"""What tools that merge traces put into the ids or names of processes."""
_BLANKS = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder(strict=False)
_LARGEST_US = 4e15
"""More than a century; also excludes what is no number."""
_ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver", "runtime"})
_GPU_COPY = "gpu_user_annotation"
ON_CPU = ("gloo:", "mpi:", "ucc:")
"""Backends whose annotations last as long as the collective; those of NCCL only launch it."""
_PROGRESS_EVENTS = 8_192

Progress = Callable[[float], None]
"""Called with the part that has been read, 0 to 1."""


class Interval(NamedTuple):
    """Times in us since the epoch of the trace."""

    begin: float
    end: float
    name: str
    thread: tuple[Any, Any]


@dataclass(slots=True)
class KinetoTrace:
    """What is used of a trace; times in us.

    Attributes:
        kernels: name, begin, length and correlation of kernels, copies and fills.
        operators: begins and ends of operators of the CPU, one after the other.
        collectives: of the GPU; host_collectives: of the CPU's backends.
        names: every name once.
        is_whole: False if the file was cut off, and this is what came before.
        labeled_rank: of a file with several ranks, by the label of its processes.
        process: its id, in a file of several processes without such labels; else empty.
    """

    header: dict[str, Any] = field(default_factory=dict)
    steps: dict[int, Interval] = field(default_factory=dict)
    annotations: list[Interval] = field(default_factory=list)
    kernels: list[tuple[str, float, float, int]] = field(default_factory=list)
    launches: dict[int, float] = field(default_factory=dict)
    operators: array[float] = field(default_factory=lambda: array("d"))
    collectives: list[Collective] = field(default_factory=list)
    host_collectives: list[Collective] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    is_whole: bool = True
    labeled_rank: int | None = None
    process: str = ""
    _classes: dict[str, bool] = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        """0 if unknown."""
        return self._information("world_size") or 0

    def _information(self, key: str) -> int | None:
        information = self.header.get("distributedInfo")
        return _count(information.get(key)) if isinstance(information, dict) else None

    def is_collective(self, kernel: str) -> bool:
        """Whether a kernel communicates, by its name."""
        known = self._classes.get(kernel)
        if known is None:
            known = self._classes[kernel] = kernel_class_of(kernel) == "nccl"
        return known

    def rank(self, name: str) -> int | None:
        """As the trace has it, else as its file is named, else as its folder is."""
        if self.labeled_rank is not None or self.process:
            return self.labeled_rank
        if (rank := self._information("rank")) is not None:
            return rank
        path = PurePath(name)
        named = _RANK.search(path.name) or _FOLDER.fullmatch(path.name)
        named = named or _FOLDER.fullmatch(path.parent.name)
        return int(named[1]) if named else None

    def part(self) -> KinetoTrace:
        """An empty trace of the same file."""
        return KinetoTrace(header=self.header, names=self.names, _classes=self._classes)

    def add(self, other: KinetoTrace, name: str) -> None:
        """Add what another process of the same rank did.

        Raises:
            InputError: both have the same step.
        """
        if twice := self.steps.keys() & other.steps.keys():
            _fail_twice(name, f"ProfilerStep#{min(twice)}")
        self.steps |= other.steps
        self.annotations += other.annotations
        self.kernels += other.kernels
        self.launches |= other.launches
        self.operators += other.operators
        self.collectives += other.collectives
        self.host_collectives += other.host_collectives


def _count(value: object) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
    return value if is_count else None  # type: ignore[return-value]


def read_traces(
    text: str,
    name: str,
    skipped: Counter[str],
    *,
    cut_off: Callable[[InputError], None] | None = None,
    progress: Progress = lambda _: None,
) -> list[KinetoTrace]:
    """Collect the events of a trace: one result for each rank in it, at least one.

    Args:
        skipped: counts events without a length, by reason.
        cut_off: called with the error of a file that ends too early; what came before is the
            result. None: it is raised.

    Raises:
        InputError: it is no JSON, or a step comes twice.

    Cost: O(characters) in time; about 100 bytes a kernel and annotation stay.
    """
    whole = KinetoTrace()
    parts: dict[str, KinetoTrace] = {}
    labels: dict[str, str] = {}
    try:
        for number, (key, value, at) in enumerate(_items(text, name)):
            if key:
                whole.header[key] = value
            elif isinstance(value, dict):
                process = str(value.get("pid"))
                if (part := parts.get(process)) is None:
                    part = parts[process] = whole.part()
                _add(part, value, name, skipped)
                if value.get("ph") == "M":
                    labels[process] = f"{labels.get(process, '')} {_label(value)}"
            if not number % _PROGRESS_EVENTS:
                progress(at / len(text))
    except _CutOffError as error:
        if cut_off is None:
            raise InputError(str(error)) from None
        whole.is_whole = False
        cut_off(error)
    progress(1.0)
    return _by_rank(whole, parts, labels, name)


def _label(event: dict[str, Any]) -> str:
    """The name that a process is given; empty for other metadata."""
    arguments = event.get("args")
    if event.get("name") not in ("process_name", "process_labels") or not isinstance(
        arguments, dict
    ):
        return ""
    return f"{arguments.get('name', '')} {arguments.get('labels', '')}"


def _by_rank(
    whole: KinetoTrace, parts: dict[str, KinetoTrace], labels: dict[str, str], name: str
) -> list[KinetoTrace]:
    """Processes put together by the rank in their ids, else in their names; without ranks all of
    them, unless several have steps."""
    ranks = {
        process: label
        for process in parts
        if (label := _LABEL.search(process) or _LABEL.search(labels.get(process, "")))
    }
    keys = {process: int(label[1]) for process, label in ranks.items()}
    if len(set(keys.values())) > 1:
        result: dict[int, KinetoTrace] = {}
        for process, rank in keys.items():
            if rank not in result:
                result[rank] = whole.part()
                result[rank].labeled_rank, result[rank].is_whole = rank, whole.is_whole
            result[rank].add(parts[process], name)
        return [result[rank] for rank in sorted(result)]
    stepping = [process for process, part in parts.items() if part.steps]
    if len(stepping) > 1:
        for process in stepping:
            parts[process].process, parts[process].is_whole = process, whole.is_whole
        return [parts[process] for process in stepping]
    for part in parts.values():
        whole.add(part, name)
    return [whole]


class _CutOffError(InputError):
    """The text is no JSON from some place on."""


def _items(text: str, name: str) -> Iterator[tuple[str, Any, int]]:
    """Members of the document by their keys; events one by one, without a key; and where each
    ends."""
    try:
        at = _BLANKS.match(text, 0).end()  # type: ignore[union-attr]
        if text[at] == "[":
            for event, end in _listed(text, at):
                yield "", event, end
            return
        at = _next(text, at + 1)
        while text[at] != "}":
            key, at = _DECODER.raw_decode(text, at)
            at = _next(text, at)
            if text[at] != ":":
                raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
            at = _next(text, at + 1)
            if key == "traceEvents" and text[at] == "[":
                for event, end in _listed(text, at):
                    at = end
                    if event is not None:
                        yield "", event, at
            else:
                value, at = _DECODER.raw_decode(text, at)
                yield str(key), value, at
            at = _next(text, at)
    except json.JSONDecodeError as error:
        shown = text[error.pos : error.pos + 40] or "the end of the file"
        line = text.count("\n", 0, error.pos) + 1
        _fail_cut_off(f"{name}:{line}", shown, f"valid JSON ({error.msg})")
    except ValueError:  # of int()
        shown = "an integer of more than 4,300 digits"
        _fail(name, shown, "a trace of torch.profiler", "Is it a trace?")
    except IndexError:
        line = text.count("\n") + 1
        expected = "valid JSON to its closing bracket"
        _fail_cut_off(f"{name}:{line}", "the end of the file", expected)
    except RecursionError:
        _fail(name, "JSON of absurd depth", "a trace of torch.profiler", "Is it a trace?")


def _listed(text: str, at: int) -> Iterator[tuple[Any, int]]:
    """Elements of a list, each with the place behind it; last None with that behind the list."""
    at = _next(text, at + 1)
    while text[at] != "]":
        event, at = _DECODER.raw_decode(text, at)
        at = _next(text, at)
        yield event, at
    yield None, at + 1


def _next(text: str, at: int) -> int:
    return _BLANKS.match(text, at).end()  # type: ignore[union-attr]


def _add(trace: KinetoTrace, event: dict[str, Any], name: str, skipped: Counter[str]) -> None:
    if event.get("ph") != "X" or not isinstance(event.get("cat"), str):
        return
    kind = event["cat"].lower()
    if kind in _LAUNCHES:
        correlation, begin = _correlation(event), _number(event.get("ts"))
        if correlation is not None and begin is not None:
            trace.launches[correlation] = begin
        return
    title = str(event.get("name", ""))
    step = _STEP.fullmatch(title) if kind != _GPU_COPY else None
    is_on_gpu = kind in _ON_GPU
    if not (step or is_on_gpu or kind in ("user_annotation", "cpu_op")):
        return
    begin, length = _number(event.get("ts")), _number(event.get("dur"))
    if kind == "cpu_op" and step is None:
        if begin is not None and length is not None and not title.startswith("c10d::"):
            trace.operators.extend((begin, begin + length))
        return
    if begin is None or length is None or length <= 0.0:
        unknown = begin is None or length is None
        skipped[NO_DURATION if unknown else ZERO if length == 0.0 else NEGATIVE] += 1
        return
    title = trace.names.setdefault(title, title)
    if is_on_gpu:
        correlation = _correlation(event)
        trace.kernels.append((title, begin, length, -1 if correlation is None else correlation))
        if trace.is_collective(title):
            trace.collectives.append(_collective(event, title, begin, length))
        return
    thread = str(event.get("pid")), str(event.get("tid"))
    interval = Interval(begin, begin + length, title.strip(" #") or title, thread)
    if step is None:
        trace.annotations.append(interval)
        if title.startswith(ON_CPU):
            trace.host_collectives.append(_collective(event, title, begin, length))
        return
    number = int(step[1])
    if number in trace.steps and trace.steps[number].thread != thread:
        _fail_twice(name, title)
    trace.steps[number] = interval


def _collective(event: dict[str, Any], title: str, begin: float, length: float) -> Collective:
    """Newer versions of torch say which collective of which group a kernel belongs to."""
    arguments = event.get("args")
    said = arguments if isinstance(arguments, dict) else {}
    seq = _count(said.get("Seq"))
    return Collective(
        begin,
        begin + length,
        str(said.get("Collective name") or title),
        f"{said.get('Process Group Name') or ''}{said.get('Process Group Ranks') or ''}",
        -1 if seq is None else seq,
        _count(said.get("Group size")) or 0,
        f"{said.get('device', event.get('pid'))}/{said.get('stream', event.get('tid'))}",
    )


def _correlation(event: dict[str, Any]) -> int | None:
    arguments = event.get("args")
    value = arguments.get("correlation") if isinstance(arguments, dict) else None
    return value if isinstance(value, int) else None


def _number(value: object) -> float | None:
    """Also of the texts that some versions write."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return number if abs(number) < _LARGEST_US else None


def _fail(where: str, value: object, expected: str, remedy: str) -> NoReturn:
    raise InputError.of(where, value, expected, remedy) from None


def _fail_twice(name: str, step: str) -> NoReturn:
    _fail(
        name, f"{step} in two threads or processes", "every step once",
        "Nothing separates the ranks of a merged trace: give a directory of one file per rank.",
    )  # fmt: skip


def _fail_cut_off(where: str, value: object, expected: str) -> NoReturn:
    raise _CutOffError.of(where, value, expected, "Was it cut off?") from None
