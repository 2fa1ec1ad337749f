"""Who sent the spans of a request that was cut, without decoding more of them than needed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_straggler.model.rank import Source
from otel_straggler.wire.identity import Aliases, Resource, Resources
from otel_straggler.wire.slices import Bools, ScopeSlice, Slices
from otel_straggler.wire.span_keys import Keys
from otel_straggler.wire.span_names import SpanNames


class SpanOwners:
    """Tells the spans of some sources apart; safe to use from one thread."""

    def __init__(self, aliases: Aliases | None = None) -> None:
        self._keys = Keys.of(aliases or Aliases(), SpanNames())
        self._resources = Resources(self._keys.aliases)
        self._marks = _shortest(self._keys.identity)

    def source_of(self, resource: bytes) -> Source | None:
        """Who sent, as far as a resource tells."""
        try:
            return self._resources.read_bytes(resource).identity.source
        except DecodeError:
            return None

    def of(self, slices: Slices, scope: ScopeSlice, is_wanted: Callable[[Source], bool]) -> Bools:
        """Which spans of a scope are of a source that is wanted.

        Cost: one search per key through the bytes of the scope; only where the spans themselves
        say who sent them they are decoded one by one.
        """
        try:
            resource = self._resources.read_bytes(slices.resources[scope.resource])
        except DecodeError:
            return np.zeros(len(scope), bool)
        if not len(scope) or not self._tell_themselves(slices.body, scope):
            source = resource.identity.source
            return np.full(len(scope), source is not None and is_wanted(source))
        spans = zip(scope.contents.tolist(), scope.ends.tolist(), strict=True)
        owners = (self._owner(slices.body[a:b], resource) for a, b in spans)
        return np.array([o is not None and is_wanted(o) for o in owners], bool)

    def _tell_themselves(self, body: bytes, scope: ScopeSlice) -> bool:
        begin, end = int(scope.begins[0]), int(scope.ends[-1])
        return any(body.find(mark, begin, end) >= 0 for mark in self._marks)

    def _owner(self, content: bytes, resource: Resource) -> Source | None:
        try:
            found = self._keys.find(Span.FromString(content))
        except DecodeError:
            return None
        return self._keys.who(resource, found).source


def _shortest(keys: frozenset[str]) -> tuple[bytes, ...]:
    """Keys that are in none of the others: where they are not, no other is.

    >>> _shortest(frozenset({"rank", "training.rank", "group"}))
    (b'group', b'rank')
    """
    kept = (key for key in keys if not any(o != key and o in key for o in keys))
    return tuple(sorted(key.encode() for key in kept))
