"""Rules for spans, shared by both ways of reading trace requests."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final, NamedTuple

from otel_straggler import semconv
from otel_straggler.model.names import clean_name
from otel_straggler.model.observation import (
    BASIS_CODES,
    COLLECTIVE,
    CUPTI,
    EVENTS,
    HOST,
    NO_STEP,
    ObservationBatch,
    Section,
)
from otel_straggler.model.rank import Source
from otel_straggler.otlp.folded_spans import FOLD_KEYS
from otel_straggler.otlp.identity import (
    BAD_RANK,
    NO_RANK,
    RESOURCE_TOO_LARGE,
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
    BAD_ID, BAD_RANK, BAD_TIME, NO_NAME, DURATION_NOT_POSITIVE, BAD_FOLD, RESOURCE_TOO_LARGE,
)  # fmt: skip
MALFORMED = frozenset(
    {BAD_ID, BAD_RANK, BAD_TIME, NO_NAME, DURATION_NOT_POSITIVE, BAD_FOLD, RESOURCE_TOO_LARGE}
)
"""Outcomes of spans that are reported to the sender as rejected."""

_MAX_NS = 2**63 - 1


def outcome_of_times(start_ns: int, end_ns: int) -> str:
    """Their defect; empty if there is none."""
    if not (0 < start_ns <= _MAX_NS and 0 < end_ns <= _MAX_NS):
        return BAD_TIME
    return "" if end_ns > start_ns else DURATION_NOT_POSITIVE


@dataclass(slots=True)
class Progress:
    """Newest step and newest end in the spans of one source."""

    step: int = NO_STEP
    end_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedSpans:
    """One trace request.

    Attributes:
        outcomes: spans by outcome; the sum is the number of spans received.
        progress: newest step (``NO_STEP`` if none) and newest end per source.
        refused_gpu_times: GPU times, and waiting in collectives, that make no sense; their rows
            go by the host's clock.
    """

    batch: ObservationBatch
    outcomes: dict[str, int]
    progress: dict[Source, Progress] = field(default_factory=dict)
    refused_gpu_times: int = 0

    @property
    def rejected(self) -> dict[str, int]:
        return {outcome: count for outcome, count in self.outcomes.items() if outcome in MALFORMED}

    def run_ids(self) -> set[str]:
        return {source.run_id for source in (*self.batch.sources, *self.progress)}


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
        self._decide = lru_cache(_REMEMBERED)(self._find)

    def is_scored(self, name: str) -> bool:
        return self._decide(name)[0]

    def kind_of(self, name: str) -> SectionKind:
        return self._decide(name)[1]

    def _find(self, name: str) -> tuple[bool, SectionKind]:
        is_scored = _covers(self._include, name) and not _covers(self._exclude, name)
        kinds = (kind for kind, patterns in self._kinds if _covers(patterns, name))
        return is_scored, next(kinds, "compute")


def _covers(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


GPU_KEYS: Final = (semconv.GPU_BUSY_TIME, semconv.GPU_NCCL_TIME, semconv.GPU_KERNEL_TIME)
"""Attributes whose values are numbers of nanoseconds, in the order in which they stand here."""
TIME_KEYS: Final = (*GPU_KEYS, semconv.COLLECTIVE_WAIT_TIME)
_MAX_RATIO: Final = 10
_MAX_EXTRA_NS: Final = 60 * 10**9
"""A time longer than 10 times the execution and a minute is none: a span waits two seconds for its
numbers, so its kernels have ended by then, and few devices and streams add up."""
_MAX_LENGTH_NS: Final = (2**63 - 1 - _MAX_EXTRA_NS) // _MAX_RATIO
"""A longer execution is taken for this, so that the limit is a number of 64 bits."""
_UNKNOWN = float("nan")


class GpuNumbers(NamedTuple):
    """Of one span, as a row has them: a code of ``GpuTimes.basis``, and nanoseconds.

    NaN where a time is not known; ``refused`` counts times that make no sense.
    """

    basis: int
    busy_ns: float
    nccl_ns: float
    kernel_ns: float
    refused: int = 0


_NO_GPU_NUMBERS: Final = GpuNumbers(HOST, _UNKNOWN, _UNKNOWN, _UNKNOWN)


def basis_of(value: Value) -> int:
    """Code of a value of ``straggler.time_basis``; whatever is not known is the host's."""
    return BASIS_CODES.get(value, HOST) if isinstance(value, str) else HOST


def gpu_numbers(attributes: dict[str, Value], length_ns: int) -> GpuNumbers:
    """From the attributes of a span whose executions take ``length_ns`` together.

    The basis is the host's if a time that it needs is missing or refused: half of a truth would
    pass for a fast rank. Events do not tell work and waiting apart; a run that is known to have
    waited in collectives goes by the host's clock without that.

    >>> attributes = {"straggler.time_basis": "cupti", "straggler.gpu.busy_time_ns": 900}
    >>> gpu_numbers({**attributes, "straggler.gpu.nccl_time_ns": 100}, 1_000)
    GpuNumbers(basis=2, busy_ns=900.0, nccl_ns=100.0, kernel_ns=nan, refused=0)
    >>> gpu_numbers({**attributes, "straggler.gpu.nccl_time_ns": -1}, 1_000).refused
    1
    >>> attributes = {"straggler.time_basis": "events", "straggler.gpu.busy_time_ns": 900}
    >>> gpu_numbers({**attributes, "straggler.collective.wait_time_ns": 200}, 1_000)
    GpuNumbers(basis=3, busy_ns=1000.0, nccl_ns=200.0, kernel_ns=nan, refused=0)
    >>> attributes = {"straggler.time_basis": "collective"}
    >>> gpu_numbers({**attributes, "straggler.collective.wait_time_ns": 200}, 1_000)
    GpuNumbers(basis=3, busy_ns=1000.0, nccl_ns=200.0, kernel_ns=nan, refused=0)
    """
    basis = basis_of(attributes.get(semconv.TIME_BASIS))
    if basis == HOST:
        return _NO_GPU_NUMBERS
    has_waited = semconv.COLLECTIVE_WAIT_TIME in attributes
    if basis == COLLECTIVE or (basis == EVENTS and has_waited):
        return _waited(attributes, length_ns)
    limit_ns = _MAX_RATIO * min(length_ns, _MAX_LENGTH_NS) + _MAX_EXTRA_NS
    wanted = GPU_KEYS if basis == CUPTI else GPU_KEYS[:1]
    times = {key: _time(attributes[key], limit_ns) for key in wanted if key in attributes}
    busy, nccl, kernel = (times.get(key, _UNKNOWN) for key in GPU_KEYS)
    refused = sum(map(math.isnan, times.values()))
    if math.isnan(busy) or (basis == CUPTI and math.isnan(nccl)):
        return _NO_GPU_NUMBERS._replace(refused=refused)
    return GpuNumbers(basis, busy, nccl, kernel, refused)


def _waited(attributes: dict[str, Value], length_ns: int) -> GpuNumbers:
    """A thread waits within its span: longer is no wait."""
    key = semconv.COLLECTIVE_WAIT_TIME
    if key not in attributes:
        return _NO_GPU_NUMBERS
    waited_ns = _time(attributes[key], length_ns)
    if math.isnan(waited_ns):
        return _NO_GPU_NUMBERS._replace(refused=1)
    return GpuNumbers(COLLECTIVE, float(length_ns), waited_ns, _UNKNOWN)


def _time(value: Value, limit_ns: int) -> float:
    """Nanoseconds; NaN for what is no whole number from 0 to ``limit_ns``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _UNKNOWN
    is_time = 0 <= value <= limit_ns and int(value) == value
    return float(value) if is_time else _UNKNOWN


_STATUS_ERROR = 2
_KINDS = frozenset(semconv.SECTION_KINDS)
_SECTION_KEYS = (
    semconv.SECTION_KIND,
    semconv.SECTION_PARENT,
    semconv.PHASE,
    semconv.SPAN_TRUNCATED,
    *FOLD_KEYS,
    semconv.TIME_BASIS,
)

Attributes = dict[str, Value]
"""The attributes of a span that mean something here."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The attributes of a span that mean something: those of its sender (``identity``), those whose
    value differs from span to span (``numbers``), and all (``wanted``). ``with_activities``: steps,
    spans with an error, and spans that name a category of badput are rows, too."""

    aliases: Aliases
    names: SpanNames
    identity: frozenset[str]
    wanted: frozenset[str]
    numbers: frozenset[str]
    with_activities: bool = False

    @classmethod
    def of(cls, aliases: Aliases, names: SpanNames, *, with_activities: bool = False) -> Keys:
        identity = aliases.identity_keys()
        numbers = frozenset((*aliases.step, semconv.SEQ, semconv.TOKENS, *TIME_KEYS))
        wanted = identity.union(numbers, aliases.section, _SECTION_KEYS)
        if with_activities:
            wanted = wanted.union({semconv.BADPUT_CATEGORY})
        return cls(aliases, names, identity, wanted, numbers, with_activities)

    def find(self, span: Any) -> Attributes:
        wanted = self.wanted
        attributes = {}
        for pair in span.attributes:
            key = pair.key
            if key in wanted:
                attributes[key] = read_value(pair.value)
        return attributes

    def identity_of(self, resource: Resource, attributes: Attributes) -> Identity:
        if self.identity.isdisjoint(attributes):
            return resource.identity
        return resource.overridden_by({k: v for k, v in attributes.items() if k in self.identity})

    def step_key(self, attributes: Attributes) -> str | None:
        return next((key for key in self.aliases.step if key in attributes), None)

    def plain_name(self, span: Any, attributes: Attributes) -> str:
        """The name under which a span without ``straggler.section`` is scored."""
        for key in self.aliases.section:
            if attributes.get(key):
                return str(attributes[key])
        name: str = span.name
        return name


SectionKey = tuple[str, Value, Value, Value]
"""Name, kind, phase and parent of a section as a span gives them."""


def shape_of(
    span: Any, attributes: Attributes, keys: Keys, *, is_own: bool
) -> tuple[SectionKey | None, str]:
    """The section that a span is scored as; None and its outcome if it is not."""
    if keys.with_activities:
        activity = _activity_of(span, attributes, is_own=is_own)
        if activity:
            return (f"{semconv.ACTIVITY_PREFIX}{activity}", "other", None, None), ROW
    kind = attributes.get(semconv.SECTION_KIND)
    section = attributes.get(semconv.SECTION)
    if section:
        name = str(section)
    else:
        name = keys.plain_name(span, attributes)
        if not name:
            return None, NO_NAME
        if is_own and name == semconv.STEP_SPAN:
            return None, STEP
        if not keys.names.is_scored(name):
            return None, EXCLUDED
        kind = kind or keys.names.kind_of(name)
    if span.status.code == _STATUS_ERROR:
        return None, ERROR_STATUS
    if attributes.get(semconv.SPAN_TRUNCATED) in (True, "true"):
        return None, TRUNCATED
    return (name, kind, attributes.get(semconv.PHASE), attributes.get(semconv.SECTION_PARENT)), ROW


def _activity_of(span: Any, attributes: Attributes, *, is_own: bool) -> str:
    """The activity that a span is, whatever its name; empty if it is a section. One that failed
    says only that its process was alive."""
    category = attributes.get(semconv.BADPUT_CATEGORY)
    if category:
        return str(category)
    if span.status.code == _STATUS_ERROR:
        return "attempt"
    is_step = is_own and span.name == semconv.STEP_SPAN and not attributes.get(semconv.SECTION)
    return "step" if is_step else ""


def step_of(attributes: Attributes, keys: Keys) -> int:
    key = keys.step_key(attributes)
    step = None if key is None else as_int(attributes[key])
    return NO_STEP if step is None or step < 0 else step


def section_of(name: str, kind: Value, phase: Value, parent: Value = None) -> Section:
    """Name and kind under which a section is scored; a phase keeps it apart from training.

    >>> section_of("forward", "compute", "eval").name
    'eval/forward'
    """
    own_kind: SectionKind = kind if kind in _KINDS else "compute"
    around = clean_name(str(parent or ""))
    return Section(clean_name(name), own_kind, around).in_phase(clean_name(str(phase or "")))
