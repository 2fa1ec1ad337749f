"""Asks a Prometheus what Grafana would ask for a page: variables filled in, now or over a range."""

from __future__ import annotations

import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]
Chosen = Mapping[str, "str | list[str]"]
"""Value of a variable, or several; missing ones are "All"."""
_LABEL_VALUES = re.compile(r"label_values\((.*), (\w+)\)")
_QUERY_RESULT = re.compile(r"query_result\((.*)\)")
_VARIABLE = re.compile(r"\$(__\w+)|\$\{(\w+):regex\}")
"""The two forms in which our pages use variables; a test refuses any other."""
_SPECIAL = re.compile(r"[\\^$.*+?()\[\]{}|/]")
_LABEL = re.compile(r'/\\b(\w+)="\(\[\^"\]\*\)"/')
"""What hidden variables take of what their query gives."""


@dataclass(frozen=True)
class Target:
    """One query of a page.

    Attributes:
        page: stem of its file.
        panel: id, or the name of an annotation or of a variable.
        ref: letter of the query.
        expression: with variables.
        is_instant: now, not over the range.
    """

    page: str
    panel: int | str
    ref: str
    expression: str
    is_instant: bool

    def __str__(self) -> str:
        return f"{self.page}-{self.panel}-{self.ref}"


def targets(page: str, reported: Json) -> Iterator[Target]:
    """All queries of a page; annotations are asked over the range, variables now."""
    for panel in reported["panels"]:
        for query in panel.get("targets", ()):
            instant = bool(query.get("instant"))
            yield Target(page, panel["id"], query["refId"], query["expr"], instant)
    for annotation in reported["annotations"].get("list", ()):
        if annotation.get("expr"):
            yield Target(page, annotation["name"], "A", annotation["expr"], False)
    for variable in reported["templating"]["list"]:
        if asked := _QUERY_RESULT.fullmatch(variable["query"]):
            yield Target(page, variable["name"], "A", asked[1], True)


class Grafana:
    """One page over one Prometheus.

    Args:
        url: of Prometheus.
        page: JSON of the page.
        end_s, range_s: its range of time.
        scrape_s: what the data source says of scrapes.
        points: of a line; 0: one a second.
    """

    def __init__(
        self,
        url: str,
        page: Json,
        *,
        end_s: float,
        range_s: int,
        scrape_s: int = 1,
        points: int = 0,
    ) -> None:
        self._url = url
        self._end_s, self._range_s = end_s, range_s
        self._step_s = range_s / points if points else 1.0
        self.variables = {v["name"]: v for v in page["templating"]["list"] if v["type"] == "query"}
        rate_s = max(math.ceil(self._step_s) + scrape_s, 4 * scrape_s)
        self._built_in = {
            "__range": f"{range_s}s", "__interval": f"{math.ceil(self._step_s)}s",
            "__rate_interval": f"{rate_s}s",
        }  # fmt: skip

    def values(self, name: str, chosen: Chosen) -> list[str]:
        """What the variable offers, sorted; those before it are chosen already."""
        variable = self.variables[name]
        if result := _QUERY_RESULT.fullmatch(variable["query"]):
            label = _LABEL.fullmatch(variable["regex"])
            assert label, name
            query = {"query": self.filled(result[1], chosen), "time": f"{self._end_s:.3f}"}
            rows = self._ask("query", query)["result"]
            return sorted({row["metric"][label[1]] for row in rows})
        asked = _LABEL_VALUES.fullmatch(variable["query"])
        assert asked, name
        reported = {"match[]": self.filled(asked[1], chosen), **self._range()}
        measured: list[str] = self._ask(f"label/{asked[2]}/values", reported)
        return sorted(measured)

    def filled(self, expression: str, chosen: Chosen) -> str:
        """The expression as it is sent."""
        return _VARIABLE.sub(
            lambda used: self._built_in[used[1]] if used[1] else self._pattern(used[2], chosen),
            expression,
        )

    def answer(self, target: Target, chosen: Chosen) -> tuple[list[Any], int]:
        """Series and the bytes of the whole answer.

        Raises:
            AssertionError: Prometheus refuses the query.
        """
        body = self._answer(target, chosen)
        measured: list[Any] = json.loads(body)["data"]["result"]
        return measured, len(body)

    def samples(self, target: Target, chosen: Chosen) -> int:
        """How many samples Prometheus reads for it: what it costs, whatever else the machine does.
        A sample that several points of a line read counts for each."""
        reported = json.loads(self._answer(target, chosen, stats="true"))["data"]
        return int(reported["stats"]["samples"]["totalQueryableSamples"])

    def _answer(self, target: Target, chosen: Chosen, **more: str) -> bytes:
        reported = {"query": self.filled(target.expression, chosen), **more}
        if target.is_instant:
            return self._body("query", {**reported, "time": f"{self._end_s:.3f}"})
        step = {"step": f"{self._step_s:.3f}"}
        return self._body("query_range", {**reported, **self._range(), **step})

    def _range(self) -> dict[str, str]:
        return {"start": f"{self._end_s - self._range_s:.3f}", "end": f"{self._end_s:.3f}"}

    def _pattern(self, name: str, chosen: Chosen) -> str:
        """Value of a variable in Grafana's format `regex`: the chosen ones, else all, which only
        some variables can be."""
        variable = self.variables[name]
        if name in chosen:
            values = [chosen[name]] if isinstance(chosen[name], str) else chosen[name]
        elif variable.get("allValue"):
            return str(variable["allValue"])
        else:
            values = self.values(name, chosen) if variable.get("includeAll") else []
        escaped = [_SPECIAL.sub(r"\\\g<0>", value) for value in values or [""]]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"

    def _ask(self, path: str, reported: dict[str, str]) -> Any:
        return json.loads(self._body(path, reported))["data"]

    def _body(self, path: str, reported: dict[str, str]) -> bytes:
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(reported)}"
        try:
            with urllib.request.urlopen(url, timeout=300) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{reported.get('query')}: {error.read().decode()}") from error
