"""The page of all settings, from the code that reads them."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from described import Undescribed, code, defaults_of, described, table, unit_of

from otel_straggler import configure
from otel_straggler.cli.collector import load_settings
from otel_straggler.client.settings import resolve_settings
from otel_straggler.collector.settings import CollectorSettings
from otel_straggler.config import (
    OF_ARGUMENTS,
    OF_DETECTOR,
    OF_PROCESS,
    WITHOUT_ARGUMENT,
    ClientSettings,
    Endpoint,
    all_variables,
)
from otel_straggler.detector import Detector
from otel_straggler.errors import ConfigError
from otel_straggler.setting import Setting, Variable

_HERE = "Add it to otel_straggler/config.py; the reference page is made from that."
_BAD_VALUES: tuple[object, ...] = ({}, "-")
"""Refused by every setting that refuses anything: neither a number nor a list, address or URL."""


def page() -> str:
    """All of ``docs/reference/configuration.md`` below its first line.

    Raises:
        Undescribed: a setting, or a variable that is read, has no description.
    """
    check_variables()
    return _TEXT.format(
        arguments=_client_table(),
        environment=_environment_table(),
        detector=_detector_table(),
        collector="\n".join(_collector_tables()),
    )


_TEXT = """# Configuration

What the page says is read from the code that uses it. How the collector's file is written is in \
[collector.yaml](../collector.yaml).

## A training process: `configure()`
An argument wins over the environment; of the environment, the first variable in the column that \
is set wins. A wrong argument or `OTEL_STRAGGLER_*` variable is an error that says what was \
expected. A wrong `OTEL_*` variable belongs to others as well: it is logged and not used. \
Variables with `TRACES` in their name are for spans, with `METRICS` for heartbeats and histograms; \
those without are for both.

{arguments}
### Settings without an argument

{environment}
## `Detector.initialize()`
The other variables above count here too as soon as something is sent.

{detector}
## The collector: `otel-straggler collector --config FILE`
A flag wins over the file, the file over the default. An unknown key or a value that breaks its \
rule stops the start with a message that says where.

{collector}"""


def check_variables() -> None:
    """Every variable that is read is described, and the other way round.

    Raises:
        Undescribed: one is not.
    """
    reported = {v.name for v in all_variables()} | {n for v in all_variables() for n, _ in v.needs}
    for name in sorted(variables_read() - reported):
        raise Undescribed(f"the environment variable {name} is read but not described. {_HERE}")
    arguments = defaults_of(configure)
    for order in OF_ARGUMENTS:
        if order.name not in arguments:
            raise Undescribed(f"configure() has no argument {order.name!r}. {_HERE}")


def variables_read() -> set[str]:
    """What the resolver looks at: with nothing set, and with each variable set in turn."""
    result: set[str] = set()
    for variable in (None, *all_variables()):
        env = _Watched({} if variable is None else dict((*variable.needs, _pair(variable))))
        resolve_settings({}, env)
        result |= env.asked
    return result


class _Watched(dict[str, str]):
    """An environment that remembers what it was asked for."""

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> str:
        self.asked.add(key)
        return super().__getitem__(key)


def _pair(variable: Variable) -> tuple[str, str]:
    return variable.name, variable.example


def _client_table() -> str:
    defaults = defaults_of(configure)
    reported = described(configure, defaults, "Args")
    orders = {order.name: order for order in OF_ARGUMENTS}
    rows = []
    for name, default in defaults.items():
        order = orders.get(name)
        used = _default(name, default, order)
        rows.append([code(name), _sources(order), used, unit_of(name), reported[name]])
    return table(["argument", "environment, in order", "default", "unit", "meaning"], rows)


def _default(name: str, default: object, order: Setting | None) -> str:
    """What is used in the end: None stands for what the resolver settles on."""
    if order is not None and order.otherwise:
        return order.otherwise
    if default is not None:
        return code(default)
    settled = resolve_settings({}, {})
    for index, kind in ((settled, ClientSettings), (settled.traces, Endpoint)):
        if name in {f.name for f in dataclasses.fields(kind)}:
            value = getattr(index, name)
            return "none" if value is None else code(value)
    raise Undescribed(f"the default of configure({name}=...) is not known. {_HERE}")


def _sources(order: Setting | None) -> str:
    result: list[str] = []
    before = ""
    for source in order.sources if order else ():
        if isinstance(source, str):
            result.append(source)
        elif before in dict(source.needs):
            result[-1] += f" with {code(source.name)}"
        else:
            before = source.name
            key = f"{code(source.key)} in " if source.key else ""
            result.append(key + code(source.name))
    return ", ".join(result)


def _environment_table() -> str:
    rows = [[o.name, _sources(o), o.otherwise, o.meaning] for o in (*WITHOUT_ARGUMENT, *OF_PROCESS)]
    return table(["setting", "environment, in order", "default", "value or meaning"], rows)


def _detector_table() -> str:
    defaults = defaults_of(Detector.initialize)
    reported = described(Detector.initialize, defaults, "Args")
    orders = {order.name: order for order in OF_DETECTOR}
    rows = []
    for name, default in defaults.items():
        order = orders.get(name)
        used = order.otherwise if order and order.otherwise else code(default)
        rows.append([code(name), _sources(order), used, reported[name]])
    return table(["argument", "environment", "default", "meaning"], rows)


def _collector_tables() -> Iterator[str]:
    flags: dict[str, str] = vars(inspect.getmodule(load_settings))["FLAG_OF"]
    defaults = CollectorSettings()
    for section, values in sections_of(defaults):
        names = [n for n in _fields(values) if not dataclasses.is_dataclass(getattr(values, n))]
        reported = _described(type(values), names)
        rows = []
        for name in names:
            flag = flags.get(f"{section}.{name}")
            rule = rule_of(section, name)
            default = code(getattr(values, name))
            rows.append([code(name), code(flag) if flag else "", default, rule, reported[name]])
        yield f"### `{section}`\n\n" + table(["key", "flag", "default", "must be", "meaning"], rows)


def sections_of(values: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """The sections of the file by their names; one within another has both, with a dot."""
    for name in _fields(values):
        section = getattr(values, name)
        if dataclasses.is_dataclass(section):
            yield before + name, section
            yield from sections_of(section, f"{before}{name}.")


def _fields(values: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(values)]


def _described(kind: type, names: list[str]) -> dict[str, str]:
    """A section that has more than its base describes only that."""
    inherited = [f for f in names if f in _names_of(kind.__base__)]
    reported = described(kind.__base__, inherited, "Attributes") if inherited else {}
    return reported | described(kind, [n for n in names if n not in inherited], "Attributes")


def _names_of(kind: Any) -> list[str]:
    return _fields(kind) if dataclasses.is_dataclass(kind) else []


def rule_of(section: str, name: str) -> str:
    """What a value must be, in the words with which a wrong one is refused."""
    rule = ""
    for value in _BAD_VALUES:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "collector.yaml"
            document: dict[str, Any] = {name: value}
            for part in reversed(section.split(".")):
                document = {part: document}
            file.write_text(json.dumps(document), encoding="utf-8")
            try:
                load_settings(file, {})
            except ConfigError as refusal:
                text = re.search(r"; expected (.+?)\. [A-Z]", str(refusal))
                rule = text[1] if text else rule
    return rule
