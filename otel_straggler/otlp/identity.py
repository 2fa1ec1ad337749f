"""Resource and span attributes -> the sender. Alias lists make telemetry of other tools readable.
Answers are remembered by a digest of the resource, within a bound of bytes."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage

from otel_straggler import semconv
from otel_straggler.model.names import clean_name
from otel_straggler.model.rank import Source

Value: TypeAlias = str | int | float | bool | None
Values: TypeAlias = Mapping[str, Value]

NO_RANK = "no_rank"
BAD_RANK = "bad_rank"
RESOURCE_TOO_LARGE = "resource_too_large"

MAX_RESOURCE_BYTES: Final = 64 * 1024
"""Encoded; what a larger one sends is rejected. With all that Kubernetes adds it is a tenth."""
MAX_REMEMBERED_BYTES: Final = 32 * 1024 * 1024
"""Of all resources of a collector, in memory; beyond it all are read again."""
_MAX_VARIANTS_BYTES: Final = 8 * 1024 * 1024
"""Of what spans and points say beyond one resource."""
_VALUE_BYTES: Final = 200
"""In memory of a key and a value, without their text."""
_MAX_RANK = 2**31 - 1
_MAX_VALUE: Final = 1024
"""Characters kept of a text; no rule needs more."""
_UNKNOWN_RUN = "unknown_service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aliases:
    """Attribute keys that are read as rank, run and so on; the first that is present wins."""

    rank: tuple[str, ...] = semconv.RANK_ALIASES
    world_size: tuple[str, ...] = semconv.WORLD_SIZE_ALIASES
    local_rank: tuple[str, ...] = semconv.LOCAL_RANK_ALIASES
    run_id: tuple[str, ...] = semconv.RUN_ID_ALIASES
    step: tuple[str, ...] = semconv.STEP_ALIASES
    role: tuple[str, ...] = semconv.ROLE_ALIASES
    section: tuple[str, ...] = semconv.SECTION_ALIASES

    def extended(self, **keys: tuple[str, ...]) -> Aliases:
        """The same with more keys, which win over those that were there.

        >>> Aliases(rank=("a", "b")).extended(rank=("c", "a")).rank
        ('c', 'a', 'b')
        """
        merged = {
            name: tuple(dict.fromkeys((*more, *getattr(self, name)))) for name, more in keys.items()
        }
        return replace(self, **merged)

    def process_keys(self) -> frozenset[str]:
        """Keys that say which process sent."""
        own = (semconv.GROUP, semconv.RUN_ATTEMPT, semconv.SESSION_ID)
        return frozenset((*self.rank, *self.world_size, *self.local_rank, *self.run_id, *own))

    def identity_keys(self) -> frozenset[str]:
        """Keys that say who sent, and so may override the resource when on a span."""
        return self.process_keys().union(self.role)


@dataclass(frozen=True, slots=True)
class Identity:
    """A source, or why there is none (``NO_RANK`` or ``BAD_RANK``)."""

    source: Source | None
    outcome: str = ""


class Resource:
    """One resource, read once; span attributes may override what it says."""

    __slots__ = ("_aliases", "_memory", "_variants", "_variants_bytes", "identity", "values")

    def __init__(self, values: Values, aliases: Aliases, memory: Memory | None = None) -> None:
        self.values = values
        self._aliases = aliases
        self._memory = memory or Memory()
        self._variants: dict[tuple[object, ...], Identity] = {}
        self._variants_bytes = 0
        self.identity = identify((values,), aliases)

    def overridden_by(self, attributes: Mapping[str, Value]) -> Identity:
        """The identity where ``attributes`` (of a span or a data point) win."""
        attributes = {key: _shortened(value) for key, value in attributes.items()}
        # With types: True is 1 for a dict, but it is no rank.
        key = (*attributes.items(), *map(type, attributes.values()))
        known = self._variants.get(key)
        if known is None:
            known = identify((attributes, self.values), self._aliases)
            if self._variants_bytes > _MAX_VARIANTS_BYTES:
                self._memory.add(-self._variants_bytes)
                self._variants, self._variants_bytes = {}, 0
            size = size_of_values(attributes)
            self._variants[key] = known
            self._variants_bytes += size
            self._memory.add(size)
        return known


class _TooLarge(Resource):
    """Whoever it names, nothing of it is read."""

    __slots__ = ()

    def __init__(self, aliases: Aliases) -> None:
        super().__init__({}, aliases)
        self.identity = Identity(None, RESOURCE_TOO_LARGE)

    def overridden_by(self, attributes: Mapping[str, Value]) -> Identity:  # noqa: ARG002
        return self.identity


class Memory:
    """A count of remembered bytes, shared by threads."""

    def __init__(self) -> None:
        self.size = 0
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        with self._lock:
            self.size += size


class Resources:
    """Resources by a digest of their bytes; safe to use from several threads, and shared by the
    decoders of a collector, so that one bound holds for all."""

    def __init__(self, aliases: Aliases, max_bytes: int = MAX_REMEMBERED_BYTES) -> None:
        self._aliases = aliases
        self._max_bytes = max_bytes
        self._memory = Memory()
        self._known: dict[bytes, Resource] = {}
        self._too_large = _TooLarge(aliases)

    @property
    def remembered_bytes(self) -> int:
        return self._memory.size

    def remembered(self) -> list[Resource]:
        """Resources that were read lately."""
        return list(self._known.values())

    def read(self, message: Any) -> Resource:
        if message.ByteSize() > MAX_RESOURCE_BYTES:
            return self._too_large
        key = _digest(message.SerializeToString())
        return self._recall(key) or self._learn(key, message)

    def read_bytes(self, encoded: bytes) -> Resource:
        """Raises DecodeError for what is no resource."""
        key = _digest(encoded)
        known = self._recall(key)
        if known is not None:
            return known
        message = ResourceMessage.FromString(encoded)
        return self._too_large if len(encoded) > MAX_RESOURCE_BYTES else self._learn(key, message)

    def _recall(self, key: bytes) -> Resource | None:
        if self._memory.size > self._max_bytes:
            self._known, self._memory = {}, Memory()
        return self._known.get(key)

    def _learn(self, key: bytes, message: Any) -> Resource:
        values = {k: _shortened(v) for k, v in read_attributes(message.attributes).items()}
        self._memory.add(size_of_values(values))
        known = self._known[key] = Resource(values, self._aliases, self._memory)
        return known


def _digest(encoded: bytes) -> bytes:
    return hashlib.blake2b(encoded, digest_size=16).digest()


def _shortened(value: Value) -> Value:
    return value[:_MAX_VALUE] if isinstance(value, str) else value


def size_of_values(values: Mapping[str, Value]) -> int:
    """Bytes in memory, about."""
    texts = sum(len(value) for value in values.values() if isinstance(value, str))
    return texts + sum(map(len, values)) + _VALUE_BYTES * (len(values) + 2)


def identify(layers: tuple[Values, ...], aliases: Aliases) -> Identity:
    """Read who sent from attributes; earlier layers win over later ones.

    >>> identify(({"rank": "3"}, {"service.name": "job"}), Aliases()).source.run_id
    'job'
    """
    rank_value = _first(layers, aliases.rank)
    if rank_value is None:
        return Identity(None, NO_RANK)
    rank = as_int(rank_value)
    world_size = as_int(_first(layers, aliases.world_size)) or 0
    world_size = world_size if 0 < world_size <= _MAX_RANK else 0
    if rank is None or not 0 <= rank <= (world_size - 1 if world_size else _MAX_RANK):
        return Identity(None, BAD_RANK)
    return Identity(_source(layers, aliases, rank, world_size))


def _source(layers: tuple[Values, ...], aliases: Aliases, rank: int, world_size: int) -> Source:
    job = _text(layers, semconv.SERVICE_NAME)
    local_rank = as_int(_first(layers, aliases.local_rank))
    run_id = _first(layers, aliases.run_id)
    return Source(
        run_id=_as_text(run_id) or job or _UNKNOWN_RUN,
        rank=rank,
        job=job,
        group=_text(layers, semconv.GROUP),
        attempt=max(as_int(_first(layers, (semconv.RUN_ATTEMPT,))) or 0, 0),
        node=_text(layers, semconv.HOST_NAME),
        session_id=_as_text(_first(layers, semconv.SESSION_ALIASES)),
        local_rank=-1 if local_rank is None else local_rank,
        world_size=world_size,
        role=_as_text(_first(layers, aliases.role)) or semconv.DEFAULT_ROLE,
        device=_text(layers, semconv.GPU_UUID),
        device_model=_text(layers, semconv.GPU_MODEL),
        parallel=_parallel(layers),
    )


def _parallel(layers: tuple[Values, ...]) -> tuple[tuple[str, int], ...]:
    ranks = ((d, as_int(_first(layers, keys))) for d, keys in semconv.PARALLEL_RANK_ALIASES.items())
    return tuple((d, rank) for d, rank in ranks if rank is not None)


def _first(layers: tuple[Values, ...], keys: Iterable[str]) -> Value:
    for layer in layers:
        for key in keys:
            value = layer.get(key)
            if value is not None and value != "":
                return value
    return None


def _text(layers: tuple[Values, ...], key: str) -> str:
    return _as_text(_first(layers, (key,)))


def _as_text(value: Value) -> str:
    """A number of a sender that knows only doubles loses its ``.0``."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else clean_name(str(value))


def as_int(value: Value) -> int | None:
    """An integer of 64 bits, also as a double or as a string of digits; None for anything else.

    >>> as_int("12"), as_int(3.0), as_int(True), as_int(1.5), as_int("1e3"), as_int(2**63)
    (12, 3, None, None, None, None)
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str):
        digits = value.removeprefix("-")
        if len(digits) > 19 or not (digits.isascii() and digits.isdigit()):
            return None
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -(2**63) <= value < 2**63 else None


def as_bool(value: Value) -> bool | None:
    """A truth, also as a word or as 0 or 1; None for anything else.

    >>> as_bool(False), as_bool("False"), as_bool("0"), as_bool(1), as_bool("maybe"), as_bool(2.5)
    (False, False, False, True, None, None)
    """
    return _TRUTHS.get(str(value).strip().lower())


_TRUTHS: Final = {
    **dict.fromkeys(("true", "1", "1.0", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "0.0", "no", "off"), False),
}


def as_size(value: Value) -> float | None:
    """A finite number of at least 0, also as a string; None for anything else.

    >>> as_size("4096"), as_size(0.5), as_size(True), as_size(-1), as_size("nan")
    (4096.0, 0.5, None, None, None)
    """
    if value is None or isinstance(value, bool):
        return None
    try:
        size = float(value)
    except ValueError:
        return None
    return size if 0.0 <= size < math.inf else None


def read_attributes(pairs: Iterable[Any]) -> dict[str, Value]:
    """All scalar attributes of protobuf ``KeyValue`` messages."""
    return {pair.key: read_value(pair.value) for pair in pairs}


def read_value(value: Any) -> Value:
    """The scalar of an ``AnyValue``; None for arrays, maps, bytes and nothing."""
    number: int = value.int_value
    if number:
        return number
    text: str = value.string_value
    if text:
        return text
    which = value.WhichOneof("value")
    if which in ("int_value", "string_value", "bool_value", "double_value"):
        scalar: Value = getattr(value, which)
        return scalar
    return None
