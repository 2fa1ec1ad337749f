"""Silences of an Alertmanager, by its v2 API: made, and ended, for nodes under maintenance."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any, Final
from urllib.parse import quote

from otel_straggler.cli.exchange import Server, base_url
from otel_straggler.errors import InputError, describe
from otel_straggler.publish.prometheus import label

_MARK: Final = "otel-straggler maintenance: "
"""Begins the comment of every silence that is made here; others are left alone."""
_EXAMPLE: Final = "http://127.0.0.1:9093"
_IN_FORCE: Final = frozenset({"active", "pending"})


class Alertmanager:
    """One server, or one of a cluster: they tell each other.

    Raises:
        ConfigError: the URL is none; see also :meth:`Server.ask`.
    """

    def __init__(self, url: str) -> None:
        self.url = base_url(url, "--alertmanager", _EXAMPLE)
        self._server = Server(
            url=self.url,
            expected="an Alertmanager with its v2 API",
            remedy="Is it running, and is this its address, with its path if it has one?",
        )

    def silence(self, node: str, seconds: float, reason: str, by: str) -> str:
        """Silence all alerts that name the node; the id of the silence."""
        now_s = time.time()
        answer = self._server.ask(
            "/api/v2/silences",
            {
                "matchers": [_matcher(node)],
                "startsAt": _time(now_s),
                "endsAt": _time(now_s + seconds),
                "createdBy": by or "otel-straggler",
                "comment": _MARK + reason,
            },
        )
        if not isinstance(answer, dict) or not isinstance(answer.get("silenceID"), str):
            raise self._foreign(answer)
        found: str = answer["silenceID"]
        return found

    def end(self, node: str) -> list[str]:
        """End the silences that were made for maintenance of the node; their ids."""
        asked = quote(label("node", node), safe="")
        answer = self._server.ask(f"/api/v2/silences?filter={asked}")
        if not isinstance(answer, list):
            raise self._foreign(answer)
        ended = list(_made_for(answer, node))
        for silence_id in ended:
            self._server.ask(f"/api/v2/silence/{quote(silence_id, safe='')}", method="DELETE")
        return ended

    def _foreign(self, answer: Any) -> InputError:
        return InputError(
            describe(
                where=self.url,
                value=str(answer)[:100],
                expected="an answer of Alertmanager's v2 API",
                remedy="Is another program listening there?",
            )
        )


def _made_for(silences: list[Any], node: str) -> Iterator[str]:
    for each in silences:
        if (
            each.get("status", {}).get("state") in _IN_FORCE
            and each.get("matchers") == [_matcher(node)]
            and str(each.get("comment", "")).startswith(_MARK)
        ):
            yield str(each["id"])


def _matcher(node: str) -> dict[str, Any]:
    return {"name": "node", "value": node, "isRegex": False, "isEqual": True}


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, timezone.utc).isoformat()
