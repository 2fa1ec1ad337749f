"""A collector that cannot do its work says so: in /metrics from the start, on its page, and by an
alert of its own. Each trouble is real."""

from __future__ import annotations

import contextlib
import ctypes
import socket
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.collector.alerting.posting import NotifySettings
from otel_straggler.collector.alerting.troubles import Growth
from otel_straggler.collector.ingest.http_messages import HttpLimits

from ..servers.receiver import Receiver
from .authorities import Authority, bearer, write_grants

Start = Callable[..., Any]
QUICK = {
    "alerts__evaluation_seconds": 0.05,
    "alerts__trouble_for_seconds": 0.0,
    "alerts__mode": "page",
}


def notify(*urls: str, **more: Any) -> dict[str, Any]:
    settings = NotifySettings(alertmanagers=urls, resend_s=0.1, timeout_s=2.0, **more)
    return {**QUICK, "alerts__notify": settings}


def reported(receiver: Receiver, name: str) -> dict[str, dict[str, Any]]:
    """Alerts of that name that an Alertmanager got, by ``what``."""
    return {
        alert["labels"].get("what", ""): alert
        for request in list(receiver.received)
        for alert in request.body
        if alert["labels"]["alertname"] == name
    }


def trouble(live: Any, what: str) -> tuple[float, str]:
    """Flag and sentence in /metrics."""
    (found,) = live.samples(semconv.COLLECTOR_TROUBLE.prometheus_name, what=what).items()
    return found[1], dict(found[0])["sentence"]


@pytest.fixture
def alertmanager() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def test_every_trouble_is_0_from_the_start(start: Start) -> None:
    """An increase from nothing to 1 is none to Prometheus."""
    live = start()
    flags = live.samples(semconv.COLLECTOR_TROUBLE.prometheus_name)
    assert {dict(labels)["what"] for labels in flags} == set(semconv.TROUBLES)
    assert set(flags.values()) == {0.0}
    assert live.get("/v1/runs").json()["problems"] == []


def test_a_run_beyond_the_limit_alerts(start: Start, kit: Any, alertmanager: Receiver) -> None:
    live = start(scoring__max_runs=2, **notify(alertmanager.url))
    for n in range(3):
        live.post(kit.beat_of(kit.rank(0, 1, run_id=f"r{n}"), sent_at_s=1.0), "metrics")
    kit.eventually(lambda: "runs" in reported(alertmanager, "StragglerLimitReached"))
    alert = reported(alertmanager, "StragglerLimitReached")["runs"]
    assert "2 runs are watched (scoring.max_runs)" in alert["annotations"]["description"]
    assert alert["labels"]["mode"] == "page"
    assert trouble(live, "runs")[0] == 1.0
    assert trouble(live, "groups") == (0.0, "")


def test_each_limit_alerts_under_its_own_name(
    start: Start, kit: Any, alertmanager: Receiver
) -> None:
    """Groups, ranks, section names; and memory, of which a collector without any has too little."""
    live = start(
        scoring__max_groups=1,
        scoring__max_ranks=8,
        scoring__max_section_names=2,
        scoring__memory_mib=0,
        **notify(alertmanager.url),
    )
    rank = kit.rank(0, 1)
    live.post(kit.beat_of(rank, sent_at_s=1.0), "metrics")
    live.post(kit.beat_of(kit.rank(0, 1, group="another"), sent_at_s=1.0), "metrics")
    live.post(kit.beat_of(kit.rank(9, 16), sent_at_s=1.0), "metrics")
    live.post(kit.spans_of(rank, range(4), {f"step {n}": 0.1 for n in range(4)}))
    limits = {"groups", "ranks", "section_names"}
    kit.eventually(lambda: reported(alertmanager, "StragglerLimitReached").keys() == limits)
    alerts = reported(alertmanager, "StragglerLimitReached")
    for what, alert in alerts.items():
        assert f"(scoring.max_{what})" in alert["annotations"]["description"]
    kit.eventually(lambda: "memory" in reported(alertmanager, "StragglerCollectorOverloaded"))


def test_a_receiver_that_answers_500_alerts_through_another(
    start: Start, kit: Any, alertmanager: Receiver
) -> None:
    """And on the page, until it accepts alerts again."""
    with Receiver(rule=lambda _: 500 if is_broken else 200) as broken:
        is_broken = True
        live = start(**notify(broken.url, alertmanager.url))
        name = "StragglerNotificationsFailing"
        kit.eventually(lambda: reported(alertmanager, name))
        description = reported(alertmanager, name)["notifications"]["annotations"]["description"]
        assert f"{broken.url}/api/v2/alerts: answered 500" in description
        assert any("answered 500" in each for each in live.get("/v1/runs").json()["problems"])
        is_broken = False
        kit.eventually(lambda: trouble(live, "notifications") == (0.0, ""))


def test_a_folder_that_cannot_be_written_to_alerts(
    start: Start, kit: Any, alertmanager: Receiver, tmp_path: Path
) -> None:
    """A file stands where the folder of the history would be; and nothing goes into the spool."""
    (tmp_path / "taken").write_text("")
    live = start(
        history__path=str(tmp_path / "taken" / "history.db"),
        history__spool=str(tmp_path / "spool"),
        history__save_every_seconds=0.1,
        **notify(alertmanager.url),
    )
    spool = live.collector._spool
    spool._end_segment()
    spool._folder = tmp_path / "taken"
    live.post(kit.beat_of(kit.rank(0, 1), sent_at_s=1.0), "metrics")
    name = "StragglerHistoryFailing"
    kit.eventually(lambda: reported(alertmanager, name).keys() == {"history", "spool"})
    alerts = reported(alertmanager, name)
    assert "taken/history.db cannot be written" in alerts["history"]["annotations"]["description"]
    assert str(tmp_path / "taken") in alerts["spool"]["annotations"]["description"]
    assert trouble(live, "history")[0] == trouble(live, "spool")[0] == 1.0


def test_a_history_that_works_is_no_trouble(start: Start, kit: Any, tmp_path: Path) -> None:
    live = start(
        history__path=str(tmp_path / "history.db"),
        history__spool=str(tmp_path / "spool"),
        **QUICK,
    )
    live.post(kit.beat_of(kit.rank(0, 1), sent_at_s=1.0), "metrics")
    kit.eventually(lambda: live.value(semconv.COLLECTOR_RUNS) == 1)
    assert trouble(live, "history") == trouble(live, "spool") == (0.0, "")


def test_a_backend_that_is_away_alerts_once_the_queue_is_full(
    start: Start, kit: Any, alertmanager: Receiver
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        body = kit.beat_of(kit.rank(0, 1), sent_at_s=1.0)
        live = start(
            forward__url=url, forward__max_queue_bytes=10 * len(body), **notify(alertmanager.url)
        )
        assert trouble(live, "forwarding") == (0.0, "")
        live.post(body, "metrics")
        assert trouble(live, "forwarding") == (0.0, "")
        for _ in range(10):
            live.post(body, "metrics")
        name = "StragglerForwardingFailing"
        kit.eventually(lambda: reported(alertmanager, name))
        text = reported(alertmanager, name)["forwarding"]["annotations"]["description"]
        assert f"requests to {url} are dropped" in text


def test_too_much_at_once_alerts(start: Start, kit: Any, alertmanager: Receiver) -> None:
    """A collector without room answers 503; the scoring thread is held up meanwhile."""
    live = start(**notify(alertmanager.url))
    budget = live.collector._budget
    assert budget.reserve(1 << 40, "metrics")
    assert live.post(kit.beat_of(kit.rank(0, 1)), "metrics").status == 503
    name = "StragglerCollectorOverloaded"
    kit.eventually(lambda: reported(alertmanager, name).keys() == {"requests"})
    budget.release(1 << 40)


def test_a_flood_of_connections_alerts(start: Start, kit: Any, alertmanager: Receiver) -> None:
    """More than a receiver holds open, none of which asks for anything."""
    live = start(**notify(alertmanager.url))
    name, limit = "StragglerCollectorOverloaded", HttpLimits().connections
    host, _, port = live.addresses["otlp_http"].rpartition(":")
    with contextlib.ExitStack() as held:
        for _ in range(limit + 64):
            held.enter_context(socket.create_connection((host, int(port))))
        kit.eventually(lambda: "connections" in reported(alertmanager, name))
    text = reported(alertmanager, name)["connections"]["annotations"]["description"]
    assert "connections are closed to make room for others" in text
    assert trouble(live, "connections")[0] == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_scoring_thread_that_has_ended_alerts(
    start: Start, kit: Any, alertmanager: Receiver
) -> None:
    """As by an exception that nothing handles."""
    live = start(**notify(alertmanager.url))
    thread = live.collector._worker._thread
    kind = ctypes.py_object(SystemExit)
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), kind) == 1
    name = "StragglerCollectorOverloaded"
    kit.eventually(lambda: "scoring" in reported(alertmanager, name))
    text = reported(alertmanager, name)["scoring"]["annotations"]["description"]
    assert "its scoring thread does not respond" in text


def test_a_certificate_that_ends_in_three_days_alerts(
    start: Start, kit: Any, alertmanager: Receiver, tmp_path: Path
) -> None:
    """Until it is renewed; one that ends in a year does not."""
    authority = Authority(tmp_path)
    soon = datetime.now(timezone.utc) + timedelta(days=3)
    authority.renew(not_after=soon)
    live = start(**authority.settings(), **notify(alertmanager.url))
    kit.eventually(lambda: "certificate" in reported(alertmanager, "StragglerExpiring"))
    text = reported(alertmanager, "StragglerExpiring")["certificate"]["annotations"]["description"]
    assert f"the certificate {authority.cert_file} ends on {soon:%Y-%m-%d %H:%M} UTC" in text
    authority.renew(not_after=soon + timedelta(days=365))
    ended = lambda: "certificate" not in live.collector._troubles.now()  # noqa: E731
    kit.eventually(ended)


def test_a_grant_that_is_about_to_end_alerts_and_then_lets_nobody_in(
    start: Start, kit: Any, alertmanager: Receiver, tmp_path: Path
) -> None:
    """A reader whose line says a day of the next week, one of the last, and one of next year."""
    today = datetime.now(timezone.utc)
    week, year = today + timedelta(days=6), today + timedelta(days=400)
    grants = write_grants(
        tmp_path,
        f"read prometheus token:soon-0123456789abcdef expires={week:%Y-%m-%d}",
        f"read other token:later-0123456789abcdef expires={year:%Y-%m-%d}",
        f"read prometheus token:also-0123456789abcdef expires={year:%Y-%m-%d}",
        f"read past token:past-0123456789abcdef expires={today - timedelta(days=8):%Y-%m-%d}",
    )
    live = start(auth__grant_files=(grants,), **notify(alertmanager.url))

    def status(token: str) -> int:
        return int(live.get("/metrics", bearer(f"{token}-0123456789abcdef")).status)

    assert (status("soon"), status("later"), status("past")) == (200, 200, 401)
    kit.eventually(lambda: "grants" in reported(alertmanager, "StragglerExpiring"))
    text = reported(alertmanager, "StragglerExpiring")["grants"]["annotations"]["description"]
    assert "the grant past ends on" in text
    page = live.get("/metrics", bearer("later-0123456789abcdef")).body.decode()
    ends = f'{semconv.COLLECTOR_EXPIRY.prometheus_name}{{what="grants",name="prometheus",'
    assert page.count(ends) == 1


def test_ranks_without_scores_are_named(start: Start, kit: Any, alertmanager: Receiver) -> None:
    """Three ranks are scored, and the fourth sends heartbeats only; one that has ended is none."""
    live = start(alerts__no_data_seconds=0.0, **notify(alertmanager.url))
    ranks = [kit.rank(n, 4) for n in range(4)]

    def beat() -> None:
        for source in ranks:
            live.post(kit.beat_of(source, sent_at_s=1.0, step=12), "metrics")

    beat()
    for source in ranks[:3]:
        live.post(kit.spans_of(source, range(12)))
    kit.eventually(lambda: reported(alertmanager, "StragglerRanksUnscored"))
    text = reported(alertmanager, "StragglerRanksUnscored")[""]["annotations"]["description"]
    assert "1 that report have had no score for a long time: rank 3" in text
    shown = live.samples(semconv.RUN_RANKS_UNSCORED.prometheus_name)
    assert [(dict(labels)["ranks"], n) for labels, n in shown.items()] == [("rank 3", 1.0)]
    kit.eventually(lambda: reported(alertmanager, "StragglerCoverageLow"))
    text = reported(alertmanager, "StragglerCoverageLow")[""]["annotations"]["description"]
    assert "Only 75% of the ranks" in text
    live.post(kit.beat_of(ranks[3], sent_at_s=1.0, finished_at_s=2.0, outcome="ok"), "metrics")
    kit.eventually(lambda: live.value(semconv.RUN_RANKS_UNSCORED) == 0.0)


def test_a_burst_is_over_after_its_time() -> None:
    """What grows again and again is one trouble without a gap."""
    growth = Growth(60.0)
    counts = [0, 5, 5, 6, 6, 6]
    times = [0.0, 10.0, 60.0, 69.0, 128.0, 129.0]
    seen = [growth.seen(count, at) for count, at in zip(counts, times, strict=True)]
    assert seen == [False, True, True, True, True, False]
