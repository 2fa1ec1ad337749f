"""Trace requests read by the extension module: columns at once, rules asked for once per case.

C++ walks the bytes and tells cases apart; what a case means is decided here, with the code that
reads span by span. Whatever C++ does not take is left to protobuf's own parser, so it decides what
is no request.
"""

from __future__ import annotations

import math
import threading
from types import ModuleType
from typing import Any

import numpy as np
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_straggler import semconv
from otel_straggler.model.observation import NO_KERNEL, GpuTimes, ObservationBatch, Section
from otel_straggler.model.rank import Source
from otel_straggler.wire.identity import Resources, as_int, as_size
from otel_straggler.wire.span_rules import (
    BAD_ID,
    BAD_TIME,
    DURATION_NOT_POSITIVE,
    GPU_KEYS,
    ROW,
    SPAN_OUTCOMES,
    Attributes,
    DecodedSpans,
    Keys,
    Progress,
    basis_of,
    section_of,
    shape_of,
    step_of,
)

_NUMBER, _WHO, _SHAPE, _SECTION, _FOREIGN = range(5)
_SCOPE_ASKED, _SENDER_ASKED, _SHAPE_ASKED = range(3)
_UNFAMILIAR, _FULL = 1, 2
_FROM_IDS, _FIXED, _FROM_NUMBER = range(3)
_NOT_TOLD, _NO_NUMBER = -1, -2
_MAX_NUMBERS = 64
_MAX_PASSES = 8
"""A request is read once more for scopes, and once for shapes; the rest is for other threads."""
_FOLDS = (
    semconv.FOLD_COUNT,
    semconv.FOLD_SUM,
    semconv.FOLD_MIN,
    semconv.FOLD_MAX,
    semconv.FOLD_SKETCH,
)
"""A span that stands for many has many rows: it is read in Python."""
_OUTCOME_CODES = {outcome: number for number, outcome in enumerate(SPAN_OUTCOMES)}


class NativeScan:
    """Decodes trace requests; safe to use from several threads.

    Memory is bounded: when there is no room for another case, it begins anew.
    """

    def __init__(self, native: ModuleType, keys: Keys, resources: Resources) -> None:
        self._native = native
        self._keys = keys
        self._resources = resources
        self._cases = _Cases(native, keys, resources)

    @staticmethod
    def can_read(keys: Keys) -> bool:
        """Whether each key means one thing only, as C++ needs it; the built-in ones do."""
        others = keys.wanted - keys.numbers - keys.identity
        return len(keys.numbers) <= _MAX_NUMBERS and len(keys.wanted) == sum(
            map(len, (others, keys.numbers, keys.identity))
        )

    def decode(self, body: bytes) -> DecodedSpans | None:
        """None if protobuf's own parser has to read it.

        Raises:
            DecodeError: it is no request.
        """
        found = self._cases.decode(body)
        if found != _FULL:
            return found if isinstance(found, DecodedSpans) else None
        fresh = _Cases(self._native, self._keys, self._resources)
        found = fresh.decode(body)
        if not isinstance(found, DecodedSpans):
            return None
        self._cases = fresh
        return found


class _Cases:
    """What a scanner has been told, and the names that its codes stand for."""

    def __init__(self, native: ModuleType, keys: Keys, resources: Resources) -> None:
        self._keys = keys
        self._resources = resources
        self._slots = {key: slot for slot, key in enumerate(sorted(keys.numbers))}
        self._lock = threading.Lock()
        self._sources: dict[Source, int] = {}
        self._sections: dict[Section, int] = {}
        self._source_list: list[Source] = []
        self._section_list: list[Section] = []
        outcomes = (ROW, BAD_ID, BAD_TIME, DURATION_NOT_POSITIVE)
        self._scanner = native.Scanner(
            self._roles(), tuple(_OUTCOME_CODES[outcome] for outcome in outcomes)
        )

    def _roles(self) -> list[tuple[str, int, int]]:
        roles = {**dict.fromkeys(self._keys.wanted, _SHAPE), semconv.SECTION: _SECTION}
        roles |= dict.fromkeys(self._keys.identity, _WHO)
        roles |= dict.fromkeys(self._keys.numbers, _NUMBER)
        roles |= dict.fromkeys(_FOLDS, _FOREIGN)
        return [(key, role, self._slots.get(key, 0)) for key, role in sorted(roles.items())]

    def decode(self, body: bytes) -> DecodedSpans | int:
        """What is in the body; or that it is unfamiliar, or that there is no room for its cases.

        Raises:
            DecodeError: it is no request.
        """
        for _ in range(_MAX_PASSES):
            found = self._scanner.scan(body)
            if isinstance(found, tuple):
                return self._decoded(found)
            if isinstance(found, int):
                return found
            for question in found:
                self._answer(*question)
        return _UNFAMILIAR

    # --- answers ----------------------------------------------------------------------------

    def _answer(self, asked: int, number: int, context: bytes, sample: bytes) -> None:
        """Decide over one case.

        Raises:
            DecodeError: it is no scope, resource or span.
        """
        if asked == _SCOPE_ASKED:
            self._scanner.learn_scope(number, _is_own(sample))
        elif asked == _SENDER_ASKED:
            self._answer_sender(number, context, sample)
        else:
            self._answer_shape(number, Span.FromString(sample), is_own=_is_own(context))

    def _answer_sender(self, number: int, resource: bytes, sample: bytes) -> None:
        found = self._keys.find(Span.FromString(sample))
        identity = self._keys.who(self._resources.read_bytes(resource), found)
        if identity.source is None:
            self._scanner.learn_sender(number, -1, _OUTCOME_CODES[identity.outcome])
        else:
            code = self._code(identity.source, self._sources, self._source_list)
            self._scanner.learn_sender(number, code, 0)

    def _answer_shape(self, number: int, span: Any, *, is_own: bool) -> None:
        found = self._keys.find(span)
        key, outcome = shape_of(span, found, self._keys, is_own=is_own)
        section = -1
        if key is not None:
            section = self._code(section_of(*key), self._sections, self._section_list)
        self._scanner.learn_shape(
            number,
            section,
            _OUTCOME_CODES[outcome],
            (self._slot(found, self._keys.step_key(found)), step_of(found, self._keys)),
            self._sequence(found),
            self._tokens(found),
            self._gpu(found),
        )

    def _sequence(self, found: Attributes) -> tuple[int, int, int]:
        slot = self._slot(found, semconv.SEQ)
        if slot >= 0:
            return _FROM_NUMBER, slot, 0
        seq = as_int(found.get(semconv.SEQ))
        return (_FROM_IDS, 0, 0) if seq is None else (_FIXED, 0, seq)

    def _tokens(self, found: Attributes) -> tuple[int, float]:
        size = as_size(found.get(semconv.TOKENS))
        return self._slot(found, semconv.TOKENS), math.nan if size is None else size

    def _gpu(self, found: Attributes) -> tuple[int, int, int, int]:
        """Basis, and where the times are that it needs; ``_NO_NUMBER`` for what is none."""
        basis = basis_of(found.get(semconv.TIME_BASIS))
        busy, nccl, kernel = (
            self._slot(found, key, _NO_NUMBER) if key in found else _NOT_TOLD for key in GPU_KEYS
        )
        return (basis, busy, nccl, kernel)

    def _slot(self, found: Attributes, key: str | None, other: int = -1) -> int:
        """Where C++ finds the number; ``other`` if it is none that differs from span to span."""
        value = None if key is None else found.get(key)
        if key is None or isinstance(value, bool) or not isinstance(value, (int, float)):
            return other
        return self._slots[key]

    def _code(self, name: Any, codes: dict[Any, int], names: list[Any]) -> int:
        with self._lock:
            code = codes.setdefault(name, len(names))
            if code == len(names):
                names.append(name)
            return code

    # --- columns ----------------------------------------------------------------------------

    def _decoded(self, found: tuple[Any, ...]) -> DecodedSpans:
        """What the columns of a scan stand for."""
        (
            source, section, step, start, duration, seq, tokens, gpu, sources, sections, outcomes,
            progress, refused,
        ) = found  # fmt: skip
        rows = np.frombuffer(source, np.int32)
        batch = ObservationBatch(
            sources=tuple([self._source_list[code] for code in sources]),
            sections=tuple([self._section_list[code] for code in sections]),
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
        return DecodedSpans(
            batch=batch,
            outcomes={SPAN_OUTCOMES[outcome]: count for outcome, count in outcomes.items()},
            progress={self._source_list[code]: Progress(*far) for code, *far in progress},
            refused_gpu_times=refused,
        )


def _gpu_times(basis: bytearray, *times: bytearray) -> GpuTimes:
    return GpuTimes(
        np.frombuffer(basis, np.uint8), *(np.frombuffer(column, np.float64) for column in times)
    )


def _is_own(scope: bytes) -> bool:
    return bool(InstrumentationScope.FromString(scope).name == semconv.SCOPE_NAME)
