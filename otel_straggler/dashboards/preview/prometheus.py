"""Asks a Prometheus, and says in its own words what it does not like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

import requests

from otel_straggler.dashboards.preview.ranges import TimeRange
from otel_straggler.errors import UnavailableError, describe
from otel_straggler.transport.root_cause import root_cause

_TIMEOUT_S: Final = 60.0
Labels = dict[str, str]


class QueryError(Exception):
    """Raised when Prometheus refuses a query or cannot answer it; the text is its own."""


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one series, oldest first; what Prometheus has no value for is absent."""

    labels: Labels
    times_s: list[float]
    values: list[float]


class Prometheus:
    """Over HTTP, at a URL that may have a path and, for basic authentication, a user.

    Proxies and passwords of the environment (``.netrc``) are used, as `requests` does.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._session = requests.Session()

    def greet(self) -> None:
        """
        Raises:
            UnavailableError: nobody answers there, or not as a Prometheus does.
        """
        try:
            self.instant("vector(1)", None)
        except (QueryError, OSError) as error:
            raise UnavailableError(
                describe(
                    where="--prometheus",
                    value=without_password(self._url),
                    expected="the address of a Prometheus that answers",
                    remedy=f"What came of asking it: {root_cause(error)}.",
                )
            ) from error

    def over_range(
        self, expression: str, begin_s: float, end_s: float, step_s: float
    ) -> list[Series]:
        asked = {"query": expression, "start": begin_s, "end": end_s, "step": step_s}
        return _series(self._ask("query_range", asked))

    def instant(self, expression: str, at_s: float | None) -> list[Series]:
        """What is true at a time, of what was scraped up to five minutes before; None is now."""
        asked = {"query": expression} | ({} if at_s is None else {"time": at_s})
        return _series(self._ask("query", asked))

    def label_values(self, label: str, selector: str, span: TimeRange) -> list[str]:
        """Values that a label had in the range; of all series where the selector is empty."""
        asked = {"start": span.from_s, "end": span.to_s}
        path = f"label/{quote(label, safe='')}/values"
        more = {"match[]": selector} if selector else {}
        return [str(value) for value in self._ask(path, asked | more, "GET")]

    def label_names(self, span: TimeRange) -> list[str]:
        asked = {"start": span.from_s, "end": span.to_s}
        return [str(name) for name in self._ask("labels", asked, "GET")]

    def _ask(self, path: str, asked: dict[str, Any], method: str = "POST") -> Any:
        url, is_get = f"{self._url}/api/v1/{path}", method == "GET"
        in_url, in_body = (asked, None) if is_get else (None, asked)
        answer = self._session.request(method, url, params=in_url, data=in_body, timeout=_TIMEOUT_S)
        try:
            told = answer.json()
        except ValueError:
            told = {}
        if not isinstance(told, dict) or told.get("status") != "success":
            words = told.get("error") if isinstance(told, dict) else None
            raise QueryError(str(words or f"HTTP {answer.status_code}, and no answer as JSON"))
        return told["data"]


def without_password(url: str) -> str:
    """
    >>> without_password("http://me:secret@host:9090/x")
    'http://host:9090/x'
    """
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _series(data: Any) -> list[Series]:
    kind, result = data["resultType"], data["result"]
    if kind in {"scalar", "string"}:
        return [] if kind == "string" else [Series({}, [float(result[0])], [float(result[1])])]
    made = []
    for one in result:
        points = one["values"] if kind == "matrix" else [one["value"]] if "value" in one else []
        times_s, values = [float(at) for at, _ in points], [float(value) for _, value in points]
        made.append(Series(one["metric"], times_s, values))
    return made
