"""Settings as rows of tables: where a value comes from, and what it may be.

A training process has one table of them. The collector's are sections of a YAML file: a dataclass
of such rows, from which code, file, flags, errors and docs come.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from otel_straggler.errors import ConfigError, describe
from otel_straggler.strict_json import whole_number

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
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer of 400 digits
        return False


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
        read=lambda text: text if (number := whole_number(text)) is None else number,
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


@dataclass(frozen=True, slots=True)
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
        return self.checked(value, where, written)

    def checked(self, value: object, where: str, written: object = None) -> Any:
        """The value as the code wants it. ``written``: as an error shows it, if otherwise.

        Raises:
            ConfigError: it is not accepted.
        """
        assert self.kind is not None
        if self.kind.accepts(value):
            return self.kind.convert(value)
        raise self.refusal(where, value if written is None else written)

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
    return dataclasses.field(default=default, repr=is_shown, metadata={"setting": row})


def otlp(name: str, example: str, needs: Pairs = ()) -> tuple[Variable, ...]:
    """A variable of OpenTelemetry's exporters: of each signal, then of both."""
    return tuple(
        Variable(f"OTEL_EXPORTER_OTLP_{signal}{name}", example, needs)
        for signal in ("TRACES_", "METRICS_", "")
    )


# --- sections of a file ---------------------------------------------------------------------------

kind: Final = partial(Kind, remedy="Correct it, or leave it out for the default.")
_Section = TypeVar("_Section")


def option(default: Any, accepted: Kind, meaning: str, flag: str = "") -> Any:
    """A field of a section.

    Args:
        default: value without a file.
        accepted: kind of value.
        meaning: for the reference page and the comments of the example file.
        flag: of the command line, with its metavar.
    """
    return setting(default, accepted, *([flag] if flag else []), meaning=meaning)


def integer(minimum: int, maximum: int | None = None) -> Kind:
    limit = math.inf if maximum is None else maximum
    return kind(
        accepts=lambda value: type(value) is int and minimum <= value <= limit,
        expected=f"an integer of at least {minimum}"
        if maximum is None
        else f"an integer from {minimum} to {maximum}",
    )


def number(minimum: float, maximum: float = math.inf) -> Kind:
    is_open = math.isinf(maximum)
    return kind(
        accepts=lambda value: is_number(value) and minimum <= value <= maximum,
        expected=f"a number of at least {minimum:g}"
        if is_open
        else f"a number of {minimum:g} to {maximum:.12g}",
        convert=float,
    )


def above(minimum: float, maximum: float = math.inf) -> Kind:
    end = "" if math.isinf(maximum) else f" and at most {maximum:g}"
    return kind(
        accepts=lambda value: is_number(value) and minimum < value <= maximum,
        expected=f"a number above {minimum:g}{end}",
        convert=float,
    )


def text(expected: str, accepts: Callable[[str], bool], *, is_secret: bool = False) -> Kind:
    return kind(
        accepts=lambda value: isinstance(value, str) and accepts(value),
        expected=expected,
        is_secret=is_secret,
    )


def choice(*values: str) -> Kind:
    *others, last = (f'"{value}"' for value in values)
    return text(f"{', '.join(others)} or {last}", values.__contains__)


def texts(expected: str, accepts: Callable[[list[str]], bool] = lambda _: True) -> Kind:
    return kind(
        accepts=lambda value: (
            isinstance(value, (list, tuple))
            and all(isinstance(item, str) for item in value)
            and accepts(list(value))
        ),
        expected=expected,
        convert=tuple,
    )


ANY_TEXT: Final = text("text", lambda _: True)
SWITCH: Final = kind(accepts=lambda value: isinstance(value, bool), expected="true or false")


def is_url(url: str) -> bool:
    """Whether it has a scheme and a host, and nothing that would show in logs or be cut off."""
    if not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises if it is no port
    except ValueError:
        return False
    is_http = parts.scheme in ("http", "https") and bool(parts.hostname)
    return is_http and "@" not in parts.netloc and not parts.fragment


def is_base_url(url: str) -> bool:
    """Whether paths can be added to it."""
    return is_url(url) and "?" not in url


def _urls(value: object) -> tuple[str, ...]:
    """Of a list, or of text with commas between them."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    is_list = isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value)
    return tuple(value) if is_list else ("",)  # type: ignore[arg-type]


BASE_URLS: Final = kind(
    accepts=lambda value: all(map(is_base_url, _urls(value))),
    expected="http:// or https:// URLs without a name or password in them",
    convert=_urls,
)


def rows_of(section: type) -> dict[str, Setting]:
    """The settings of a section by key: the field's name, in which ``_s`` is ``_seconds``."""
    rows = {}
    for field in dataclasses.fields(section):
        if "setting" in field.metadata:
            key = f"{field.name}econds" if field.name.endswith("_s") else field.name
            rows[key] = dataclasses.replace(field.metadata["setting"], field=field.name)
    return rows


def sections_of(section: type) -> dict[str, type]:
    """The sections within a section by key."""
    made_by = {field.name: field.default_factory for field in dataclasses.fields(section)}
    return {name: inner for name, inner in made_by.items() if dataclasses.is_dataclass(inner)}  # type: ignore[misc]


def read_section(section: type[_Section], values: object, where: str, prefix: str = "") -> _Section:
    """A section from what stands in a file; None for the defaults.

    Args:
        where: named in errors.
        prefix: before the names of settings in errors; ``where`` with a dot if empty.

    Raises:
        ConfigError: a key is unknown, or a value is not accepted.
    """
    if values is None:
        return section()
    if not isinstance(values, Mapping):
        raise ConfigError(
            describe(
                where=where,
                value=values,
                expected="a mapping of settings",
                remedy="Indent the settings under it, one 'key: value' a line.",
            )
        )
    prefix = prefix or f"{where}."
    rows, sections = rows_of(section), sections_of(section)
    given: dict[str, Any] = {}
    for key, value in values.items():
        if key in rows:
            given[rows[key].field] = rows[key].checked(value, f"{prefix}{key}")
        elif key in sections:
            given[key] = read_section(sections[key], value, f"{prefix}{key}")
        else:
            raise _unknown(key, where, [*rows, *sections])
    return section(**given)


def _unknown(key: object, where: str, known: list[str]) -> ConfigError:
    close = difflib.get_close_matches(str(key), known, n=3)
    return ConfigError(
        describe(
            where=where,
            value=key,
            expected="one of " + ", ".join(known),
            remedy=f"Did you mean {' or '.join(close)}?"
            if close
            else "Correct the spelling, or remove it.",
        )
    )
