"""Files of grants: what a line may be, renewal without a restart, runs that a sender may send."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.collector.access.grants import GrantBook, digest, read_grants
from otel_straggler.collector.access.guard import Guard
from otel_straggler.collector.access.quotas import QuotaError, Quotas
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
    assert (team.may_send("team-a/7"), team.may_send("team-b/7")) == (True, False)
    assert book.of_token(WRONG) is None
    assert book.of_peer(Peer(address="127.0.0.1:1")) is None


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("read prometheus", "2 words"),
        ("write someone token:0123456789abcdef", "one of ingest, read, operate, admin"),
        ("read someone token:short", "at least 16"),
        ("read someone token:0123456789abcdef;x", "at least 16"),
        ("read someone sha256:abc", "sha256:HEX"),
        ("read someone password:0123456789abcdef", "sha256:HEX"),
        ("read someone uid:root", "uid:NUMBER"),
        ("read someone token:0123456789abcdef runs=a", "of an ingest grant"),
        ("ingest someone token:0123456789abcdef runs=", "runs=PREFIX"),
        ("ingest someone token:0123456789abcdef max_runs=0", "max_runs=N"),
        ("ingest someone token:0123456789abcdef spans_per_s=fast", "spans_per_s=N"),
        ("ingest someone token:0123456789abcdef ranks=7", "of an ingest grant"),
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


def test_a_grant_sends_so_many_spans_a_second_and_is_asked_to_wait() -> None:
    """Ten seconds' worth at once; a client sends the rest again, later."""
    now = [0.0]
    quotas = Quotas(frozenset, lambda: now[0])
    sender = Principal(name="a", role="ingest", spans_per_s=100.0)
    quotas.spend(sender, set, 1_000)
    quotas.spend(sender, set, 500)
    with pytest.raises(QuotaError, match="more than 100 spans") as raised:
        quotas.spend(sender, set, 1)
    assert raised.value.retry_after_s == 5
    quotas.spend(Principal(name="b", role="ingest"), set, 10**9)
    now[0] = 5.0
    quotas.spend(sender, set, 1)


def test_runs_that_were_just_admitted_count_before_they_are_known() -> None:
    """Otherwise a burst of requests would pass before the first is scored."""
    now, known = [0.0], set[str]()
    quotas = Quotas(lambda: known, lambda: now[0])
    sender = Principal(name="a", role="ingest", max_runs=3)
    for name in ("x", "y", "z"):
        quotas.spend(sender, lambda one=name: {one}, 1)
    with pytest.raises(QuotaError, match="allows 3"):
        quotas.spend(sender, lambda: {"w"}, 1)
    quotas.spend(sender, lambda: {"x", "y"}, 1)
    now[0] = 11.0  # none of them became a run
    quotas.spend(sender, lambda: {"w"}, 1)
