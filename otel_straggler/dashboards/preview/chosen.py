"""Values that stand for the variables of a page, and how they are written into text.

In an expression a value of a variable that may be several is written as a regular expression, any
other only with quotes made safe: Grafana's rule, so ``=~"$run_id"`` of one run reads its dots.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

ALL: Final = "$__all"
_USE: Final = re.compile(r"\$(\w+)|\$\{(\w+)(?:\.([^:}]+))?(?::(\w+))?\}|\[\[(\w+)(?::(\w+))?\]\]")
_SPECIAL: Final = re.compile(r"[$^*{}\[\]'+?.()|]")


@dataclass(frozen=True, slots=True)
class Chosen:
    """A variable with its value or values. ``all_value`` is written where all are meant."""

    name: str
    values: tuple[str, ...]
    is_many: bool = False
    is_all: bool = False
    all_value: str = ""
    label: str = ""

    def shown(self) -> str:
        return "All" if self.is_all else ", ".join(self.values) or "None"

    def in_query(self) -> str:
        """As it stands in PromQL, between the quotes that the page has written."""
        if self.is_all and self.all_value:
            return self.all_value
        if not self.is_many:
            return self.values[0].replace("\\", "\\\\").replace("'", "\\\\'") if self.values else ""
        escaped = [_pattern(value) for value in self.values]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"

    def formatted(self, kind: str) -> str:
        """By the name of a format, as in ``${run_id:csv}``; what is not known is joined."""
        if kind == "queryparam":
            told = (ALL,) if self.is_all else self.values
            return "&".join(f"var-{self.name}={quote(value, safe='')}" for value in told)
        if self.is_all and self.all_value:
            return self.all_value
        joined = _FORMATS.get(kind)
        return joined(self.values) if joined else ",".join(self.values)


def _pattern(value: str) -> str:
    """Matches the value alone, inside a string of PromQL.

    >>> _pattern("a.b")
    'a\\\\\\\\.b'
    """
    return _SPECIAL.sub(lambda found: f"\\\\{found[0]}", value.replace("\\", "\\\\\\\\"))


def _escaped(values: tuple[str, ...]) -> str:
    escaped = [re.sub(r"[\\^$.*+?()\[\]{}|/]", r"\\\g<0>", value) for value in values or ("",)]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


_FORMATS: Final[dict[str, Callable[[tuple[str, ...]], str]]] = {
    "csv": ",".join,
    "pipe": "|".join,
    "raw": ",".join,
    "text": " + ".join,
    "glob": lambda values: values[0] if len(values) == 1 else f"{{{','.join(values)}}}",
    "regex": _escaped,
    "doublequote": lambda values: ",".join('"' + v.replace('"', '\\"') + '"' for v in values),
    "singlequote": lambda values: ",".join("'" + v.replace("'", "\\'") + "'" for v in values),
    "percentencode": lambda values: quote(",".join(values), safe=""),
}


def filled(
    text: str, chosen: Mapping[str, Chosen], more: Mapping[str, str], *, is_query: bool = True
) -> str:
    """The text with a value in the place of each variable that is known.

    Args:
        more: values of what is no variable of the page, as ``__interval``; by name, or by name
            and path, as ``__field.labels.rank``.
        is_query: values are made safe for PromQL.

    >>> filled("$a ${b.c} $d", {"a": Chosen("a", ("1",))}, {"b.c": "2"})
    '1 2 $d'
    """

    def value_of(found: re.Match[str]) -> str:
        name = found[1] or found[2] or found[5]
        key = f"{name}.{found[3]}" if found[3] else name
        kind = found[4] or found[6]
        if key in more:
            return quote(more[key], safe="") if kind == "percentencode" else more[key]
        held = chosen.get(name)
        if held is None:
            return found[0]
        if kind:
            return held.formatted(kind)
        return held.in_query() if is_query else held.formatted("raw")

    return _USE.sub(value_of, text)
