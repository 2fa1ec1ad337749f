"""Asks a Prometheus what Grafana would ask for a page: variables filled in, now or over a range.

As Grafana's Prometheus data source does it (``interpolateQueryExpr``): a variable of one value is
text, one that may have several is a regular expression, "All" is the value that the page gives.
"""

from __future__ import annotations

import json
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
_SPECIAL = re.compile(r"[$^*{}\[\]'+?.()|\\]")
_LABEL_VALUES = re.compile(r"label_values\((.*), (\w+)\)")


@dataclass(frozen=True)
class Target:
    """One query of a page.

    Attributes:
        page: stem of its file.
        panel: id, or the name of an annotation.
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


def targets(page: str, told: Json) -> Iterator[Target]:
    """All queries of a page; annotations are asked over the range."""
    for panel in told["panels"]:
        for query in panel.get("targets", ()):
            instant = bool(query.get("instant"))
            yield Target(page, panel["id"], query["refId"], query["expr"], instant)
    for annotation in told["annotations"].get("list", ()):
        if annotation.get("expr"):
            yield Target(page, annotation["name"], "A", annotation["expr"], False)


class Grafana:
    """One page over one Prometheus.

    Args:
        url: of Prometheus.
        page: JSON of the page.
        end_s, range_s: its range of time.
        scrape_s: what the data source says of scrapes.
    """

    def __init__(
        self, url: str, page: Json, *, end_s: float, range_s: int, scrape_s: int = 1
    ) -> None:
        self._url = url
        self._end_s, self._range_s = end_s, range_s
        self._step_s = max(1, range_s // 200)
        self.variables = {v["name"]: v for v in page["templating"]["list"] if v["type"] == "query"}
        rate_s = max(self._step_s + scrape_s, 4 * scrape_s)
        self._built_in = {
            "__range": f"{range_s}s", "__interval": f"{self._step_s}s",
            "__rate_interval": f"{rate_s}s",
        }  # fmt: skip

    def values(self, name: str, chosen: Chosen) -> list[str]:
        """What the variable offers, sorted; those before it are chosen already."""
        asked = _LABEL_VALUES.fullmatch(self.variables[name]["query"])
        assert asked, name
        told = {"match[]": self.filled(asked[1], chosen), **self._range()}
        found: list[str] = self._ask(f"label/{asked[2]}/values", told)
        return sorted(found)

    def filled(self, expression: str, chosen: Chosen) -> str:
        """The expression as it is sent."""

        def value(found: re.Match[str]) -> str:
            name = found[1]
            if name in self._built_in:
                return self._built_in[name]
            variable = self.variables[name]
            if name not in chosen:
                return str(variable["allValue"])
            return _text(chosen[name], is_several=bool(variable.get("multi")))

        return re.sub(r"\$([A-Za-z_]\w*)", value, expression)

    def answer(self, target: Target, chosen: Chosen) -> tuple[list[Any], int]:
        """Series and the bytes of the whole answer.

        Raises:
            AssertionError: Prometheus refuses the query.
        """
        told = {"query": self.filled(target.expression, chosen)}
        if target.is_instant:
            body = self._body("query", {**told, "time": f"{self._end_s:.3f}"})
        else:
            body = self._body("query_range", {**told, **self._range(), "step": str(self._step_s)})
        found: list[Any] = json.loads(body)["data"]["result"]
        return found, len(body)

    def _range(self) -> dict[str, str]:
        return {"start": f"{self._end_s - self._range_s:.3f}", "end": f"{self._end_s:.3f}"}

    def _ask(self, path: str, told: dict[str, str]) -> Any:
        return json.loads(self._body(path, told))["data"]

    def _body(self, path: str, told: dict[str, str]) -> bytes:
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(told)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{told.get('query')}: {error.read().decode()}") from error


def _text(value: str | list[str], *, is_several: bool) -> str:
    """
    >>> _text(["a.b", "c"], is_several=True), _text("a.b", is_several=True)
    ('(a\\\\\\\\.b|c)', 'a\\\\\\\\.b')
    >>> _text("a.b", is_several=False)
    'a.b'
    """
    if not is_several:
        assert isinstance(value, str)
        return value.replace("\\", "\\\\").replace('"', '\\"')
    several = [_escaped(each) for each in ([value] if isinstance(value, str) else value)]
    return several[0] if len(several) == 1 else f"({'|'.join(several)})"


def _escaped(value: str) -> str:
    """Twice: once for the expression, once for the text around it."""
    return _SPECIAL.sub(lambda found: "\\\\" + found[0], value)
