"""Getting in: TLS, certificates, tokens, passwords; and sentences for what goes wrong."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from otel_straggler.collector.alerting.posting import Access, Poster, answer_of
from otel_straggler.otlp.clients.client import Response

from ..servers.receiver import Receiver


@pytest.fixture(scope="module")
def trustme() -> ModuleType:
    """Makes certificates."""
    if os.environ.get("CI"):
        import trustme as result
    else:
        result = pytest.importorskip(
            "trustme", reason="trustme is not installed: TLS was not tried"
        )
    module: ModuleType = result
    return module


class Certificates:
    """An authority, a server of 127.0.0.1 and a client, as files."""

    def __init__(self, trustme: Any, folder: Path) -> None:
        self.authority = trustme.CA()
        self.ca_file = str(folder / "ca.pem")
        self.authority.cert_pem.write_to_path(self.ca_file)
        client = self.authority.issue_cert("collector@example.org")
        self.cert_file, self.key_file = str(folder / "client.pem"), str(folder / "client.key")
        client.private_key_pem.write_to_path(self.key_file)
        client.cert_chain_pems[0].write_to_path(self.cert_file)

    def server(self, name: str = "127.0.0.1", *, wants_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert(name).configure_cert(context)
        if wants_client:
            self.authority.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@pytest.fixture
def certificates(trustme: ModuleType, tmp_path: Path) -> Certificates:
    return Certificates(trustme, tmp_path)


def poster(url: str, **access: Any) -> Poster:
    return Poster(url + "/x", Access(timeout_s=5.0, **access))


def test_tls_with_an_authority_of_ones_own(certificates: Certificates) -> None:
    """Named by a file."""
    with Receiver(tls=certificates.server()) as receiver:
        answer = poster(receiver.url, ca_file=certificates.ca_file).post(b"[]")
    assert (answer.outcome, answer.why) == ("accepted", "")
    assert len(receiver.received) == 1


def test_a_client_certificate_is_shown(certificates: Certificates) -> None:
    """Where the other side wants one."""
    files = {"cert_file": certificates.cert_file, "key_file": certificates.key_file}
    with Receiver(tls=certificates.server(wants_client=True)) as receiver:
        with_one = poster(receiver.url, ca_file=certificates.ca_file, **files).post(b"[]")
        without = poster(receiver.url, ca_file=certificates.ca_file).post(b"[]")
    assert with_one.outcome == "accepted"
    assert without.outcome == "blocked"
    assert "cert_file" in without.why
    assert len(receiver.received) == 1


def test_an_unknown_authority_is_said_with_the_remedy(certificates: Certificates) -> None:
    """Address, reason, what to do; and nothing was sent."""
    with Receiver(tls=certificates.server()) as receiver:
        answer = poster(receiver.url).post(b"[]")
    assert answer.outcome == "blocked"
    assert answer.why.startswith(f"{receiver.url}/x: its certificate is not trusted (")
    assert answer.why.endswith("Name who signed it in ca_file.")
    assert receiver.tries == 0


def test_a_certificate_for_another_name_is_said(certificates: Certificates) -> None:
    """Whoever answers there is not who was meant."""
    with Receiver(tls=certificates.server("other.example")) as receiver:
        answer = poster(receiver.url, ca_file=certificates.ca_file).post(b"[]")
    assert "for another name" in answer.why
    assert receiver.tries == 0


def test_the_wrong_scheme_is_said(certificates: Certificates) -> None:
    """TLS to a plain port."""
    with Receiver() as receiver:
        secure = receiver.url.replace("http:", "https:")
        answer = poster(secure, ca_file=certificates.ca_file).post(b"[]")
    assert answer.outcome == "blocked"
    assert "does not speak TLS there. Use http://" in answer.why


def test_a_password_comes_from_its_file(tmp_path: Path) -> None:
    """As basic authentication."""
    (tmp_path / "password").write_text("s:ecret\n")
    with Receiver() as receiver:
        access = {"username": "ä", "password_file": str(tmp_path / "password")}
        assert poster(receiver.url, **access).post(b"[]").outcome == "accepted"
    assert receiver.received[0].headers["authorization"] == "Basic w6Q6czplY3JldA=="


def test_a_secret_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """And the alert waits; nothing is sent without it."""
    with Receiver() as receiver:
        answer = poster(receiver.url, token_file=str(tmp_path / "none")).post(b"[]")
    assert (answer.outcome, receiver.tries) == ("blocked", 0)
    assert "its secret cannot be read" in answer.why
    assert "none" in answer.why


def test_nobody_there_is_said() -> None:
    """And tried again."""
    with Receiver() as gone:
        url = gone.url
    answer = poster(url).post(b"[]")
    assert (answer.outcome, answer.why) == (
        "later",
        f"{url}/x: nothing listens there. Is it running? It is tried again.",
    )


@pytest.mark.parametrize(
    ("response", "outcome", "text"),
    [
        (Response(204), "accepted", ""),
        (Response(503, {"retry-after": "7"}, b"no"), "later", "answered 503 (no)"),
        (Response(400, {}, b"\x1b[31mred\n\xff"), "invalid", "answered 400 (?[31mred ?)"),
        (Response(413), "invalid", "too large"),
        (Response(301, {"location": "https://b/"}), "blocked", "final address, https://b/"),
        (Response(405), "blocked", "Check the path"),
        (Response(0, error="ConnectTimeout: timed out"), "later", "no answer in time"),
        (Response(0, error="x: Failed to resolve 'am'"), "later", "the name is not known"),
        (Response(0, error="odd\nthing" + "x" * 999), "later", "no answer (odd thing"),
    ],
)
def test_every_answer_has_a_fate_and_a_sentence(
    response: Response, outcome: str, text: str
) -> None:
    """Nothing that the other side says reaches a terminal unchanged, nor at any length."""
    answer = answer_of(response, "http://am/x")
    assert answer.outcome == outcome
    assert text.replace("\x1b", "?") in answer.why.replace("�", "?")
    assert answer.why.isprintable()
    assert len(answer.why) < 600


def test_the_same_trouble_is_one_kind_whatever_is_said_with_it() -> None:
    """What the server says with it may differ from try to try."""
    one = answer_of(Response(500, body=b"request 17 failed"), "http://am/x")
    two = answer_of(Response(500, body=b"request 18 failed"), "http://am/x")
    assert (
        one.kind_of_trouble == two.kind_of_trouble != answer_of(Response(401), "u").kind_of_trouble
    )
