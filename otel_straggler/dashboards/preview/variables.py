"""Finds values for the variables of a page: those asked for, else what Grafana would begin with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from otel_straggler.dashboards.preview.chosen import ALL, Chosen, filled
from otel_straggler.dashboards.preview.intervals import duration
from otel_straggler.dashboards.preview.patterns import compiled
from otel_straggler.dashboards.preview.prometheus import Prometheus, QueryError
from otel_straggler.dashboards.preview.ranges import TimeRange
from otel_straggler.dashboards.preview.transformations import natural

_LABEL_VALUES: Final = re.compile(r"label_values\((?:(.+),\s*)?([a-zA-Z_]\w*)\s*\)\s*", re.DOTALL)
_QUERY_RESULT: Final = re.compile(r"query_result\((.+)\)\s*", re.DOTALL)
_ANY_NAME: Final = re.compile(r"metrics\((.+)\)\s*")
_LABEL_NAMES: Final = re.compile(r"label_names\(\)\s*")


class Variables:
    """Values of one page, in the order in which the page has its variables.

    ``problems`` says which could not be found out, and which values nobody has.
    """

    def __init__(self, server: Prometheus, span: TimeRange, asked: Mapping[str, Sequence[str]]):
        self._server = server
        self._span = span
        self._asked = asked
        self.chosen: dict[str, Chosen] = {}
        self.problems: list[str] = []

    def choose(self, variables: Sequence[Mapping[str, Any]]) -> None:
        for variable in variables:
            name = str(variable["name"])
            try:
                options = self._options(variable)
            except QueryError as error:
                self.problems.append(f"{name}: {error}")
                options = []
            self.chosen[name] = self._one(variable, options)

    def _options(self, variable: Mapping[str, Any]) -> list[str]:
        kind, query = variable["type"], variable.get("query") or ""
        if kind == "query":
            found = self._found(query if isinstance(query, str) else str(query.get("query", "")))
            return _sorted(_narrowed(found, str(variable.get("regex") or "")), variable.get("sort"))
        if kind == "datasource":
            return [str(query)]
        if kind in {"custom", "interval"}:
            return [part.strip() for part in str(query).split(",") if part.strip()]
        if kind in {"constant", "textbox"}:
            return [str(query)]
        self.problems.append(f"{variable['name']}: variables of type {kind} are not known here")
        return []

    def _one(self, variable: Mapping[str, Any], options: list[str]) -> Chosen:
        name, label = str(variable["name"]), str(variable.get("label") or "")
        has_all = bool(variable.get("includeAll"))
        is_many = bool(variable.get("multi")) or has_all
        all_value = str(variable.get("allValue") or "")
        wanted = tuple(self._asked.get(name, ())) or _saved(variable)
        if has_all and (not wanted or wanted in {(ALL,), ("All",)}):
            return Chosen(name, tuple(options), is_many, True, all_value, label)
        if strange := [value for value in wanted if value not in options]:
            self.problems.append(f"{name}: no series has {', '.join(strange)}")
        return Chosen(name, wanted or tuple(options[:1]), is_many, False, all_value, label)

    def _found(self, query: str) -> list[str]:
        text = filled(query, self.chosen, self._built_in())
        if values := _LABEL_VALUES.fullmatch(text):
            return self._server.label_values(values[2], values[1] or "", self._span)
        if result := _QUERY_RESULT.fullmatch(text):
            return [
                f"{_series_text(one.labels)} {one.values[-1]:g}"
                for one in self._server.instant(result[1], self._span.to_s)
            ]
        if names := _ANY_NAME.fullmatch(text):
            known = self._server.label_values("__name__", "", self._span)
            return [name for name in known if re.search(names[1], name)]
        if _LABEL_NAMES.fullmatch(text):
            return self._server.label_names(self._span)
        self.problems.append(f"{query}: not a query of variables that is known here")
        return []

    def _built_in(self) -> dict[str, str]:
        whole_s = round(self._span.length_s)
        span = {"__range": f"{whole_s}s", "__range_s": str(whole_s)}
        return span | {"__range_ms": str(whole_s * 1_000), "__interval": duration(15.0)}


def _saved(variable: Mapping[str, Any]) -> tuple[str, ...]:
    """What the page was saved with; nothing where it was saved without a choice."""
    value = (variable.get("current") or {}).get("value")
    values = value if isinstance(value, list) else [] if value in {None, ""} else [value]
    return tuple(str(one) for one in values)


def _narrowed(options: list[str], pattern: str) -> list[str]:
    """Those that match, or what the first group of the pattern holds of them; each once."""
    if not pattern:
        return list(dict.fromkeys(options))
    wanted = compiled(pattern)
    found = (wanted.search(option) for option in options)
    return list(dict.fromkeys(one[1] if one.re.groups else one.string for one in found if one))


def _sorted(options: list[str], order: Any) -> list[str]:
    """By Grafana's numbers: 1 alphabet, 3 numbers, 5 any case, 7 natural; each plus 1 is down."""
    number = int(order or 0)
    if not number:
        return options
    is_down = number % 2 == 0
    if number in {1, 2}:
        return sorted(options, reverse=is_down)
    if number in {5, 6}:
        return sorted(options, key=str.lower, reverse=is_down)
    return sorted(options, key=natural, reverse=is_down)


def _series_text(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels) if key != "__name__")
    return f"{labels.get('__name__', '')}{{{inner}}}"
