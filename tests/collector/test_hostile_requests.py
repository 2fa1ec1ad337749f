"""Any value of any field at any route is answered below 500, with a sentence; and nobody without a
role gets or changes anything, whatever they try.

The routes are read from the collector itself: a new one is tried without a change here.
"""

from __future__ import annotations

import http.client
import json
import logging
import random
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pytest

from otel_straggler import semconv
from otel_straggler.collector.access.roles import NOBODY
from otel_straggler.model.flight_json import flight_record_json
from otel_straggler.model.flight_records import Collective, FlightRecord, ProcessGroup
from otel_straggler.model.operator_tables import (
    OperatorTime,
    costliest_operators,
    operator_table_json,
)

from .authorities import TOKENS, WRONG, bearer
from .conftest import PROTOBUF
from .test_access_matrix import COMMANDS, EXPECTED, EXPECTED_OTLP, SECRETS, TEAM, Guarded

OWN, FOREIGN, SECRET_NODE = "team-a/own", "team-b/foreign", "node-of-team-b"
FIELDS = (
    "run", "group", "rank", "section", "after", "history", "from_s", "to_s", "alert", "ids",
    "local", "session", "node", "done", "why",
)  # fmt: skip
VALUES = {
    "400 digits": "9" * 400,
    "5,000 digits": "9" * 5_000,
    "-1": "-1",
    "NaN": "nan",
    "infinity": "inf",
    "1e400": "1e400",
    "1e300": "1e300",
    "empty": "",
    "digits that are not ASCII": "\N{SUPERSCRIPT TWO}\N{ARABIC-INDIC DIGIT THREE}",
    "two lines": "a\r\nX-Forged: 1\r\n\r\n",
    "controls": "\0\x1b[31m\u202e",
    "64 KiB": "x" * 65_536,
}
QUERIES = {
    "/v1/rank": {"rank": "0"},
    "/v1/timeline": {"history": "1", "from_s": "0"},
    "/v1/commands": {"run": OWN, "rank": "0", "session": "s", "node": "n"},
}
"""What a path needs before it looks at anything else."""
RAW = {
    "400 digits": "9" * 400,
    "5,000 digits": "9" * 5_000,
    "-1": "-1",
    "NaN": "NaN",
    "infinity": "Infinity",
    "1e400": "1e400",
    "empty": '""',
    "digits that are not ASCII": '"\N{SUPERSCRIPT TWO}"',
    "two lines": '"a\\r\\nb\\u001b[31m"',
    "half a character": '"\\ud800"',
    "a list": "[]",
    "an object": "{}",
    "true": "true",
    "null": "null",
    "64 KiB": f'"{"x" * 65_536}"',
    "100,000 lists": "[" * 100_000,
    "nothing": "",
}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/decisions": {
        "action": "mute", "run_id": OWN, "subject_id": "hang", "reason": "r", "by": "b",
        "seconds": 60,
    },
    "/v1/maintenance": {"node": "n", "seconds": 60, "reason": "r", "by": "b"},
    "/v1/commands": {"verb": "dump_stacks", "run": OWN, "group": "", "ranks": [0]},
    "/v1/alerts/test": {"severity": "critical", "seconds": 1},
    "/v1/login": {"token": WRONG},
    "/v1/logout": {},
}  # fmt: skip


class Asked(NamedTuple):
    listener: str
    method: str
    path: str
    body: bytes | None = None


class Asker:
    """Sends requests over kept connections; counts them."""

    def __init__(self, guarded: Guarded) -> None:
        self.guarded = guarded
        self._open: dict[str, http.client.HTTPConnection] = {}
        self.count = 0

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def ask(self, asked: Asked, token: str | None) -> tuple[int, bytes]:
        """The status, and the body or its beginning."""
        self.count += 1
        if asked.listener not in self._open:
            host, _, port = self.guarded.live.addresses[asked.listener].rpartition(":")
            self._open[asked.listener] = http.client.HTTPConnection(host, int(port), timeout=60)
        connection = self._open[asked.listener]
        headers = {semconv.COMMANDS_TOKEN_HEADER: COMMANDS, **bearer(token)}
        if asked.body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(asked.method, asked.path, asked.body, headers)
        response = connection.getresponse()
        is_stream = "event-stream" in (response.getheader("Content-Type") or "")
        body = response.read1() if is_stream and asked.method == "GET" else response.read()
        if is_stream or response.getheader("Connection") == "close":
            connection.close()
            del self._open[asked.listener]
        return response.status, body


@pytest.fixture(scope="module")
def guarded(kit: Any, tmp_path_factory: Any) -> Iterator[Guarded]:
    """A collector with grants, a history, and a run of each of two tenants."""
    result = Guarded(kit, tmp_path_factory.mktemp("hostile"), None, "http://127.0.0.1:9")
    for run_id in (OWN, FOREIGN):
        node = "n" if run_id == OWN else SECRET_NODE
        rank = kit.rank(0, 1, run_id=run_id, node=node)
        for signal, body in (
            ("traces", kit.spans_of(rank, range(12))),
            ("metrics", kit.beat_of(rank, sent_at_s=2.0, step=11)),
        ):
            sent = result.ask(
                "otlp_http", "POST", f"/v1/{signal}", TOKENS["ingest"], body, PROTOBUF
            )
            assert sent[0] == 200
    runs = result.live.collector._worker
    for run_id in (OWN, FOREIGN):
        kit.eventually(lambda of=run_id: runs.snapshot.source_of(of, "", 0))
    yield result
    result.live.stop(4.0)


@pytest.fixture
def asker(guarded: Guarded) -> Iterator[Asker]:
    with closing(Asker(guarded)) as result:
        yield result


def readable(guarded: Guarded) -> list[tuple[str, str]]:
    """Listener and path of all that is read."""
    servers = guarded.live.collector._servers
    return [
        (listener, path.replace("...", "style.css"))
        for listener, app in (("metrics", servers._api), ("otlp_http", servers._otlp))
        for path in app.paths
        if "GET" in (app.roles(path) or {})
    ]


def queries(guarded: Guarded) -> Iterator[Asked]:
    """Every route with every field, with every value."""
    for (listener, path), field, (what, value) in product(
        readable(guarded), FIELDS, VALUES.items()
    ):
        given = {**QUERIES.get(path, {}), field: value}
        yield Asked(listener, "GET", f"{path}?{urlencode(given)}")
        if what == "empty":
            twice = f"{urlencode(given)}&{field}=0&{field}=1"
            yield Asked(listener, "GET", f"{path}?{twice}")
            yield Asked(listener, "GET", f"{path}?{'&'.join([f'{field}=1'] * 500)}")


def bodies_of(valid: Any) -> Iterator[bytes]:
    """A JSON body with every one of its values replaced by every other."""
    for place in list(_places(valid)):
        for raw in RAW.values():
            marked = json.loads(json.dumps(valid))
            at = marked
            for key in place[:-1]:
                at = at[key]
            at[place[-1]] = "MARK"
            yield json.dumps(marked).replace('"MARK"', raw).encode()
    yield from (raw.encode() for raw in RAW.values())


def _places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in inner:
        yield (*before, key)
        if isinstance(each, dict | list):
            yield from _places(each, (*before, key))


def check(asked: Asked, status: int, body: bytes) -> None:
    where = (
        f"{asked.method} {asked.path[:200]} {(asked.body or b'')[:100]!r}: {status} {body[:200]!r}"
    )
    assert status < 500, where
    if status >= 400 and asked.method != "HEAD":
        said = json.loads(body) if body.startswith(b"{") else {}
        text = said.get("error") or said.get("message") or body.decode("utf-8", "replace")
        assert len(text) > 8, where
        assert len(body) < 2_000, where


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No line of the log has one, and all lines are lines."""
    caplog.set_level(logging.INFO)
    yield
    for record in caplog.get_records("call"):
        assert record.exc_info is None, record.getMessage()
        assert record.getMessage().isprintable()


@pytest.mark.parametrize("count", [600, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_any_value_of_any_field_of_any_route_is_answered(
    guarded: Guarded, asker: Asker, count: int
) -> None:
    """By who may do everything, so that nothing is refused for its sender. By night all, on each
    push some of them."""
    every = list(queries(guarded))
    assert len(every) > 2_000
    for asked in random.Random(37).sample(every, min(count, len(every))):
        check(asked, *asker.ask(asked, TOKENS["admin"]))


def test_a_number_is_read_in_one_way_everywhere(asker: Asker) -> None:
    """A rank: ASCII digits, at most 18 of them."""
    for path in ("/v1/rank", "/v1/report"):
        for value in ("-1", "9" * 400, "\N{ARABIC-INDIC DIGIT THREE}", "1_0", " 1", "0x1", "nan"):
            asked = Asked("metrics", "GET", f"{path}?rank={quote(value)}")
            status, body = asker.ask(asked, TOKENS["admin"])
            assert status == 400, asked
            assert b"rank must be a whole number" in body, asked


@pytest.mark.parametrize("path", BODIES)
def test_any_value_in_any_body_is_answered(asker: Asker, path: str) -> None:
    for body in bodies_of(BODIES[path]):
        asked = Asked("metrics", "POST", path, body)
        status, answer = asker.ask(asked, TOKENS["admin"])
        if status != 429:  # of test alerts
            check(asked, status, answer)


WORLD = ProcessGroup("default_pg", (0, 1), "0", "nccl")
RECORD = flight_record_json(
    FlightRecord(
        rank=0, groups=(WORLD,), enqueued={WORLD: 7}, completed={WORLD: 6},
        calls=(Collective(group=WORLD, sequence=7, name="all_reduce", age_s=1.0),),
    )
) | {"age_s": 1.0}  # fmt: skip
TABLE = operator_table_json(
    costliest_operators([OperatorTime("aten::mm", 3, 0.5)], rank=0, first_step=1, n_steps=2)
)


@pytest.mark.parametrize(
    ("part", "verb", "valid"),
    [("flight_records", "dump_flight_record", RECORD), ("profiles", "profile", TABLE)],
)
def test_any_value_of_a_record_that_was_asked_for_is_answered(
    guarded: Guarded, asker: Asker, kit: Any, part: str, verb: str, valid: Any
) -> None:
    """``age_s`` of 400 digits was a 500."""
    commands = guarded.live.collector._commands
    kit.eventually(lambda: commands.snapshot.source_of(OWN, "", 0))
    source = commands.snapshot.source_of(OWN, "", 0)
    assert source is not None
    query = {"run": OWN, "rank": "0", "session": source.session_id, "node": source.node}
    path = f"/v1/commands?{urlencode(query)}"
    [id_] = commands.ask(OWN, "", [0], verb, "a test")
    seen = set()
    for body in bodies_of(valid):
        whole = b'{"%s": {"%s": %s}}' % (part.encode(), id_.encode(), body)
        asked = Asked("otlp_http", "POST", path, whole)
        status, answer = asker.ask(asked, TOKENS["ingest"])
        check(asked, status, answer)
        seen.add(status)
    assert seen == {200, 400}


def tries(guarded: Guarded, seed: int, count: int) -> list[Asked]:
    """Requests of somebody who has read the documentation."""
    chance = random.Random(seed)
    tables = [("metrics", EXPECTED), ("otlp_http", EXPECTED_OTLP)]
    runs = [OWN, FOREIGN, "", "team-b/", "team-a/../team-b/foreign", FOREIGN.upper(), "%", "*"]
    odd = list(queries(guarded))
    result = []
    for _ in range(count):
        listener, table = chance.choice(tables)
        path = chance.choice(list(table)).replace("...", chance.choice(["style.css", "../../x"]))
        method = chance.choice(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
        given = {"run": chance.choice(runs), "rank": chance.choice(["0", "-1", "9" * 400])}
        given |= {"ids": ",".join(chance.choices("abcdef0123456789", k=4))}
        body = None
        if method in ("POST", "PUT", "PATCH"):
            body = json.dumps(BODIES.get(path, {}) | {"run_id": FOREIGN, "run": FOREIGN}).encode()
        made = Asked(listener, method, f"{path}?{urlencode(given)}", body)
        result.append(chance.choice([made, made, chance.choice(odd)]))
    return result


@pytest.mark.parametrize("token", [None, WRONG, TEAM, TOKENS["ingest"]])
def test_a_day_of_trying_opens_nothing(
    guarded: Guarded, asker: Asker, token: str | None, kit: Any
) -> None:
    """600 requests each, without a token, with a wrong one, with those of a reader of one tenant
    and of a sender: no run or node of the other tenant is in an answer, and nothing changes."""
    who = SECRETS.get(token, NOBODY)
    commands = guarded.live.collector._commands
    [foreign_id] = commands.ask(FOREIGN, "", [0], "dump_stacks", "a test")

    def state() -> Any:
        collector = guarded.live.collector
        spans = collector._intake.counts()
        books = collector._decisions.state(), collector._maintenance.listed()
        runs = sorted(collector._worker.snapshot.runs)
        return *books, dict(commands.counts()), spans.outcomes, runs

    before = state()
    asked_for = Asked("metrics", "GET", f"/v1/commands?ids={foreign_id}")
    for asked in [asked_for, *tries(guarded, seed=len(token or ""), count=600)]:
        status, body = asker.ask(asked, token)
        check(asked, status, body)
        is_named = FOREIGN in asked.path or quote(FOREIGN, safe="") in asked.path
        assert is_named or FOREIGN.encode() not in body, asked
        assert SECRET_NODE.encode() not in body, asked
        assert foreign_id.encode() not in body, asked
        if who is NOBODY and token != TEAM and status == 200:
            assert asked.path.partition("?")[0] in (
                "/", "/page/style.css", "/healthz", "/readyz", "/runbook", "/v1/logout"
            ), asked  # fmt: skip
    assert state() == before
