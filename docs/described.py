"""What the code says of its own arguments and settings, for the reference pages."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_ENTRY = re.compile(r"^ {4}(\w[\w, ]*): (.*)$")


class Undescribed(Exception):  # noqa: N818  it is said to a person, as a sentence
    """Something that a page must tell has no description in the code."""


def described(documented: Any, names: Iterable[str], heading: str) -> dict[str, str]:
    """What the docstring says of each name, under ``Args:`` or ``Attributes:``.

    Raises:
        Undescribed: a name is missing there; the sentence names it.
    """
    reported = entries(inspect.getdoc(documented) or "", heading)
    where = f"{documented.__module__}.{documented.__qualname__}"
    for name in names:
        if name not in reported:
            raise Undescribed(
                f"{where} does not describe {name!r}. Add a line '{name}: ...' under '{heading}:' "
                "of its docstring; the reference page is made from it."
            )
    return reported


def entries(docstring: str, heading: str) -> dict[str, str]:
    """The entries ``a, b: text`` under a heading, each name with the text.

    >>> entries("Do.\\n\\nArgs:\\n    a, b: first\\n        and more.\\n    c: last.", "Args")
    {'a': 'first and more', 'b': 'first and more', 'c': 'last'}
    """
    texts: dict[tuple[str, ...], list[str]] = {}
    names: tuple[str, ...] = ()
    _, _, rest = docstring.partition(f"{heading}:\n")
    for line in rest.splitlines():
        if line.strip() and not line.startswith(" "):
            break
        entry = _ENTRY.match(line)
        if entry:
            names = tuple(name.strip() for name in entry[1].split(","))
            texts[names] = [entry[2]]
        elif names:
            texts[names].append(line.strip())
    return {
        name: " ".join(filter(None, text)).replace("``", "`").removesuffix(".")
        for many, text in texts.items()
        for name in many
    }


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The arguments of a function and their defaults; ``cls`` is bound already."""
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters}


def unit_of(name: str) -> str:
    """Units stand in names.

    >>> unit_of("flush_s"), unit_of("queue_bytes"), unit_of("sdk_spans_per_s"), unit_of("role")
    ('s', 'bytes', 'spans/s', '')
    """
    units = {
        "_per_s": f"{name.split('_')[-3] if name.count('_') > 2 else ''}/s",
        "_s": "s",
        "_seconds": "s",
        "_bytes": "bytes",
        "_steps": "steps",
    }
    return next((unit for suffix, unit in units.items() if name.endswith(suffix)), "")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    lines = [list(head), ["---"] * len(list(head)), *map(list, rows)]
    return "".join("| " + " | ".join(map(_cell, line)) + " |\n" for line in lines)


def code(value: object) -> str:
    """A value as one types it.

    >>> code(5.0), code(""), code(("a", "b")), code(())
    ('`5.0`', '`""`', '`a`, `b`', '`[]`')
    """
    if isinstance(value, tuple | list) and value:
        return ", ".join(map(code, value))
    return "`{}`".format("[]" if value in ((), []) else '""' if value == "" else value)


def only(result: Mapping[str, str], name: str, remedy: str) -> str:
    """A text that somebody has to write by hand."""
    if name in result:
        return result[name]
    raise Undescribed(f"{name!r} has no description. {remedy}")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
