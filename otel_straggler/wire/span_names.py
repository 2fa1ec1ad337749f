"""Which plain spans are scored, and as what: patterns of their names.

A plain span is one that does not name its section in ``straggler.section``. Patterns are globs:
``*`` stands for anything (dots too), ``?`` for one character, ``[ab]`` for one of several. Case
counts, and a pattern covers the whole name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from otel_straggler import semconv
from otel_straggler.semconv import SectionKind

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
