"""The paths of the live page: its files, its JSON, its events."""

from __future__ import annotations

import gzip
import math
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Final

from otel_straggler import page
from otel_straggler.collector.access.roles import PUBLIC, READ, Role
from otel_straggler.collector.api.cache import Answer, BusyError, PageWork
from otel_straggler.collector.api.events import EventStreams
from otel_straggler.collector.api.peers import LOCAL
from otel_straggler.collector.ingest.http_messages import (
    BadQueryError,
    Head,
    Request,
    Response,
    read_query,
)
from otel_straggler.collector.views.pages import Pages, UnknownError, check_visible
from otel_straggler.errors import StragglerError

_JSON = "application/json"
_FILES = "/page/"
_INDEX = "index.html"
EVENTS: Final = "/v1/events"
_RUNS: Final = "/v1/runs"
OF_ONE_RUN: Final = ("/v1/run", "/v1/rank", "/v1/scalars", "/v1/timeline")
_FILE_LEVEL: Final = 6
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
_CACHED: Final = {"Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
_NO_WEIGHT: Final = re.compile(r"q=0?\.?0*")
_ZIPPED_TYPES: Final = ("text/", "image/svg+xml", _JSON)
Query = Mapping[str, str]


class PageRoutes:
    """Answers the requests of the page, on the event loop; ``work`` makes answers in threads."""

    def __init__(
        self,
        run_views: Pages,
        events: EventStreams,
        work: PageWork,
        failure: Callable[[int, str, Head | None], Response],
    ) -> None:
        self._run_views = run_views
        self._events = events
        self._work = work
        self._far = PageWork()  # what waits for other shards delays nothing that is here
        self._failure = failure
        answers: tuple[Callable[[Query], Answer], ...] = (
            lambda q: run_views.run(q.get("run"), q.get("group")),
            self._rank,
            lambda q: run_views.scalars(q.get("run"), q.get("group")),
            self._timeline,
        )
        self._json = dict(zip(OF_ONE_RUN, answers, strict=True))

    def close(self) -> None:
        self._far.close()

    @property
    def paths(self) -> tuple[str, ...]:
        """For people."""
        return ("/", f"{_FILES}...", _RUNS, *self._json, EVENTS)

    def roles(self, path: str) -> Mapping[str, Role] | None:
        """The role that each method of a path needs; the page's files hold no data."""
        if not self.serves(path):
            return None
        return PUBLIC if path == "/" or path.startswith(_FILES) else READ

    def serves(self, path: str) -> bool:
        is_data = path in (_RUNS, EVENTS) or path in self._json
        return is_data or path == "/" or path.startswith(_FILES)

    async def respond(self, request: Request) -> Response:
        """Answer one request; a path that :meth:`serves`."""
        head = request.head
        if head.path == EVENTS:
            return self._stream(head)
        if head.path != _RUNS and head.path not in self._json:
            return self._file(head)
        try:
            query, prefix = read_query(head.query), head.principal.runs
            key = head.path, prefix, tuple(sorted(query.items()))
            is_far = head.path in self._json and self._run_views.is_elsewhere(query.get("run"))
            work = self._far if is_far else self._work
            answer = await work.do(key, partial(self._answer, head.path, query, prefix))
        except BusyError as error:
            return busy(self._failure(503, str(error), head))
        except BadQueryError as error:
            return self._failure(400, str(error), head)
        except UnknownError as error:
            return self._failure(404, str(error), head)
        except StragglerError as error:
            return self._failure(503, str(error), head)
        return conditional(head, answer.body, _JSON, answer.etag, answer.zipped)

    def _answer(self, path: str, query: Query, prefix: str) -> Answer:
        """From the shard that has the run; ``prefix``: of the names of runs that the reader may
        see."""
        if path == _RUNS:
            return self._run_views.runs(prefix, is_local=query.get(LOCAL) == "1")
        if prefix:
            query = {**query, "run": self._run_views.named(query.get("run"), prefix)}
        return self._run_views.elsewhere(path, query) or self._json[path](query)

    # --- JSON ------------------------------------------------------------------------------------

    def _rank(self, query: Query) -> Answer:
        rank = whole(query, "rank", minimum=0)
        if rank is None:
            raise BadQueryError("rank is missing; it is the number of a rank")
        return self._run_views.rank(query.get("run"), query.get("group"), rank)

    def _timeline(self, query: Query) -> Answer:
        run, group, section = query.get("run"), query.get("group"), query.get("section", "")
        if query.get("history", "0") not in ("0", "1"):
            raise BadQueryError("history must be 0 or 1")
        if query.get("history") == "1":
            from_s, to_s = _seconds(query, "from_s", 0.0), _seconds(query, "to_s", math.inf)
            return self._run_views.older(run, group, section, from_s, to_s)
        after = whole(query, "after", minimum=-1)
        return self._run_views.timeline(run, group, section, -1 if after is None else after)

    # --- events and files ------------------------------------------------------------------------

    def _stream(self, head: Head) -> Response:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        media_type = "text/event-stream; charset=utf-8"
        if head.method == "HEAD":
            return Response(200, b"", media_type, headers)
        try:
            run_id, prefix = read_query(head.query).get("run"), head.principal.runs
            check_visible(prefix if run_id is None else run_id, prefix)
            stream = self._events.open(run_id, head.client, prefix)
        except BadQueryError as error:
            return self._failure(400, str(error), head)
        except UnknownError as error:
            return self._failure(404, str(error), head)
        return Response(200, b"", media_type, headers, stream=stream)

    def _file(self, head: Head) -> Response:
        name = _INDEX if head.path == "/" else head.path.removeprefix(_FILES)
        asset = page.asset(name)
        if asset is None:
            return self._failure(404, "the page has no such file", head)
        is_text = asset.media_type.startswith(_ZIPPED_TYPES)

        def zipped() -> bytes | None:
            return _zipped_file(name) if is_text else None

        etag = f"W/{asset.etag}"
        response = conditional(head, asset.content, asset.media_type, etag, zipped)
        response.headers = {**response.headers, **SECURITY_HEADERS}
        return response


@cache
def _zipped_file(name: str) -> bytes:
    asset = page.asset(name)
    return b"" if asset is None else gzip.compress(asset.content, _FILE_LEVEL, mtime=0)


def busy(response: Response) -> Response:
    response.headers = {**response.headers, "Retry-After": "1"}
    return response


def conditional(
    head: Head,
    body: bytes,
    media_type: str,
    etag: str,
    zipped: Callable[[], bytes | None],
) -> Response:
    """The body, or its gzip where accepted, or 304."""
    headers = {**_CACHED, "ETag": etag}
    if _has(head.headers.get("if-none-match", ""), etag):
        return Response(304, b"", "", headers)
    if accepts_gzip(head.headers.get("accept-encoding", "")):
        small = zipped()
        if small is not None and len(small) < len(body):
            return Response(200, small, media_type, {**headers, "Content-Encoding": "gzip"})
    return Response(200, body, media_type, headers)


def accepts_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding header takes gzip.

    >>> accepts_gzip("br, gzip;q=0.5"), accepts_gzip("*, gzip;q=0"), accepts_gzip("")
    (True, False, False)
    """
    parts = (part.partition(";") for part in accepted.lower().split(","))
    weights = {name.strip(): weight.replace(" ", "").replace("\t", "") for name, _, weight in parts}
    weight = weights.get("gzip", weights.get("*"))
    return weight is not None and not _NO_WEIGHT.fullmatch(weight)


def _has(known: str, etag: str) -> bool:
    tags = {tag.strip().removeprefix("W/") for tag in known.split(",")}
    return "*" in tags or etag.removeprefix("W/") in tags


def whole(query: Query, name: str, *, minimum: int) -> int | None:
    """A field that is a whole number; None without it.

    Raises:
        BadQueryError: it is no such number in ASCII digits, or has more than 18 of them.
    """
    text = query.get(name)
    if text is None:
        return None
    is_whole = len(text) <= 18 and text.isascii() and text.removeprefix("-").isdecimal()
    if not is_whole or int(text) < minimum:
        raise BadQueryError(f"{name} must be a whole number of at least {minimum}")
    return int(text)


def _seconds(query: Query, name: str, default: float) -> float:
    text = query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadQueryError(f"{name} must be a time in seconds since 1970")
    return value
