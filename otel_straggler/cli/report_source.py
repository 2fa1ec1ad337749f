"""Sources of run views: a running collector, or its history file."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import Any, NoReturn
from urllib.parse import urlencode

from otel_straggler._version import __version__
from otel_straggler.cli.exchange import DEFAULT_COLLECTOR, RefusedError, Server, base_url
from otel_straggler.cli.text import names_text, printable
from otel_straggler.collector.history.reader import HistoryReader
from otel_straggler.collector.history.run_views import FromHistory
from otel_straggler.collector.views.answer_type import ON_ITS_HOST
from otel_straggler.collector.views.page_json import ResponseMeta, page_json, runs_json
from otel_straggler.collector.views.rank_json import rank_json
from otel_straggler.collector.views.run_json import one_of, run_entry
from otel_straggler.collector.views.timeline import Column, timeline_json
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.errors import ConfigError, InputError
from otel_straggler.secret import without_secrets
from otel_straggler.semconv import FORMAT_VERSION

Json = dict[str, Any]
MAX_NAMED = 10
_NOT_FOUND = 404


def choose_run(run_views: RunViews, run_id: str | None) -> Json:
    """The entry of a run in ``/v1/runs``; by default the first, which needs attention most.

    Raises:
        ConfigError: there is none, or none of that name.
    """
    runs = run_views.runs()["runs"]
    for run in runs:
        if run_id in (None, run["run_id"]):
            result: Json = run
            return result
    names = names_text([run["run_id"] for run in runs], MAX_NAMED)
    raise ConfigError.of(
        "RUN",
        run_id or "nothing",
        f"one of: {names}" if runs else f"a run; {run_views.where} has none yet",
        "Leave it out for the first." if runs else "Wait for ranks to send something.",
    )


# --- a collector ---------------------------------------------------------------------------------


class LiveRunViews:
    """Asks a collector.

    Raises (all methods):
        UnavailableError: there is no answer.
        InputError: another program answers, or an older collector.
    """

    def __init__(self, collector: str) -> None:
        self.where = base_url(collector, "--collector", DEFAULT_COLLECTOR)
        self._server = Server(
            url=self.where,
            expected="a collector",
            remedy="Is it running, and is this its --metrics address?",
            is_collector=True,
        )

    def runs(self) -> Json:
        try:
            runs = self._server.ask("/v1/runs")
        except RefusedError as error:
            if error.status != _NOT_FOUND:
                raise
            self._refuse("no /v1/runs")
        if not isinstance(runs, dict) or runs.get("schema_version") != FORMAT_VERSION:
            self._refuse("another answer to /v1/runs")
        return runs

    def run_view(self, run_id: str, group: str | None) -> Json:
        asked = {"run": run_id} | ({} if group is None else {"group": group})
        try:
            run_view = self._ask("/v1/run", asked)
        except RefusedError as error:
            if error.status == _NOT_FOUND and group is not None:
                _no_group(self.run_view(run_id, None), group)
            raise
        self._address(run_view["answer"])
        return run_view

    def timeline(self, run_id: str, group: str, section: str) -> Json:
        return self._ask("/v1/timeline", {"run": run_id, "group": group, "section": section})

    def rank(self, run_id: str, group: str, rank: int) -> Json:
        details = self._ask("/v1/rank", {"run": run_id, "group": group, "rank": str(rank)})
        self._address(details)
        return details

    def _address(self, reported: Json) -> None:
        """Add the collector's address to suggested commands."""
        if self.where != DEFAULT_COLLECTOR:
            address = shlex.join(["--collector", self.where])
            reported["commands"] = [
                command if command.startswith(ON_ITS_HOST) else f"{command} {address}"
                for command in reported["commands"]
            ]

    def _ask(self, path: str, asked: dict[str, str]) -> Json:
        answer: Json = self._server.ask(f"{path}?{urlencode(asked)}")
        return answer

    def _refuse(self, value: str) -> NoReturn:
        raise InputError.of(
            self.where,
            value,
            f"a collector of otel-straggler {__version__} or later",
            "It is an older one, or another program: use the otel-straggler of its "
            "version, or --history with its history file.",
        )


def _no_group(run_view: Json, group: str) -> NoReturn:
    names = ", ".join(printable(name) or "''" for name in run_view["run"]["groups"])
    raise ConfigError.of(
        "--group", group, f"one of: {names}", "Leave --group out for the one that has lost most."
    )


# --- a history -----------------------------------------------------------------------------------


class StoredRunViews:
    """Reads a history; caches the last run.

    Raises (all methods):
        InputError: the file is damaged.
    """

    def __init__(self, reader: HistoryReader, path: str) -> None:
        self.where = without_secrets(path)
        self._history = FromHistory(reader)
        self._meta = ResponseMeta(version=__version__)
        self._worlds: tuple[str, list[WorldView]] = ("", [])
        self._columns: tuple[tuple[str, str] | None, list[Column]] = (None, [])

    def runs(self) -> Json:
        entries = [run_entry(self._of(run.run_id)) for run in self._history.runs()]
        return runs_json(entries, self._meta, time.time())

    def run_view(self, run_id: str, group: str | None) -> Json:
        view = self._view(run_id, group)
        if view is None:
            _no_group(self.run_view(run_id, None), group or "")
        columns = self._columns_of(run_id, view.group)
        return page_json(view, self._meta, timeline=columns, now_s=time.time())

    def timeline(self, run_id: str, group: str, section: str) -> Json:
        columns = self._columns_of(run_id, group)
        return timeline_json(columns, run_id=run_id, group=group, section=section)

    def rank(self, run_id: str, group: str, rank: int) -> Json:
        view = self._view(run_id, group)
        assert view is not None
        columns = self._columns_of(run_id, group)
        return rank_json(view, rank, columns, self._meta, now_s=time.time())

    def _of(self, run_id: str) -> list[WorldView]:
        if self._worlds[0] != run_id or not self._worlds[1]:
            self._worlds = (run_id, self._history.worlds(run_id))
        return self._worlds[1]

    def _view(self, run_id: str, group: str | None) -> WorldView | None:
        return one_of(self._of(run_id), group)

    def _columns_of(self, run_id: str, group: str) -> Sequence[Column]:
        if self._columns[0] != (run_id, group):
            self._columns = ((run_id, group), self._history.columns(run_id, group))
        return self._columns[1]


RunViews = LiveRunViews | StoredRunViews
"""The API of docs/reference/http-api.md, from either source; ``where`` is for messages."""
