"""What a setting of a training process is: where its value comes from, and what it may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, replace
from typing import Any

from otel_straggler.errors import ConfigError, describe

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a setting may be, and what a wrong one says.

    Attributes:
        accepts: whether a value is right.
        expected, remedy: of the error; the default stands in ``{default}``.
        read: an environment variable's text as a value.
        convert: a right value as it is kept.
        is_secret: errors do not show the value.
        takes_none: whether None means "not given".
    """

    accepts: Callable[[Any], bool]
    expected: str
    remedy: str = "Leave it out for the default."
    read: Callable[[str], object] = str
    convert: Callable[[Any], object] = lambda value: value
    is_secret: bool = False
    takes_none: bool = True


def is_number(value: object) -> bool:
    """Whether it is a finite number."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and math.isfinite(value)  # type: ignore[arg-type]


def read_number(text: str) -> object:
    """The number, or the text where it is none, which is then refused."""
    try:
        return float(text)
    except ValueError:
        return text


def count(minimum: int, maximum: int, remedy: str = "Leave it out for the default.") -> Kind:
    """A whole number within bounds."""
    return Kind(
        accepts=lambda value: type(value) is int and minimum <= value <= maximum,
        expected=f"a whole number from {minimum} to {maximum}",
        remedy=remedy,
        read=lambda text: int(text) if text.isdecimal() else text,
    )


TEXT = Kind(accepts=lambda value: isinstance(value, str), expected="a text")
FLAG = Kind(
    accepts=lambda value: isinstance(value, bool), expected="True or False", takes_none=False
)
SECONDS = Kind(
    accepts=lambda value: is_number(value) and 0 < value <= 86_400,
    expected="seconds above 0, at most a day",
    remedy="Leave it out for the default of {default} s.",
    read=read_number,
    convert=float,
)
SECONDS_OR_NEVER = replace(SECONDS, accepts=lambda value: is_number(value) and 0 <= value <= 86_400)


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable.

    Attributes:
        name: of the variable.
        example: a value.
        needs: other variables with values, without which it is not looked at.
        key: of several in the variable, the one that counts.
    """

    name: str
    example: str
    needs: Pairs = ()
    key: str = ""


Source = Variable | str
"""A variable, or a description of another place that is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting, and where it comes from if no argument gives it: the first that is found.

    Attributes:
        name: an argument of ``configure()``, or a description of another setting.
        sources: in order of precedence; our own variable first.
        otherwise: what the page says of the default; empty = the default itself.
        meaning: of a setting that is no argument.
        kind: what it may be; None: the resolver has code of its own for it.
        default: if nothing is found.
        field: of ``ClientSettings``; empty where it has none.
    """

    name: str = ""
    sources: tuple[Source, ...] = ()
    otherwise: str = ""
    meaning: str = ""
    kind: Kind | None = None
    default: Any = None
    field: str = ""

    def value(self, given: Mapping[str, object], env: Mapping[str, str]) -> object:
        """Of the argument, else of our own variable, else the default.

        Raises:
            ConfigError: it is not what it may be.
        """
        assert self.kind is not None
        where, value = f"configure({self.field}=...)", given.get(self.field)
        written: object = value
        if value is None and (self.kind.takes_none or self.field not in given):
            where = self.own_variable
            text = env.get(where, "").strip() if where else ""
            if not text:
                return self.default
            written, value = text, self.kind.read(text)
        if self.kind.accepts(value):
            return self.kind.convert(value)
        raise self.refusal(where, written)

    def refusal(self, where: str, value: object) -> ConfigError:
        """The error of a wrong value."""
        assert self.kind is not None
        return ConfigError(
            describe(
                where=where,
                value="..." if self.kind.is_secret else value,
                expected=self.kind.expected,
                remedy=self.kind.remedy.format(default=self.default),
            )
        )

    @property
    def own_variable(self) -> str:
        """Our own environment variable; empty if there is none."""
        names = (v.name for v in self.sources if isinstance(v, Variable))
        return next((name for name in names if name.startswith("OTEL_STRAGGLER_")), "")


def own(name: str, example: str, *others: Source) -> tuple[Source, ...]:
    """Our own variable of a setting, then others."""
    return (Variable(f"OTEL_STRAGGLER_{name}", example), *others)


def setting(default: Any, kind: Kind | None, *sources: Source, **described: str) -> Any:
    """A field with its row of the table; ``name``, if given, stands for it on the page. Default
    ``MISSING``: the resolver finds another value where it is empty."""
    settled = "" if default is MISSING else default
    row = Setting(sources=sources, kind=kind, default=settled, **described)
    is_shown = kind is None or not kind.is_secret
    return field(default=default, repr=is_shown, metadata={"setting": row})


def otlp(name: str, example: str, needs: Pairs = ()) -> tuple[Variable, ...]:
    """A variable of OpenTelemetry's exporters: of each signal, then of both."""
    return tuple(
        Variable(f"OTEL_EXPORTER_OTLP_{signal}{name}", example, needs)
        for signal in ("TRACES_", "METRICS_", "")
    )


def row(name: str, sources: tuple[Source, ...], otherwise: str, meaning: str = "") -> Setting:
    """A row of the table that is no field."""
    return Setting(name=name, sources=sources, otherwise=otherwise, meaning=meaning)
