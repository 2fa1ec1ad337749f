"""The metrics address: pages, methods, hosts, readiness; and forwarding through a collector."""

from __future__ import annotations

import gzip
import http.client
import json
import math
import socket
import subprocess
from typing import Any

import pytest

from otel_straggler import semconv


def test_pages_are_served_with_their_types(live: Any) -> None:
    """Whoever asks first, a collector without a run answers too."""
    page = live.get("/metrics")
    assert page.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert page.headers[semconv.SCORER_HEADER] == "1"
    report = live.get("/v1/report")
    assert report.headers["content-type"] == "application/json"
    assert report.json() == {"schema_version": 1, "runs": {}}
    for path in ("/healthz", "/readyz"):
        assert (live.get(path).status, live.get(path).json()) == (200, {"status": "ok"})


def test_head_gives_the_headers_of_get(live: Any, kit: Any) -> None:
    """Load balancers ask so."""
    for path in ("/metrics", "/v1/report", "/healthz", "/readyz"):
        answer = kit.ask(live.addresses["metrics"], "HEAD", path)
        assert (answer.status, answer.body) == (200, b"")
        assert int(answer.headers["content-length"]) > 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/metrics/", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/v1/report", 405),
    ],
)
def test_other_requests_are_refused_in_json(
    live: Any, kit: Any, method: str, path: str, status: int
) -> None:
    """With a sentence that says what there is."""
    answer = kit.ask(live.addresses["metrics"], method, path)
    assert answer.status == status
    assert answer.json()["error"]
    assert ("allow" in answer.headers) == (status == 405)


def test_requests_refused_by_their_head_are_counted_too(live: Any, kit: Any) -> None:
    """A sender with the wrong path or type is visible to whoever runs the collector."""
    otlp = live.addresses["otlp_http"]
    for method, path in (("GET", "/v1/traces"), ("POST", "/v1/nothing")):
        kit.ask(otlp, method, path)
    page = live.get("/metrics").body.decode()
    counted = [
        line
        for line in page.splitlines()
        if "_http_answers_total{" in line and not line.endswith(" 0")
    ]
    assert any('signal="traces"' in line and 'status="405"' in line for line in counted)
    assert any('signal=""' in line and 'status="404"' in line for line in counted)
    assert all(line.endswith(" 1") for line in counted)


def test_a_foreign_host_name_is_refused(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A page on the web cannot make a browser read this address under its own name. A scraper that
    is refused for a name finds in the log what to set, once for each name, ten at most."""
    live = start(metrics__allowed_hosts=("grafana.internal",))
    own = [
        "localhost",
        "LocalHost:9464",
        "127.0.0.1:1",
        "[::1]:9464",
        "10.1.2.3",
        "grafana.internal",
    ]
    for host in own:
        assert live.get("/v1/report", {"Host": host}).status == 200, host
    for host in ("evil.example", "evil.example:9464", "localhost.evil.example", "127.0.0.1.evil"):
        assert live.get("/v1/report", {"Host": host}).status == 403, host
    for n in range(20):
        assert live.get("/metrics", {"Host": f"n{n % 15}.example"}).status == 403
    reported = [m for m in caplog.messages if "metrics.allowed_hosts" in m]
    assert reported[0].startswith("refused '/v1/report' of Host 'evil.example'; if that is a name")
    assert len(reported) == len(set(reported)) == 10


def test_a_target_with_an_authority_is_for_that_host(live: Any) -> None:
    """Whatever the Host header says beside it (RFC 9112, 3.2.2)."""
    host, _, port = live.addresses["metrics"].rpartition(":")

    def status(target: str, named: str) -> int:
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        connection.putrequest("GET", target, skip_host=True)
        connection.putheader("Host", named)
        connection.endheaders()
        try:
            return connection.getresponse().status
        finally:
            connection.close()

    assert status("http://evil.example/healthz", "localhost") == 403
    assert status("http://LOCALHOST:9/healthz?x#y", "evil.example") == 200
    assert status("http://me@localhost/healthz", "localhost") == 400
    assert status("http://[::1]", "localhost") == 200


def test_a_flood_of_scrapes_gets_the_page_of_just_before(live: Any) -> None:
    """A fifth of a core at most goes into /metrics; the text is whole all the same."""
    share = live.collector._metrics_share
    before = live.get("/metrics").body
    share._paid_until_s = math.inf
    live.post(b"nonsense")
    assert live.get("/metrics").body == before
    share._paid_until_s = -math.inf
    assert live.get("/metrics").body != before


def test_every_series_names_its_collector(start: Any, kit: Any) -> None:
    """So that two collectors can be told apart, and their runs found."""
    live = start(metrics__collector_id='c"1')
    live.post(kit.spans_of(kit.rank(0, 1), range(8)))
    kit.eventually(live.windows)
    lines = [x for x in live.get("/metrics").body.decode().splitlines() if not x.startswith("#")]
    assert len(lines) > 20
    assert all(r'collector="c\"1"' in line for line in lines)


def test_awkward_names_reach_prometheus_whole(live: Any, kit: Any) -> None:
    """Sections, nodes and runs may be called anything; of that, line breaks are shown."""
    name = 'sec"tion\\ größe\n前'
    who = kit.rank(0, 1, run_id='r"\\', node="n\n1")
    live.post(kit.spans_of(who, range(8), {name: 0.1}))
    shown = name.replace("\n", "\N{REPLACEMENT CHARACTER}")
    node = "n\N{REPLACEMENT CHARACTER}1"
    kit.eventually(lambda: live.value(semconv.SECTION_MEDIAN, section=shown, node=node))


def test_a_page_passes_promtool(live: Any, kit: Any, promtool: str) -> None:
    """Names, types and texts are what Prometheus wants them to be."""
    for number in range(2):
        live.post(kit.spans_of(kit.rank(number), range(8)))
        live.post(kit.beat_of(kit.rank(number), sent_at_s=1.79e9, dropped={"x": 1}), "metrics")
    kit.eventually(live.windows)
    checked = subprocess.run(
        [promtool, "check", "metrics"],
        input=live.get("/metrics").body,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_a_large_run_is_folded_into_its_budget(start: Any, kit: Any) -> None:
    """Liveness of every rank stays; scores are folded, and a metric says how many."""
    live = start(metrics__series_budget=400, scoring__grace_s=60.0)
    ranks = 100
    for number in range(ranks):
        seconds = 0.2 if number == 42 else 0.1
        live.post(kit.spans_of(kit.rank(number, ranks), range(5), {"forward": seconds}))
    kit.eventually(live.windows)
    kit.eventually(lambda: live.ranks(semconv.RANK_STRAGGLING) == list(range(ranks)))
    assert live.ranks(semconv.RANK_STEP) == list(range(ranks))
    kept = live.ranks(semconv.SECTION_RELATIVE)
    assert 42 in kept
    assert len(kept) < ranks
    name = semconv.SECTION_RELATIVE.prometheus_name
    folded = live.value(semconv.COLLECTOR_SERIES_FOLDED, run_id="run", family=name)
    assert folded == ranks - len(kept)


def test_several_large_runs_share_one_budget(start: Any, kit: Any) -> None:
    """A small run keeps all of its series."""
    live = start(metrics__series_budget=3_000, scoring__grace_s=60.0)
    sizes = {"small": 2, "large-1": 60, "large-2": 60}
    for run_id, ranks in sizes.items():
        for number in range(ranks):
            source = kit.rank(number, ranks, run_id=run_id)
            live.post(kit.spans_of(source, range(5), {f"part-{n}": 0.1 for n in range(8)}))
    kit.eventually(lambda: all(live.windows(run_id) for run_id in sizes))
    name = semconv.SECTION_RELATIVE.prometheus_name

    def shown(run_id: str) -> int:
        return len(live.samples(name, run_id=run_id))

    def folded(run_id: str) -> float | None:
        return live.value(semconv.COLLECTOR_SERIES_FOLDED, run_id=run_id, family=name)

    kit.eventually(lambda: folded("large-1") and folded("large-1") == folded("large-2"))
    assert [shown(run_id) + (folded(run_id) or 0) for run_id in sizes] == [16, 480, 480]
    assert (shown("small"), folded("small")) == (2 * 8, 0)


def test_requests_are_forwarded_byte_for_byte(start: Any, kit: Any) -> None:
    """Compressed, plain, JSON, metrics, logs; what is refused is not passed on."""
    sink = start()
    relay = start(forward__url=f"http://{sink.addresses['otlp_http']}")
    taken: list[Any] = []
    sink.collector._intake.forward = lambda request, _: taken.append(request)
    body = kit.spans_of(kit.rank(0, 1), range(8))
    zipped = gzip.compress(body, 1)
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
    assert (
        kit.ask(relay.addresses["otlp_http"], "POST", "/v1/traces", zipped, headers).status == 200
    )
    relay.post(body)
    relay.post(b'{"resourceSpans":[]}', content_type="application/json")
    relay.post(kit.beat_of(kit.rank(0, 1), sent_at_s=1.79e9), "metrics")
    relay.post(b"\xff\xff")
    relay.post(b"log", "logs")
    sent = kit.eventually(
        lambda: relay.value(semconv.COLLECTOR_FORWARDED, outcome="sent") == 5 and taken
    )
    traces = [request for request in sent if request.signal == "traces"]
    assert [request.body for request in traces[:2]] == [body, body]
    assert [request.content_type for request in traces][2] == "application/json"
    others = [request.signal for request in sent if request.signal != "traces"]
    assert others == ["metrics", "logs"]
    assert sink.spans() == relay.spans() == {"scored": 16}


def test_a_sink_that_is_away_changes_nothing_for_senders(start: Any, kit: Any) -> None:
    """Answers and scores do not wait for the forwarder."""
    live = start(forward__url="http://127.0.0.1:9")
    for _ in range(3):
        assert live.post(kit.spans_of(kit.rank(0, 1), range(8))).status == 200
    kit.eventually(live.windows)
    kit.eventually(lambda: (live.value(semconv.COLLECTOR_FORWARD_QUEUE) or 0) > 0)


def test_stopping_scores_what_was_accepted(start: Any, kit: Any) -> None:
    """Open windows are closed, and nobody can connect any more."""
    live = start()
    live.post(kit.spans_of(kit.rank(0, 2), range(3)))
    live.stop()
    snapshot = live.collector._worker.snapshot
    [window] = json.loads(snapshot.report())["runs"]["run"]["windows"]
    assert window["closed_by"] == "end"
    for address in live.addresses.values():
        host, _, port = address.rpartition(":")
        with (
            pytest.raises(ConnectionRefusedError),
            socket.create_connection((host, int(port)), timeout=5),
        ):
            pass
