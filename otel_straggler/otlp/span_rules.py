"""What spans mean: the rules that both ways of reading trace requests share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from otel_straggler import semconv
from otel_straggler.model.observation import (
    BASIS_CODES,
    CUPTI,
    HOST,
    NO_STEP,
    ObservationBatch,
    Section,
)
from otel_straggler.model.rank import Source
from otel_straggler.otlp.identity import (
    BAD_RANK,
    NO_RANK,
    Aliases,
    Identity,
    Resource,
    Value,
    as_int,
    read_value,
)
from otel_straggler.semconv import SectionKind

ROW = "row"
STEP = "step"
BAD_ID = "bad_id"
BAD_TIME = "bad_time"
BAD_FOLD = "bad_fold"
NO_NAME = "no_name"
DURATION_NOT_POSITIVE = "duration_not_positive"
ERROR_STATUS = "error_status"
EXCLUDED = "excluded"
TRUNCATED = "truncated"

SPAN_OUTCOMES = (
    ROW, STEP, NO_RANK, ERROR_STATUS, EXCLUDED, TRUNCATED,
    BAD_ID, BAD_RANK, BAD_TIME, NO_NAME, DURATION_NOT_POSITIVE, BAD_FOLD,
)  # fmt: skip
MALFORMED = frozenset({BAD_ID, BAD_RANK, BAD_TIME, NO_NAME, DURATION_NOT_POSITIVE, BAD_FOLD})
"""Outcomes of spans that the sender is told were rejected."""

_MAX_NS = 2**63 - 1


def outcome_of_times(start_ns: int, end_ns: int) -> str:
    """What is wrong with them; empty where nothing is."""
    if not (0 < start_ns <= _MAX_NS and 0 < end_ns <= _MAX_NS):
        return BAD_TIME
    return "" if end_ns > start_ns else DURATION_NOT_POSITIVE


@dataclass(slots=True)
class Progress:
    """How far one source has come, as its spans say."""

    step: int = NO_STEP
    end_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedSpans:
    """One trace request.

    Attributes:
        batch: the rows to score.
        outcomes: spans by what became of them; the sum is the number of spans received.
        progress: newest step (``NO_STEP`` if none) and newest end per source.
        refused_gpu_times: GPU times of rows that make no sense; the rows go by the host's clock.
    """

    batch: ObservationBatch
    outcomes: dict[str, int]
    progress: dict[Source, Progress] = field(default_factory=dict)
    refused_gpu_times: int = 0

    @property
    def rejected(self) -> dict[str, int]:
        """Malformed spans, by reason."""
        return {outcome: count for outcome, count in self.outcomes.items() if outcome in MALFORMED}


_REMEMBERED = 4_096


class SpanNames:
    """Decides by name; safe to use from several threads.

    Args:
        include: a plain span is scored if one of these covers its name
        exclude: and none of these does.
        kinds: the first kind with a pattern that covers the name; else ``compute``.

    >>> names = SpanNames(include=["train.*"], exclude=["*.debug"], kinds={"wait": ["*.reduce"]})
    >>> names.is_scored("train.fwd"), names.is_scored("train.debug"), names.is_scored("serve")
    (True, False, False)
    >>> names.kind_of("train.reduce"), names.kind_of("train.fwd")
    ('wait', 'compute')
    """

    def __init__(
        self,
        include: Iterable[str] = ("*",),
        exclude: Iterable[str] = semconv.UNSCORED_SPANS,
        kinds: Mapping[SectionKind, Iterable[str]] = semconv.KNOWN_KINDS,
    ) -> None:
        self._include = tuple(include)
        self._exclude = tuple(exclude)
        self._kinds = tuple((kind, tuple(patterns)) for kind, patterns in kinds.items())
        self._known: dict[str, tuple[bool, SectionKind]] = {}

    def is_scored(self, name: str) -> bool:
        return self._decide(name)[0]

    def kind_of(self, name: str) -> SectionKind:
        return self._decide(name)[1]

    def _decide(self, name: str) -> tuple[bool, SectionKind]:
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            is_scored = _covers(self._include, name) and not _covers(self._exclude, name)
            known = self._known[name] = (is_scored, self._find_kind(name))
        return known

    def _find_kind(self, name: str) -> SectionKind:
        for kind, patterns in self._kinds:
            if _covers(patterns, name):
                return kind
        return "compute"


def _covers(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


GPU_KEYS: Final = (semconv.GPU_BUSY_TIME, semconv.GPU_NCCL_TIME, semconv.GPU_KERNEL_TIME)
"""Attributes whose values are numbers of nanoseconds, in the order in which they stand here."""
MAX_RATIO: Final = 10
MAX_EXTRA_NS: Final = 60 * 10**9
"""A time longer than 10 times the run and a minute is none: a span waits for its numbers for two
seconds, so its kernels have ended by then, and few devices and streams add up."""
MAX_LENGTH_NS: Final = (2**63 - 1 - MAX_EXTRA_NS) // MAX_RATIO
"""A run that is taken for no longer, so that the limit is a number of 64 bits."""
_UNKNOWN = float("nan")


class GpuNumbers(NamedTuple):
    """Of one span, as a row has them: a code of ``GpuTimes.basis``, and nanoseconds.

    NaN where a time is not known; ``refused`` counts times that were told and make no sense.
    """

    basis: int
    busy_ns: float
    nccl_ns: float
    kernel_ns: float
    refused: int = 0


def basis_of(value: Value) -> int:
    """Code of a value of ``straggler.time_basis``; whatever is not known is the host's."""
    return BASIS_CODES.get(value, HOST) if isinstance(value, str) else HOST


def gpu_numbers(found: dict[str, Value], length_ns: int) -> GpuNumbers | None:
    """From the attributes of a span; None if it tells nothing of the GPU.

    The basis is the host's if a time that it needs is missing or refused: half of a truth would
    pass for a fast rank.

    Args:
        length_ns: of the run, or of all runs of a folded span together.

    >>> told = {"straggler.time_basis": "cupti", "straggler.gpu.busy_time_ns": 900}
    >>> gpu_numbers({**told, "straggler.gpu.nccl_time_ns": 100}, 1_000)
    GpuNumbers(basis=2, busy_ns=900.0, nccl_ns=100.0, kernel_ns=nan, refused=0)
    >>> gpu_numbers({**told, "straggler.gpu.nccl_time_ns": -1}, 1_000).refused
    1
    """
    basis = basis_of(found.get(semconv.TIME_BASIS))
    if basis == HOST:
        return None
    most_ns = MAX_RATIO * min(length_ns, MAX_LENGTH_NS) + MAX_EXTRA_NS
    wanted = GPU_KEYS if basis == CUPTI else GPU_KEYS[:1]
    times = {key: _time(found[key], most_ns) for key in wanted if key in found}
    busy, nccl, kernel = (times.get(key, _UNKNOWN) for key in GPU_KEYS)
    refused = sum(map(math.isnan, times.values()))
    if math.isnan(busy) or (basis == CUPTI and math.isnan(nccl)):
        return GpuNumbers(HOST, _UNKNOWN, _UNKNOWN, _UNKNOWN, refused)
    return GpuNumbers(basis, busy, nccl, kernel, refused)


def _time(value: Value, most_ns: int) -> float:
    """Nanoseconds; NaN for what is no whole number from 0 to ``most_ns``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _UNKNOWN
    is_time = 0 <= value <= most_ns and int(value) == value
    return float(value) if is_time else _UNKNOWN


_STATUS_ERROR = 2
_MAX_NAME = 256
_KINDS = frozenset(semconv.SECTION_KINDS)
_SECTION_KEYS = (
    semconv.SECTION_KIND,
    semconv.SECTION_PARENT,
    semconv.PHASE,
    semconv.SPAN_TRUNCATED,
    semconv.FOLD_COUNT,
    semconv.FOLD_SUM,
    semconv.FOLD_MIN,
    semconv.FOLD_MAX,
    semconv.TIME_BASIS,
)

Attributes = dict[str, Value]
"""The attributes of a span that mean something here."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Which attributes of a span mean something.

    Attributes:
        names: which plain spans are scored.
        identity: those that say who sent it, and so override the resource.
        wanted: all.
        numbers: those whose value differs from span to span.
    """

    aliases: Aliases
    names: SpanNames
    identity: frozenset[str]
    wanted: frozenset[str]
    numbers: frozenset[str]

    @classmethod
    def of(cls, aliases: Aliases, names: SpanNames) -> Keys:
        identity = aliases.identity_keys()
        numbers = frozenset((*aliases.step, semconv.SEQ, semconv.TOKENS, *GPU_KEYS))
        wanted = identity.union(numbers, aliases.section, _SECTION_KEYS)
        return cls(aliases, names, identity, wanted, numbers)

    def find(self, span: Any) -> Attributes:
        """The attributes of a protobuf ``Span`` that mean something."""
        wanted = self.wanted
        found = {}
        for pair in span.attributes:
            key = pair.key
            if key in wanted:
                found[key] = read_value(pair.value)
        return found

    def who(self, resource: Resource, found: Attributes) -> Identity:
        """Who sent the span."""
        if self.identity.isdisjoint(found):
            return resource.identity
        return resource.overridden_by({k: v for k, v in found.items() if k in self.identity})

    def step_key(self, found: Attributes) -> str | None:
        """The attribute that holds the step: the first alias that is there."""
        return next((key for key in self.aliases.step if key in found), None)

    def plain_name(self, span: Any, found: Attributes) -> str:
        """What a span without ``straggler.section`` is scored under."""
        for key in self.aliases.section:
            if found.get(key):
                return str(found[key])
        name: str = span.name
        return name


SectionKey = tuple[str, Value, Value, Value]
"""Name, kind, phase and parent of a section as a span gives them."""


def shape_of(
    span: Any, found: Attributes, keys: Keys, *, is_own: bool
) -> tuple[SectionKey | None, str]:
    """The section that a span is scored as; None and its outcome if it is not."""
    kind = found.get(semconv.SECTION_KIND)
    section = found.get(semconv.SECTION)
    if section:
        name = str(section)
    else:
        name = keys.plain_name(span, found)
        if not name:
            return None, NO_NAME
        if is_own and name == semconv.STEP_SPAN:
            return None, STEP
        if not keys.names.is_scored(name):
            return None, EXCLUDED
        kind = kind or keys.names.kind_of(name)
    if span.status.code == _STATUS_ERROR:
        return None, ERROR_STATUS
    if semconv.SPAN_TRUNCATED in found and found[semconv.SPAN_TRUNCATED] in (True, "true"):
        return None, TRUNCATED
    return (name, kind, found.get(semconv.PHASE), found.get(semconv.SECTION_PARENT)), ROW


def step_of(found: Attributes, keys: Keys) -> int:
    key = keys.step_key(found)
    step = None if key is None else as_int(found[key])
    return NO_STEP if step is None or step < 0 else step


def section_of(name: str, kind: Value, phase: Value, parent: Value = None) -> Section:
    """Name and kind under which a section is scored; a phase keeps it apart from training.

    >>> section_of("forward", "compute", "eval").name
    'eval/forward'
    """
    own_kind: SectionKind = kind if kind in _KINDS else "compute"
    around = str(parent or "")[:_MAX_NAME]
    return Section(name[:_MAX_NAME], own_kind, around).in_phase(str(phase or "")[:_MAX_NAME])
