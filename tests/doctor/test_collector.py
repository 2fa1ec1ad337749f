"""What the doctor reads off a collector, real or written down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.config import Endpoint
from otel_straggler.doctor import collector as subject
from otel_straggler.doctor.collector import Collector, Sample
from otel_straggler.doctor.findings import Finding
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.clients.client import client_for
from otel_straggler.otlp.encode_metrics import encode_heartbeat
from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import encode_requests

Examine = Callable[..., dict[str, Finding]]
URLs = dict[str, str]


def send(collector: URLs, signal: Any, body: bytes) -> None:
    endpoint = Endpoint(url=f"{collector['otlp_http']}/v1/{signal}")
    client = client_for(endpoint, signal)
    assert client.post(body, content_type="application/x-protobuf").is_success
    client.close()


def beat(collector: URLs, rank: int, session: str = "", world_size: int = 3, **more: Any) -> None:
    """One heartbeat of a rank of the run "run"."""
    source = Source(
        run_id="run", rank=rank, session_id=session or f"{rank:016x}", world_size=world_size,
        node="n",
    )  # fmt: skip
    resource = {
        str(semconv.RUN_ID): "run",
        str(semconv.RANK): rank,
        str(semconv.WORLD_SIZE): world_size,
        str(semconv.SESSION_ID): source.session_id,
        str(semconv.HOST_NAME): "n",
    }
    reported = Heartbeat(source=source, **{"sent_at_s": time.time(), **more})
    body = encode_heartbeat(reported, resource=resource, info={}, started_at_s=1.0)
    send(collector, "metrics", body)


@pytest.fixture
def look(examined: Examine, collector: URLs) -> Callable[[str], Finding]:
    """Examine until there is such a finding, with this value if one is given; the collector needs
    a moment for what was sent."""

    def until(finding_id: str, value: Any = None, **options: Any) -> Finding:
        ends_at = time.monotonic() + 20
        asked = {"endpoint": collector["otlp_http"], "collector": collector["metrics"], **options}
        while True:
            result = examined(**asked)
            if finding_id in result and (value is None or result[finding_id].value == value):
                return result[finding_id]
            assert time.monotonic() < ends_at, result
            time.sleep(0.05)

    return until


def test_ranks_that_do_not_report_are_a_problem(
    look: Callable[..., Finding], collector: URLs
) -> None:
    """With their numbers; the run is found without being named, as it is the only one."""
    beat(collector, 0)
    beat(collector, 2)
    finding = look("collector.ranks", {"seen": 2, "scored": 0, "world_size": 3})
    assert (finding.status, finding.sentence) == ("problem", "2 of 3 ranks report; missing: 1.")


def test_ranks_that_all_report_are_fine(look: Callable[..., Finding], collector: URLs) -> None:
    """Counted from heartbeats."""
    for rank in range(3):
        beat(collector, rank)
    finding = look("collector.ranks", {"seen": 3, "scored": 0, "world_size": 3})
    assert finding.status == "ok"


def test_a_rank_that_fell_silent_is_a_problem(
    look: Callable[..., Finding], collector: URLs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one that has ended."""
    monkeypatch.setattr(subject, "SILENT_S", 0.6)
    for rank in range(3):
        beat(collector, rank)
    beat(collector, 1, finished_at_s=time.time(), outcome="ok")
    assert look("collector.silent", [0, 2]).status == "problem"


def test_more_names_than_are_watched_are_told_with_the_mistake_behind_them() -> None:
    """A run id for each process, a group for each restart, the number of a step in a section."""
    constant = {"collector": "c"}
    family = semconv.COLLECTOR_REJECTED.prometheus_name
    collector = Collector(
        url="http://c",
        runs={},
        samples=(
            Sample(family, {"what": "run", **constant}, 9_900.0),
            Sample(family, {"what": "group", **constant}, 1_300.0),
            Sample(semconv.COLLECTOR_NAMES_FOLDED.prometheus_name, constant, 9_800.0),
        ),
        clock=None,
    )
    result = {finding.id: finding for finding in subject.check_collector(collector)}
    assert {name: finding.status for name, finding in result.items()} == {
        "collector.crowded": "problem",
        "collector.groups": "problem",
        "collector.section_names": "warning",
    }
    assert "time stamp" in result["collector.crowded"].sentence
    assert result["collector.crowded"].remedy.startswith("export OTEL_STRAGGLER_RUN_ID=")


def test_two_processes_of_one_rank_are_a_problem(
    look: Callable[..., Finding], collector: URLs
) -> None:
    """The remedy gives each run a name of its own."""
    began_s = time.time() - 30
    for tick in range(5):
        for session, later_s in (("a" * 16, 0), ("b" * 16, 1)):
            beat(collector, 0, session, sent_at_s=began_s + 5 * tick + later_s)
    finding = look("collector.clashes")
    assert (finding.status, finding.value) == ("problem", [0])
    assert finding.remedy.startswith("export OTEL_STRAGGLER_RUN_ID=")


def test_processes_that_all_report_as_rank_0_of_1_do_not_know_their_rank(
    look: Callable[..., Finding], collector: URLs
) -> None:
    """One name for each would only hide it."""
    began_s = time.time() - 30
    for tick in range(5):
        for later_s, session in enumerate("abc"):
            sent_at_s = began_s + 5 * tick + later_s
            beat(collector, 0, session * 16, world_size=1, sent_at_s=sent_at_s)
    finding = look("collector.clashes")
    assert "3 processes report as rank 0 of 1" in finding.sentence
    assert finding.remedy.startswith("torchrun")


def test_losses_of_ranks_are_a_warning(look: Callable[..., Finding], collector: URLs) -> None:
    """Over all ranks, by reason."""
    for rank in (0, 1):
        beat(collector, rank, dropped={"queue_full": 500})
    finding = look("collector.dropped", {"reason": "queue_full", "count": 1000})
    assert finding.status == "warning"
    assert "queue_bytes" in finding.remedy


def test_an_unknown_run_is_a_warning_with_the_known_ones(
    look: Callable[..., Finding], collector: URLs
) -> None:
    """The commonest reason: another run id on the other side."""
    beat(collector, 0)
    look("collector.ranks")
    finding = look("collector.run", run="other")
    assert finding.status == "warning"
    assert "nothing of the run 'other'; its runs: 'run'." in finding.sentence


def test_the_volume_is_measured_where_the_collector_has_rows(
    look: Callable[..., Finding], collector: URLs
) -> None:
    """From the newest window: sections and one span for the step."""
    run = simulate("healthy", Plan(ranks=4, steps=9, slow_rank=0, run_id="run"))
    for body in encode_requests(run.batch):
        send(collector, "traces", body)
    ends_at = time.monotonic() + 20
    while "measured" not in (finding := look("volume.spans")).sentence:
        assert time.monotonic() < ends_at, finding
        time.sleep(0.05)
    batch = run.batch.take((run.batch.step >= 4) & (run.batch.step < 8))
    seconds = (batch.start_ns + batch.duration_s * 1e9).max() / 1e9 - batch.start_ns.min() / 1e9
    value = finding.value
    assert value["spans_per_second_per_rank"] == pytest.approx(24 / seconds, rel=0.05)
    assert value["ranks"] == 4


def test_an_address_that_is_no_collector_is_a_problem_if_named(
    examined: Examine, serve: Callable[..., str], collector: URLs
) -> None:
    """If nobody named it, the usual one was tried, and that is no problem."""
    finding = examined(endpoint=collector["otlp_http"], collector=serve(body=b"{}"))
    assert finding["collector.reachable"].status == "problem"
    assert "not with the report of a collector" in finding["collector.reachable"].sentence
    finding = examined(endpoint=collector["otlp_http"], collector=serve(status=404))
    assert "HTTP 404" in finding["collector.reachable"].sentence


def written(**samples: Any) -> Collector:
    """A collector whose pages are written down."""
    listed = tuple(
        Sample(name, labels, value) for name, lines in samples.items() for labels, value in lines
    )
    report = {"run": {"windows": [], "not_scored": {"late": 7}}}
    return Collector("http://c:9464", report, listed, None)


def result(findings: Iterator[Finding]) -> dict[str, Finding]:
    return {finding.id: finding for finding in findings}


def test_late_rows_are_a_warning() -> None:
    """The collector can be told to wait longer."""
    finding = result(subject.check_losses(written(), "run"))["collector.late"]
    assert (finding.status, finding.value) == ("warning", 7)


def test_what_the_collector_says_of_itself_is_passed_on() -> None:
    """Spans without a rank, malformed ones, mistakes survived."""
    spans = [
        ({"outcome": "no_rank"}, 3.0),
        ({"outcome": "rejected"}, 2.0),
        ({"outcome": "scored"}, 9.0),
    ]
    collector = written(
        straggler_collector_spans_total=spans, straggler_collector_failures_total=[({"a": ""}, 1.0)]
    )
    listed = result(subject.check_collector(collector))
    assert {name: f.value for name, f in listed.items()} == {
        "collector.no_rank": 3,
        "collector.rejected": 2,
        "collector.failures": 1,
    }
    assert {f.status for f in listed.values()} == {"warning"}
    assert not result(subject.check_collector(written()))


@pytest.mark.parametrize(
    ("runs", "wanted", "own", "expected"),
    [
        (["a", "b"], "b", "a", "b"),
        (["a", "b"], None, "a", "a"),
        (["a"], None, "", "a"),
        (["a", "b"], None, "", None),
        (["a"], None, "other", None),
    ],
)
def test_the_run_is_the_one_asked_for_then_ones_own_then_the_only_one(
    runs: list[str], wanted: str | None, own: str, expected: str | None
) -> None:
    """A job never looks at another's run by accident."""
    collector = Collector("http://c", {run: {} for run in runs}, (), None)
    assert subject.find_run(collector, wanted, own) == expected


def test_ranks_whose_heartbeats_are_folded_report_as_well() -> None:
    """Of tens of thousands of ranks a collector shows some; it says of how many it does not."""
    run = {"run_id": "run"}
    samples = [
        Sample(semconv.LAST_HEARTBEAT.prometheus_name, {**run, "rank": "0"}, time.time()),
        Sample(semconv.RUN_WORLD_SIZE.prometheus_name, run, 3.0),
        Sample(
            semconv.COLLECTOR_SERIES_FOLDED.prometheus_name,
            {**run, "family": semconv.LAST_HEARTBEAT.prometheus_name},
            1.0,
        ),
    ]
    collector = Collector("http://c", {}, tuple(samples), None)
    [finding] = list(subject.check_ranks(collector, "run"))
    assert (finding.status, finding.sentence) == ("problem", "2 of 3 ranks report.")
