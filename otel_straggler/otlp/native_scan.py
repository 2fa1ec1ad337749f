"""Requests read by the extension module: columns at once, rules asked for once per case.

C++ walks the bytes and distinguishes cases; a case is decided here, with the code that reads span
by span. Whatever C++ does not take is left to protobuf's own parser.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import ModuleType
from typing import Any, Generic, TypeVar

import numpy as np
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_straggler import semconv
from otel_straggler.model.observation import NO_KERNEL, GpuTimes, ObservationBatch, Section
from otel_straggler.model.rank import Source
from otel_straggler.otlp import span_rules as rules
from otel_straggler.otlp.folded_spans import FOLD_KEYS
from otel_straggler.otlp.identity import Resources, as_int, as_size

_Name = TypeVar("_Name")
_Decoded = TypeVar("_Decoded")
_NUMBER, _WHO, _SHAPE, _SECTION, _FOREIGN = range(5)
_SCOPE, _SENDER, _SHAPE_OF_SPAN = range(3)
_UNFAMILIAR, _FULL = 1, 2
_FROM_IDS, _FIXED, _FROM_NUMBER = range(3)
_ABSENT, _NO_NUMBER = -1, -2
_MAX_NUMBERS = 64
_MAX_PASSES = 8
"""A request is read again for each kind of case at most; the rest is for other threads."""
_OUTCOME_CODES = {outcome: number for number, outcome in enumerate(rules.SPAN_OUTCOMES)}


class CodeTable(Generic[_Name]):
    """Numbers for names, in the order of their first use. Safe to use from several threads."""

    def __init__(self) -> None:
        self.names: list[_Name] = []
        self._codes: dict[_Name, int] = {}
        self._lock = threading.Lock()

    def code(self, name: _Name) -> int:
        with self._lock:
            code = self._codes.setdefault(name, len(self.names))
            if code == len(self.names):
                self.names.append(name)
            return code


class Cases(ABC, Generic[_Decoded]):
    """A scanner of the extension module, the cases taught to it, and the names of its codes."""

    def __init__(self, scanner: Any) -> None:
        self._scanner = scanner

    def decode(self, body: bytes) -> _Decoded | int:
        """Decode the body; a number if it is unfamiliar, or there is no room for its cases.

        Raises:
            DecodeError: it is no request.
        """
        for _ in range(_MAX_PASSES):
            result = self._scanner.scan(body)
            if isinstance(result, tuple):
                return self._decoded(*result)
            if isinstance(result, int):
                return result
            for case, number, context, sample in result:
                self._teach(case, number, context, sample)
        return _UNFAMILIAR

    @abstractmethod
    def _teach(self, case: int, number: int, context: bytes, sample: bytes) -> None:
        """Decide over one case.

        Raises:
            DecodeError: context or sample is not what it should be.
        """

    @abstractmethod
    def _decoded(self, *columns: Any) -> _Decoded:
        """The meaning of the columns of a scan."""


class NativeDecoder(Generic[_Decoded]):
    """Decodes requests; safe to use from several threads. When there is no room for another case,
    all are learned again."""

    def __init__(self, make_cases: Callable[[], Cases[_Decoded]]) -> None:
        self._make_cases = make_cases
        self._cases = make_cases()

    def decode(self, body: bytes) -> _Decoded | None:
        """None if protobuf's own parser has to read it.

        Raises:
            DecodeError: it is no request.
        """
        result = self._cases.decode(body)
        if result == _FULL:
            fresh = self._make_cases()
            result = fresh.decode(body)
            if not isinstance(result, int):
                self._cases = fresh
        return None if isinstance(result, int) else result


def can_scan(keys: rules.Keys) -> bool:
    """True if each key means one thing only, as C++ needs it; the built-in ones do."""
    others = keys.wanted - keys.numbers - keys.identity
    return len(keys.numbers) <= _MAX_NUMBERS and len(keys.wanted) == sum(
        map(len, (others, keys.numbers, keys.identity))
    )


class SpanCases(Cases[rules.DecodedSpans]):
    """Cases of trace requests: scopes, senders, and shapes of spans."""

    def __init__(self, native: ModuleType, keys: rules.Keys, resources: Resources) -> None:
        self._keys = keys
        self._resources = resources
        self._slots = {key: slot for slot, key in enumerate(sorted(keys.numbers))}
        self._sources = CodeTable[Source]()
        self._sections = CodeTable[Section]()
        outcomes = (rules.ROW, rules.BAD_ID, rules.BAD_TIME, rules.DURATION_NOT_POSITIVE)
        codes = tuple(_OUTCOME_CODES[outcome] for outcome in outcomes)
        super().__init__(native.Scanner(self._roles(), codes))

    def _roles(self) -> list[tuple[str, int, int]]:
        roles = {**dict.fromkeys(self._keys.wanted, _SHAPE), semconv.SECTION: _SECTION}
        roles |= dict.fromkeys(self._keys.identity, _WHO)
        roles |= dict.fromkeys(self._keys.numbers, _NUMBER)
        roles |= dict.fromkeys((*FOLD_KEYS, semconv.FOLD_SKETCH), _FOREIGN)  # left to protobuf
        return [(key, role, self._slots.get(key, 0)) for key, role in sorted(roles.items())]

    def _teach(self, case: int, number: int, context: bytes, sample: bytes) -> None:
        if case == _SCOPE:
            self._scanner.learn_scope(number, _is_own(sample))
        elif case == _SENDER:
            self._teach_sender(number, context, sample)
        else:
            self._teach_shape(number, Span.FromString(sample), is_own=_is_own(context))

    def _teach_sender(self, number: int, resource: bytes, sample: bytes) -> None:
        attributes = self._keys.find(Span.FromString(sample))
        identity = self._keys.identity_of(self._resources.read_bytes(resource), attributes)
        if identity.source is None:
            self._scanner.learn_sender(number, -1, _OUTCOME_CODES[identity.outcome])
        else:
            code = self._sources.code(identity.source)
            self._scanner.learn_sender(number, code, 0)

    def _teach_shape(self, number: int, span: Any, *, is_own: bool) -> None:
        attributes = self._keys.find(span)
        key, outcome = rules.shape_of(span, attributes, self._keys, is_own=is_own)
        section = -1
        if key is not None:
            section = self._sections.code(rules.section_of(*key))
        self._scanner.learn_shape(
            number,
            section,
            _OUTCOME_CODES[outcome],
            (
                self._slot(attributes, self._keys.step_key(attributes)),
                rules.step_of(attributes, self._keys),
            ),
            self._sequence(attributes),
            self._tokens(attributes),
            self._gpu(attributes),
        )

    def _sequence(self, attributes: rules.Attributes) -> tuple[int, int, int]:
        slot = self._slot(attributes, semconv.SEQ)
        if slot >= 0:
            return _FROM_NUMBER, slot, 0
        seq = as_int(attributes.get(semconv.SEQ))
        return (_FROM_IDS, 0, 0) if seq is None else (_FIXED, 0, seq)

    def _tokens(self, attributes: rules.Attributes) -> tuple[int, float]:
        size = as_size(attributes.get(semconv.TOKENS))
        return self._slot(attributes, semconv.TOKENS), math.nan if size is None else size

    def _gpu(self, attributes: rules.Attributes) -> tuple[int, int, int, int]:
        """Basis, and where the times are that it needs; ``_NO_NUMBER`` for what is none."""
        basis = rules.basis_of(attributes.get(semconv.TIME_BASIS))
        busy, nccl, kernel = (
            self._slot(attributes, key, _NO_NUMBER) if key in attributes else _ABSENT
            for key in rules.GPU_KEYS
        )
        return (basis, busy, nccl, kernel)

    def _slot(self, attributes: rules.Attributes, key: str | None, other: int = -1) -> int:
        """The slot of a number in C++; ``other`` if it does not differ from span to span."""
        value = None if key is None else attributes.get(key)
        if key is None or isinstance(value, bool) or not isinstance(value, (int, float)):
            return other
        return self._slots[key]

    def _decoded(self, *columns: Any) -> rules.DecodedSpans:
        (
            source, section, step, start, duration, seq, tokens, gpu, sources, sections, outcomes,
            progress, refused,
        ) = columns  # fmt: skip
        rows = np.frombuffer(source, np.int32)
        batch = ObservationBatch(
            sources=tuple([self._sources.names[code] for code in sources]),
            sections=tuple([self._sections.names[code] for code in sections]),
            source=rows,
            section=np.frombuffer(section, np.int32),
            kernel=np.full(len(rows), NO_KERNEL, np.int32),
            step=np.frombuffer(step, np.int64),
            start_ns=np.frombuffer(start, np.int64),
            duration_s=np.frombuffer(duration, np.float64),
            seq=np.frombuffer(seq, np.int64),
            tokens=None if tokens is None else np.frombuffer(tokens, np.float64),
            gpu=None if gpu is None else _gpu_times(*gpu),
        )
        return rules.DecodedSpans(
            batch=batch,
            outcomes={rules.SPAN_OUTCOMES[outcome]: count for outcome, count in outcomes.items()},
            progress={self._sources.names[code]: rules.Progress(*far) for code, *far in progress},
            refused_gpu_times=refused,
        )


def _gpu_times(basis: bytearray, *times: bytearray) -> GpuTimes:
    return GpuTimes(
        np.frombuffer(basis, np.uint8), *(np.frombuffer(column, np.float64) for column in times)
    )


def _is_own(scope: bytes) -> bool:
    return bool(InstrumentationScope.FromString(scope).name == semconv.SCOPE_NAME)
