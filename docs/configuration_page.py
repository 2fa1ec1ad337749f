"""The page of all settings, from the code that reads them."""

from __future__ import annotations

import dataclasses
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from described import Undescribed, code, defaults_of, described, table, unit_of

from otel_straggler import configure
from otel_straggler.client.settings import resolve_settings
from otel_straggler.collector.settings import CollectorSettings
from otel_straggler.collector.settings_file import flag_of
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
from otel_straggler.setting import Setting, Variable, rows_of, sections_of
from otel_straggler.supervisor.policy import Rule
from otel_straggler.supervisor.settings import SupervisorSettings

_HERE = "Add it to otel_straggler/config.py; the reference page is made from that."


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
        collector="\n".join(_tables(CollectorSettings)),
        supervisor="\n".join(_tables(SupervisorSettings)),
        rule=_table_of("policy.rules", Rule),
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

{collector}

## The supervisor: `otel-straggler supervise --config FILE`
How its file is used is in [supervisor](../operate/supervisor.md).

{supervisor}

{rule}
"""


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


def _tables(settings: type) -> Iterator[str]:
    for section, kind in collector_sections(settings):
        yield _table_of(section, kind)


def _table_of(section: str, kind: type) -> str:
    rows = []
    for key, row in rows_of(kind).items():
        flag = code(flag_of(row)[0]) if row.sources else ""
        rows.append([code(key), flag, code(row.default), rule_of(row), row.meaning])
    return f"### `{section}`\n\n" + table(["key", "flag", "default", "must be", "meaning"], rows)


def collector_sections(
    within: type = CollectorSettings, before: str = ""
) -> Iterator[tuple[str, type]]:
    """The sections of the file by their names; one within another has both, with a dot."""
    for name, kind in sections_of(within).items():
        yield before + name, kind
        yield from collector_sections(kind, f"{before}{name}.")


def rule_of(row: Setting) -> str:
    """What a value must be, as the error for a wrong one says it."""
    return "" if row.kind is None else row.kind.expected


def example_file() -> str:
    """``docs/collector.yaml``: every setting with its meaning and its default."""
    lines = [
        "# Every setting of `otel-straggler collector --config FILE`, with its default.",
        "# Flags win over this file. Unknown keys are refused.",
        "# Made by docs/generate.py. Change the code, then run: make generate",
    ]
    for section, kind in collector_sections():
        indent = "  " * section.count(".")
        about = (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")
        lines += ["", *_comment(about, indent), f"{indent}{section.rpartition('.')[2]}:"]
        for key, row in rows_of(kind).items():
            default = json.dumps(row.default)
            lines += [*_comment(row.meaning, f"{indent}  "), f"{indent}  {key}: {default}"]
    return "\n".join(lines) + "\n"


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, 98, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
