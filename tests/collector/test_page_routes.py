"""The live page's paths over a real collector: answers, headers, refusals, the history."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from otel_straggler import page
from otel_straggler.collector.runs.timeline import FIRST_SEQ

JSON_PATHS = (
    "/v1/runs",
    "/v1/run",
    "/v1/run?run=run&group=",
    "/v1/rank?rank=0",
    "/v1/timeline",
    "/v1/scalars",
)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


@pytest.fixture(scope="module")
def fed(kit: Any) -> Iterator[Any]:
    """A collector that knows a run of four ranks, of which rank 2 is slow."""
    live = kit.Live(kit.settings())
    feed(live, kit)
    yield live
    live.stop()


def feed(live: Any, kit: Any, steps: int = 12, first: int = 0, **who: Any) -> None:
    for number in range(4):
        source = kit.rank(number, 4, **who)
        seconds = 0.2 if number == 2 else 0.1
        live.post(kit.spans_of(source, range(first, first + steps), {"forward": seconds}))
    asked = f"run={who.get('run_id', 'run')}&group={who.get('group', '')}"
    newest = first + steps - 5  # the last window stays open

    def is_shown() -> bool:
        columns = live.get(f"/v1/timeline?{asked}").json().get("columns", [])
        shown = live.get(f"/v1/run?{asked}").json().get("slowdowns", {}).get("overall")
        reached = any(column["last_step"] >= newest for column in columns)
        return reached and shown == [1.0, 1.0, 2.0, 1.0]

    kit.eventually(is_shown)


def test_every_answer_says_which_collector_made_it(fed: Any) -> None:
    for path in ("/v1/runs", "/v1/run", "/v1/rank?rank=2"):
        reported = fed.get(path).json()
        assert reported["schema_version"] == 1
        assert reported["collector"].endswith(fed.addresses["metrics"].rpartition(":")[2])
        assert reported["started_at_s"] < reported["now_s"]


def test_the_picture_of_the_first_run_is_shown_by_default(fed: Any) -> None:
    reported = fed.get("/v1/run").json()
    assert (reported["run"]["run_id"], reported["run"]["group"]) == ("run", "")
    assert reported["ranks"]["rank"] == [0, 1, 2, 3]
    assert reported["slowdowns"]["overall"] == [1.0, 1.0, 2.0, 1.0]
    assert reported["heat"]["pattern"] == "hot_cell"
    (entry,) = fed.get("/v1/runs").json()["runs"]
    assert (entry["run_id"], entry["world_size"]) == ("run", 4)


def test_a_timeline_grows_at_its_end(fed: Any) -> None:
    every = fed.get("/v1/timeline?section=forward").json()
    raw = base64.b64decode(every["values"])
    assert len(raw) == len(every["columns"]) * len(every["ranks"])
    assert raw[:4] == bytes([128, 128, 192, 128])
    newer = fed.get(f"/v1/timeline?section=forward&after={every['first']}").json()
    assert newer["columns"] == every["columns"][1:]
    ends = fed.get("/v1/run").json()["timeline"]
    assert (ends["first"], ends["last"]) == (every["first"], every["last"])
    nothing = fed.get(f"/v1/timeline?after={every['last']}").json()
    assert (nothing["columns"], nothing["values"]) == ([], "")


@pytest.mark.parametrize("path", JSON_PATHS)
def test_an_answer_is_not_sent_again_to_who_has_it(fed: Any, path: str) -> None:
    first = fed.get(path)
    assert first.headers["cache-control"] == "no-cache"
    again = fed.get(path, {"If-None-Match": f'"other", {first.headers["etag"]}'})
    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert "content-length" not in again.headers
    assert fed.get(path, {"If-None-Match": '"other"'}).status == 200


def test_large_answers_are_zipped_for_who_takes_that(fed: Any) -> None:
    plain = fed.get("/v1/run")
    zipped = fed.get("/v1/run", {"Accept-Encoding": "br, gzip;q=0.8"})
    assert "content-encoding" not in plain.headers
    assert zipped.headers["content-encoding"] == "gzip"
    assert zipped.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert gzip.decompress(zipped.body) == plain.body
    assert "content-encoding" not in fed.get("/v1/run", {"Accept-Encoding": "gzip;q=0"}).headers


def test_head_gives_the_headers_of_get(fed: Any, kit: Any) -> None:
    for path in ("/", "/page/index.html", *JSON_PATHS, "/v1/events"):
        answer = kit.ask(fed.addresses["metrics"], "HEAD", path)
        assert (answer.status, answer.body) == (200, b""), path


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/run?run=nobody", 404),
        ("/v1/run?group=nobody", 404),
        ("/v1/rank?rank=99", 404),
        ("/v1/rank?rank=0&run=nobody", 404),
        ("/v1/timeline?section=nobody", 404),
        ("/v1/timeline?run=nobody&history=1", 404),
        ("/v1/rank", 400),
        ("/v1/rank?rank=x", 400),
        ("/v1/rank?rank=-1", 400),
        ("/v1/rank?rank=" + "9" * 40, 400),
        ("/v1/rank?rank=%D9%A3", 400),
        ("/v1/timeline?after=1.5", 400),
        ("/v1/timeline?history=2", 400),
        ("/v1/timeline?history=1&from_s=nan", 400),
        ("/v1/timeline?history=1&to_s=soon", 400),
        ("/v1/run?" + "&".join(["a=b"] * 50), 400),
        ("/page/nothing.js", 404),
        ("/page/", 404),
        ("/page/../index.html", 404),
        ("/page/..%2f..%2fsettings.py", 404),
        ("/page/%2fetc%2fpasswd", 404),
        ("/page/js/../index.html", 404),
        ("/page/__init__.py", 404),
        ("/v1/run/", 404),
    ],
)
def test_what_there_is_not_is_refused_in_json(fed: Any, path: str, status: int) -> None:
    answer = fed.get(path)
    assert (answer.status, bool(answer.json()["error"])) == (status, True)


def test_only_reading_is_allowed(fed: Any, kit: Any) -> None:
    for path in ("/", "/page/index.html", "/v1/runs", "/v1/events"):
        answer = kit.ask(fed.addresses["metrics"], "POST", path, b"{}")
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD"), path


def test_a_foreign_host_name_is_refused_everywhere(fed: Any) -> None:
    """A page on the web cannot make a browser read a run under its own name."""
    for path in ("/", "/page/index.html", *JSON_PATHS, "/v1/events"):
        assert fed.get(path, {"Host": "evil.example"}).status == 403, path


def test_every_file_of_the_page_is_served_with_its_type(fed: Any) -> None:
    for name in page.names():
        asset = page.asset(name)
        assert asset is not None
        answer = fed.get(f"/page/{name}")
        assert answer.body == asset.content, name
        assert answer.headers["content-type"] == asset.media_type
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["referrer-policy"] == "no-referrer"
    index = fed.get("/")
    assert index.body == fed.get("/page/index.html").body
    assert index.headers["content-security-policy"] == POLICY


def test_files_are_asked_for_again_and_not_sent_again(fed: Any) -> None:
    """A page of an older version must never meet the JSON of a newer one."""
    first = fed.get("/")
    assert first.headers["cache-control"] == "no-cache"
    assert fed.get("/", {"If-None-Match": first.headers["etag"]}).status == 304
    zipped = fed.get("/", {"Accept-Encoding": "gzip"})
    if "content-encoding" in zipped.headers:
        assert gzip.decompress(zipped.body) == first.body


def test_names_from_the_network_come_as_text(start: Any, kit: Any) -> None:
    """As JSON text, with what is not printable replaced; the page shows text as text."""
    live = start()
    name = "<script>alert(1)</script>\u202e&\"'"
    feed(live, kit, 8, run_id="run", node=name, job=name)
    reported = live.get("/v1/run").json()
    shown = name.replace("\u202e", "�")
    assert reported["ranks"]["nodes"] == [shown]
    assert reported["run"]["job"] == shown


def test_a_collector_without_a_run_says_so(live: Any) -> None:
    assert live.get("/v1/runs").json()["runs"] == []
    assert live.get("/v1/run").status == 404
    assert live.get("/").status == 200


def test_groups_have_pictures_of_their_own(start: Any, kit: Any) -> None:
    live = start()
    feed(live, kit, 8, group="actor")
    for number in range(4):
        source = kit.rank(number, 4, group="critic", session_id=f"{number + 50:016x}")
        live.post(kit.spans_of(source, range(8)))
    kit.eventually(lambda: len(live.get("/v1/run").json()["run"]["groups"]) == 2)
    kit.eventually(lambda: live.get("/v1/timeline?group=critic").json()["columns"])
    assert live.get("/v1/run?group=critic").json()["run"]["group"] == "critic"
    assert live.get("/v1/rank?group=actor&rank=2").json()["group"] == "actor"
    assert len(live.get("/v1/runs").json()["runs"]) == 1


_QUERY_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


@hypothesis_settings(suppress_health_check=list(HealthCheck))
@given(
    path=st.sampled_from(["/v1/runs", "/v1/run", "/v1/rank", "/v1/timeline", "/v1/scalars"]),
    fields=st.lists(
        st.tuples(
            st.sampled_from(
                ["run", "group", "rank", "section", "after", "history", "from_s", "to_s", "x"]
            ),
            st.sampled_from(["", "run", "0", "1", "-1", "1e9", "inf", "forward", "٣", "%", "+"])
            | _QUERY_TEXT
            | st.integers(-(10**20), 10**20).map(str)
            | st.floats().map(str),
        ),
        max_size=6,
    ),
    is_raw=st.booleans(),
)
def test_any_query_is_answered_or_refused(
    fed: Any, path: str, fields: list[tuple[str, str]], is_raw: bool
) -> None:
    """Never an error of ours."""
    safe = "%+&=" if is_raw else ""
    query = "&".join(f"{name}={quote(value, safe=safe)}" for name, value in fields)
    answer = fed.get(f"{path}?{query}")
    assert answer.status in (200, 400, 404), answer.body
    json.loads(answer.body)


# --- the history ---------------------------------------------------------------------------------


def test_a_run_outlives_its_collector(start: Any, kit: Any, tmp_path: Path) -> None:
    """Its picture, its timeline and its ranks are there before anybody sends again."""
    path = str(tmp_path / "history.db")
    first = start(history__path=path)
    feed(first, kit, 16)
    before = first.get("/v1/run").json()
    columns = first.get("/v1/timeline").json()["columns"]
    first.stop()
    second = start(history__path=path)
    (entry,) = second.get("/v1/runs").json()["runs"]
    assert (entry["run_id"], entry["world_size"]) == ("run", 4)
    after = second.get("/v1/run").json()
    assert after["started_at_s"] > before["started_at_s"]
    assert after["slowdowns"]["overall"] == before["slowdowns"]["overall"]
    assert after["ranks"]["nodes"] == before["ranks"]["nodes"]
    reported = second.get("/v1/timeline?section=forward").json()
    assert len(reported["columns"]) >= len(columns)  # the end closed another window
    assert base64.b64decode(reported["values"])[:4] == bytes([128, 128, 192, 128])
    assert second.get("/v1/rank?rank=2").json()["sections"][0]["slowdown"] == 2.0
    assert second.get("/v1/rank?rank=7").status == 404


def test_a_run_that_goes_on_has_the_timeline_of_before(
    start: Any, kit: Any, tmp_path: Path
) -> None:
    """What the history had comes first, and numbers go on rising."""
    path = str(tmp_path / "history.db")
    first = start(history__path=path)
    feed(first, kit, 16)
    first.stop()
    second = start(history__path=path)
    feed(second, kit, 16, first=16)
    reported = second.get("/v1/timeline").json()
    steps = [column["first_step"] for column in reported["columns"]]
    assert steps[:7] == [0, 4, 8, 12, 16, 20, 24]
    seqs = [column["seq"] for column in reported["columns"]]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert seqs[0] < FIRST_SEQ <= seqs[-1]


def test_older_windows_come_from_the_history(start: Any, kit: Any, tmp_path: Path) -> None:
    """By when they ended, on the senders' clock; at most 240."""
    live = start(history__path=str(tmp_path / "history.db"))
    feed(live, kit, 16)
    ask = "/v1/timeline?history=1&section=forward"
    every = kit.eventually(
        lambda: (reported := live.get(ask).json()) and len(reported["columns"]) >= 3 and reported
    )
    ends = [column["at_s"] for column in every["columns"]]
    some = live.get(f"{ask}&from_s={ends[1]}&to_s={ends[1]}").json()
    assert some["columns"] == [every["columns"][1]]
    assert live.get(f"{ask}&from_s={ends[-1] + 1e6}").status == 404  # no such section then
    assert live.get("/v1/timeline?history=1&from_s=1e12").json()["columns"] == []


def test_without_a_history_nothing_is_older(fed: Any) -> None:
    assert fed.get("/v1/timeline?history=1").json()["columns"] == []
