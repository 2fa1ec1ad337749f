"""Files of grants: what a line may be, renewal without a restart, runs that a sender may send."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.collector.access.grants import GrantBook, digest, read_grants
from otel_straggler.collector.access.guard import Guard
from otel_straggler.collector.access.quotas import LIMITS, QuotaError, Quotas, Usage
from otel_straggler.collector.access.roles import NOBODY, Peer, Principal
from otel_straggler.collector.access.settings import AuthSettings
from otel_straggler.errors import ConfigError

from .authorities import TOKENS, WRONG, write_grants

TOKEN = "0123456789abcdef"


def test_a_credential_is_a_token_its_digest_a_certificate_or_a_user(tmp_path: Path) -> None:
    """Comments and blank lines mean nothing."""
    file = tmp_path / "grants"
    file.write_text(
        f"# who may\n\nread prometheus token:{TOKEN}  # scrapes\n"
        f"ingest team-a sha256:{digest('a' * 20)} runs=team-a/\n"
        "operate alice certificate:alice.example.org\nadmin local uid:1000\n"
    )
    book = GrantBook([str(file)])
    reader, team = book.of_token(TOKEN), book.of_token("a" * 20)
    alice = book.of_peer(Peer(names=("x", "alice.example.org")))
    local = book.of_peer(Peer(uid=1000))
    assert reader is not None
    assert team is not None
    assert alice is not None
    assert local is not None
    assert [who.role for who in (reader, team, alice, local)] == [
        *("read", "ingest", "operate", "admin")
    ]
    assert (team.covers("team-a/7"), team.covers("team-b/7")) == (True, False)
    assert book.of_token(WRONG) is None
    assert book.of_peer(Peer(address="127.0.0.1:1")) is None


def test_a_grant_for_a_supervisor_names_hosts_and_limits(tmp_path: Path) -> None:
    """Exact names, and what names begin with."""
    file = tmp_path / "grants"
    limits = "runs=a/ hosts=gpu-1,a-* max_hosts=8 actions_per_hour=2"
    file.write_text(f"ingest team-a token:{TOKEN} {limits}\n")
    team = GrantBook([str(file)]).of_token(TOKEN)
    assert team == Principal(
        name="team-a", role="ingest", runs="a/", hosts=("gpu-1", "a-*"), max_hosts=8,
        actions_per_hour=2,
    )  # fmt: skip
    assert [team.names(host) for host in ("gpu-1", "a-7", "A-7", "gpu-10", "")] == [
        True, True, False, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("read prometheus", "2 words"),
        ("write someone token:0123456789abcdef", "one of ingest, read, operate, admin"),
        ("read someone token:short", "at least 16"),
        ("0123456789abcdef someone read", "one of ingest, read, operate, admin"),
        ("ingest someone uid:1 token:0123456789abcdef", "of an ingest grant"),
        ("ingest someone uid:1 0123456789abcdef", "of an ingest grant"),
        ("read someone token:0123456789abcdef;x", "at least 16"),
        ("read someone sha256:abc", "sha256:HEX"),
        ("read someone password:0123456789abcdef", "sha256:HEX"),
        ("read someone uid:root", "uid:NUMBER"),
        ("operate someone token:0123456789abcdef runs=a", "of an ingest or read grant"),
        ("read someone token:0123456789abcdef max_runs=7", "of an ingest grant"),
        ("ingest someone token:0123456789abcdef runs=", "runs=PREFIX"),
        ("ingest someone token:0123456789abcdef max_runs=0", "max_runs=N"),
        ("ingest someone token:0123456789abcdef max_series=-1", "max_series=N"),
        ("ingest someone token:0123456789abcdef spans_per_s=fast", "spans_per_s=N"),
        ("ingest someone token:0123456789abcdef ranks=7", "of an ingest grant"),
        ("read someone token:0123456789abcdef expires=2027-02-30", "expires=YEAR-MONTH-DAY"),
        ("read someone token:0123456789abcdef hosts=n1", "of an ingest grant"),
        ("ingest someone token:0123456789abcdef hosts=", "hosts=NAME,PREFIX*"),
        ("ingest someone token:0123456789abcdef hosts=*", "hosts=NAME,PREFIX*"),
        ("ingest someone token:0123456789abcdef hosts=n1,", "hosts=NAME,PREFIX*"),
        ("ingest someone token:0123456789abcdef hosts=n[1-9]", "hosts=NAME,PREFIX*"),
        ("ingest someone token:0123456789abcdef hosts=n*1", "hosts=NAME,PREFIX*"),
        ("ingest someone token:0123456789abcdef max_hosts=0", "max_hosts=N"),
        ("ingest someone token:0123456789abcdef actions_per_hour=x", "actions_per_hour=N"),
        (f"ingest someone token:0123456789abcdef max_hosts={'9' * 5000}", "max_hosts=N"),
        (f"read someone uid:{'9' * 5000}", "uid:NUMBER"),
    ],
)
def test_a_wrong_line_stops_the_start_without_showing_a_token(
    tmp_path: Path, line: str, part: str
) -> None:
    """The message has the file and the line."""
    file = tmp_path / "grants"
    file.write_text(f"# first\n{line}\n")
    with pytest.raises(ConfigError) as raised:
        read_grants(str(file))
    assert part in str(raised.value)
    assert f"{file}:2" in str(raised.value)
    assert "0123456789abcdef" not in str(raised.value)


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    """A collector whose grants are gone would be open, or closed to everybody."""
    with pytest.raises(ConfigError, match=r"auth\.grant_files"):
        Guard(AuthSettings(grant_files=(str(tmp_path / "none"),)))


def test_a_token_is_replaced_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The file is looked at once a second; a broken one changes nothing but the log."""
    caplog.set_level(logging.INFO)
    clock = [0.0]
    file = tmp_path / "grants"
    file.write_text(f"read a token:{TOKEN}")
    book = GrantBook([str(file)], lambda: clock[0])
    file.write_text("read b token:fedcba9876543210\n")
    assert book.of_token(TOKEN) is not None
    clock[0] += 1.0
    assert book.of_token(TOKEN) is None
    assert book.of_token("fedcba9876543210") is not None
    file.write_text("nonsense")
    clock[0] += 1.0
    assert book.of_token("fedcba9876543210") is not None
    file.unlink()
    clock[0] += 1.0
    assert book.of_token("fedcba9876543210") is not None
    assert len([m for m in caplog.messages if "stay in force" in m]) == 2


def test_a_credential_that_is_wrong_or_of_another_kind_is_nobody(tmp_path: Path) -> None:
    """A cookie counts only where it is asked for; a wrong token is not saved by a certificate."""
    lines = ("operate alice certificate:alice",)
    guard = Guard(AuthSettings(grant_files=(write_grants(tmp_path, *lines),)))
    alice, token = Peer(names=("alice",)), TOKENS["read"]
    assert guard.identify(alice).name == "alice"
    assert guard.identify(alice, f"Bearer {WRONG}") is NOBODY
    assert guard.identify(Peer(), f"Basic {token}") is NOBODY
    assert guard.identify(Peer(), token) is NOBODY
    assert guard.identify(Peer(), f"bearer  {token}").role == "read"
    assert guard.identify(Peer(), "", f"a=b; otel_straggler_token={token}").role == "read"
    assert guard.identify(Peer(), "", f"otel_straggler_token={WRONG}") is NOBODY
    assert guard.identify(Peer(), "", "otel_straggler_token=\x00;;=") is NOBODY


@pytest.mark.parametrize("signal", ["traces", "metrics"])
def test_a_sender_sends_the_runs_of_its_grant_and_no_others(
    start: Any, kit: Any, tmp_path: Path, signal: str
) -> None:
    """A request with a foreign run is refused whole, and says which."""
    grants = write_grants(tmp_path, f"ingest team-a token:{TOKEN} runs=team-a/")
    live = start(auth__grant_files=(grants,))

    def send(run_id: str, token: str = TOKEN) -> Any:
        who = kit.rank(0, 1, run_id=run_id)
        body = kit.spans_of(who, range(8)) if signal == "traces" else kit.beat_of(who, step=1)
        headers = {"Content-Type": "application/x-protobuf", "Authorization": f"Bearer {token}"}
        return kit.ask(live.addresses["otlp_http"], "POST", f"/v1/{signal}", body, headers)

    assert send("team-a/1").status == 200
    refused = send("team-b/1")
    assert refused.status == 403
    assert b"team-a may send runs named team-a/..., and not 'team-b/1'" in refused.body
    assert send("team-b/1", TOKENS["admin"]).status == 200


def test_a_grant_has_so_many_runs_and_no_more(start: Any, kit: Any, tmp_path: Path) -> None:
    """A new run beyond the limit is refused, by spans and by heartbeats; those there are go on."""
    limits = "runs=team-a/ max_runs=2"
    grants = write_grants(tmp_path, f"ingest team-a token:{TOKEN} {limits}")
    live = start(auth__grant_files=(grants,))

    def send(number: int, signal: str = "traces") -> Any:
        who = kit.rank(0, 1, run_id=f"team-a/{number}")
        body = kit.spans_of(who, range(8)) if signal == "traces" else kit.beat_of(who, step=1)
        headers = {"Content-Type": "application/x-protobuf", "Authorization": f"Bearer {TOKEN}"}
        return kit.ask(live.addresses["otlp_http"], "POST", f"/v1/{signal}", body, headers)

    assert [send(number).status for number in (1, 2, 3)] == [200, 200, 403]
    kit.eventually(lambda: len(live.collector._worker.snapshot.runs) == 2)
    refused = send(3, "metrics")
    assert (refused.status, b"its grant allows 2" in refused.body) == (403, True)
    assert [send(number).status for number in (1, 2)] == [200, 200]


def test_a_credential_is_none_from_the_end_of_its_last_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """UTC. The log says so once; another day in its line lets it in again."""
    file = tmp_path / "grants"
    file.write_text(
        f"operate alice token:{TOKEN} expires=1970-01-02\n"
        "read b certificate:b.example expires=1970-01-02\n"
    )
    now = [0.0]
    book = GrantBook([str(file)], lambda: now[0], lambda: now[0])
    b = Peer(names=("b.example",))
    now[0] = 2 * 86_400.0 - 1.0
    assert [who and who.name for who in (book.of_token(TOKEN), book.of_peer(b))] == ["alice", "b"]
    now[0] += 1.0
    assert [book.of_token(TOKEN), book.of_token(TOKEN), book.of_peer(b)] == [None] * 3
    printed = [r.getMessage() for r in caplog.records]
    assert len(printed) == 2
    assert "the grant alice ends on 1970-01-03 00:00 UTC" in printed[0]
    file.write_text(f"operate alice token:{TOKEN} expires=1970-01-09\n")
    now[0] += 2.0
    assert book.of_token(TOKEN) is not None


@pytest.mark.parametrize("limit", ["spans_per_s", "bytes_per_s"])
def test_a_grant_sends_so_much_a_second_and_is_asked_to_wait(limit: str) -> None:
    """Ten seconds' worth at once; a client sends the rest again, later."""
    now = [0.0]
    quotas = Quotas(frozenset, lambda: now[0])
    sender = Principal(name="a", role="ingest", **{limit: 100.0})

    def send(count: int, who: Principal = sender) -> None:
        quotas.spend(who, Usage(**{"spans": 1, "body_bytes": 1, _USED[limit]: count}))

    send(1_000)
    send(500)
    with pytest.raises(QuotaError, match=r"a sends more than 100 .* a second") as raised:
        send(1)
    assert raised.value.retry_after_s == 5
    send(10**9, Principal(name="b", role="ingest"))
    now[0] = 5.0
    send(1)
    assert quotas.counts() == {**dict.fromkeys(LIMITS, 0), limit: 1}


_USED = {"spans_per_s": "spans", "bytes_per_s": "body_bytes"}


def test_a_request_beyond_one_rate_spends_of_no_other() -> None:
    """A client sends it again: it must not be charged twice."""
    now = [0.0]
    quotas = Quotas(frozenset, lambda: now[0])
    sender = Principal(name="a", role="ingest", spans_per_s=10.0, bytes_per_s=1_000.0)
    quotas.spend(sender, Usage(spans=1, body_bytes=20_000))
    for _ in range(200):
        with pytest.raises(QuotaError, match="bytes"):
            quotas.spend(sender, Usage(spans=1, body_bytes=1))
    now[0] = 10.0
    quotas.spend(sender, Usage(spans=1, body_bytes=1))


def test_runs_that_were_just_admitted_count_before_they_are_known() -> None:
    """Otherwise a burst of requests would pass before the first is scored."""
    now, known = [0.0], set[str]()
    quotas = Quotas(lambda: known, lambda: now[0])
    sender = Principal(name="a", role="ingest", max_runs=3)
    for name in ("x", "y", "z"):
        quotas.spend(sender, Usage(run_ids=lambda one=name: {one}))
    with pytest.raises(QuotaError, match="a has 3 runs; its grant allows 3"):
        quotas.spend(sender, Usage(run_ids=lambda: {"w"}))
    quotas.spend(sender, Usage(run_ids=lambda: {"x", "y"}))
    now[0] = 11.0  # none of them became a run
    quotas.spend(sender, Usage(run_ids=lambda: {"w"}))


def test_a_grant_has_so_many_ranks_until_they_end_or_are_silent() -> None:
    """Those there are go on; the next job finds room once the one before has ended."""
    now = [0.0]
    quotas = Quotas(frozenset, lambda: now[0])
    sender = Principal(name="a", role="ingest", max_ranks=3)

    def send(*ranks: int, run_id: str = "a", has_ended: bool = False) -> None:
        names = {(run_id, "", rank) for rank in ranks}
        quotas.spend(
            sender, Usage(ranks=lambda: names, ended=lambda: names if has_ended else set())
        )

    send(0, 1)
    send(2)
    for further in ((3,), (0, 3)):
        with pytest.raises(QuotaError, match=r"a has 3 ranks .* allows 3 \(max_ranks\)") as raised:
            send(*further)
        assert raised.value.retry_after_s is None
    send(0, 1, 2, has_ended=True)
    send(0, 1, 2, run_id="b")
    now[0] = 60.0
    send(0, run_id="b")
    now[0] = 121.0
    send(3, 4, run_id="b")
    assert quotas.counts()["max_ranks"] == 2


def test_the_runs_of_a_grant_share_its_series() -> None:
    """A small run is shown whole; other teams keep the share of all. What is folded is shown."""
    now = [0.0]
    team = Principal(name="team-a", role="ingest", runs="a/", max_series=1_000)
    quotas = Quotas(frozenset, lambda: now[0], lambda: (team, Principal(name="b", role="ingest")))
    assert quotas.series_shares({"a/1": 400, "b/1": 9_000}, 5_000) == {"a/1": 1_000, "b/1": 5_000}
    assert quotas.problems() == ()
    needs = {"a/1": 100, "a/2": 5_000, "a/3": 700, "b/1": 9_000}
    assert quotas.series_shares(needs, 5_000) == dict(
        zip(needs, [450, 450, 450, 5_000], strict=True)
    )
    assert quotas.problems() == (
        "team-a has 5800 series; its grant allows 1,000, the rest is folded (max_series)",
    )
    assert (quotas.problems("a/"), quotas.problems("b/")) == (quotas.problems(), ())
    now[0] = 121.0
    assert quotas.problems() == ()


def test_what_is_beyond_a_limit_is_counted_said_to_the_sender_and_shown(
    start: Any, kit: Any, tmp_path: Path
) -> None:
    """Over HTTP: refused as a whole, by limit in /metrics, and a problem on the page."""
    grants = write_grants(tmp_path, f"ingest team-a token:{TOKEN} max_ranks=2 max_series=10")
    live = start(auth__grant_files=(grants,))
    reader = {"Authorization": f"Bearer {TOKENS['read']}"}

    def send(rank: int) -> Any:
        body = kit.spans_of(kit.rank(rank, 3), range(12))
        headers = {"Content-Type": "application/x-protobuf", "Authorization": f"Bearer {TOKEN}"}
        return kit.ask(live.addresses["otlp_http"], "POST", "/v1/traces", body, headers)

    assert [send(rank).status for rank in (0, 1)] == [200, 200]
    refused = send(2)
    assert refused.status == 403
    assert b"team-a has 2 ranks that report; its grant allows 2 (max_ranks)" in refused.body

    def series() -> str:
        return str(live.get("/metrics", reader).body.decode())

    kit.eventually(lambda: "straggler_collector_series_folded" in series())
    assert 'straggler_collector_rejected_total{what="max_ranks"' in series()
    problems = live.get("/v1/runs", reader).json()["problems"]
    assert any("max_ranks" in each for each in problems)
    assert any("max_series" in each for each in problems)
