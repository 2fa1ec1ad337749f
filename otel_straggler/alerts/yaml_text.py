"""Just enough YAML to write: mappings, lists, quoted text, blocks of text. Keys keep their
order."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_ .()/-]*[A-Za-z0-9)]|[A-Za-z]")
_RESERVED: Final = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def to_yaml(value: Any, indent: int = 0) -> str:
    """The lines of ``value``, each ended.

    >>> print(to_yaml({"a": [{"b": "x: y", "c": 1}], "d": "two\\nlines"}), end="")
    a:
      - b: "x: y"
        c: 1
    d: |
      two
      lines
    """
    pad = " " * indent
    if isinstance(value, Mapping):
        return "".join(f"{pad}{key}:{_after_key(item, indent)}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "".join(f"{pad}- {to_yaml(each, indent + 2)[indent + 2 :]}" for each in value)
    return f"{pad}{_scalar(value)}\n"


def _after_key(item: Any, indent: int) -> str:
    if isinstance(item, str) and "\n" in item:
        pad = " " * (indent + 2)
        lines = (f"{pad}{line}".rstrip() + "\n" for line in item.rstrip("\n").split("\n"))
        return " |\n" + "".join(lines)
    if isinstance(item, (Mapping, list, tuple)):
        empty = " {}\n" if isinstance(item, Mapping) else " []\n"
        return "\n" + to_yaml(item, indent + 2) if item else empty
    return f" {_scalar(item)}\n"


def _scalar(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if not isinstance(value, str):
        return str(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    if '"' in value and "'" not in value and value.isprintable():
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False)
