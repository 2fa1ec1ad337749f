"""What the attributes of a span mean: who sent it, and which section of which step it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from otel_straggler import semconv
from otel_straggler.model.observation import NO_STEP, Section
from otel_straggler.semconv import SectionKind
from otel_straggler.wire.identity import Aliases, Identity, Resource, Value, as_int, read_value
from otel_straggler.wire.span_fates import ERROR_STATUS, EXCLUDED, NO_NAME, ROW, STEP, TRUNCATED
from otel_straggler.wire.span_gpu import GPU_KEYS
from otel_straggler.wire.span_names import SpanNames

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

Found = dict[str, Value]
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

    def find(self, span: Any) -> Found:
        """The attributes of a protobuf ``Span`` that mean something."""
        wanted = self.wanted
        found = {}
        for pair in span.attributes:
            key = pair.key
            if key in wanted:
                found[key] = read_value(pair.value)
        return found

    def who(self, resource: Resource, found: Found) -> Identity:
        """Who sent the span."""
        if self.identity.isdisjoint(found):
            return resource.identity
        return resource.overridden_by({k: v for k, v in found.items() if k in self.identity})

    def step_key(self, found: Found) -> str | None:
        """The attribute that holds the step: the first alias that is there."""
        return next((key for key in self.aliases.step if key in found), None)

    def plain_name(self, span: Any, found: Found) -> str:
        """What a span without ``straggler.section`` is scored under."""
        for key in self.aliases.section:
            if found.get(key):
                return str(found[key])
        name: str = span.name
        return name


SectionKey = tuple[str, Value, Value, Value]
"""Name, kind, phase and parent of a section as a span gives them."""


def shape_of(span: Any, found: Found, keys: Keys, *, is_own: bool) -> tuple[SectionKey | None, str]:
    """The section that a span is scored as; None and its fate if it is not."""
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


def step_of(found: Found, keys: Keys) -> int:
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
