"""Commands and settings of docs/operate/security.md make a collector that starts and is shut."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from otel_straggler.collector.access.grants import digest, read_grants
from otel_straggler.collector.access.settings import TlsSettings
from otel_straggler.collector.access.tls import ServerTls, names_of
from otel_straggler.collector.settings_file import check_exposure, load_settings

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "security.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the commands of the page have run."""
    if shutil.which("openssl") is None:
        pytest.skip(
            "openssl is not installed (apt install openssl): "
            "the commands of the page were not tried"
        )
    for script in blocks("bash"):
        subprocess.run(["bash", "-ec", script], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def test_the_example_has_grants_that_its_tokens_fit(folder: Path) -> None:
    """Each line of the file is the digest of one of the tokens."""
    grants = read_grants(str(folder / "grants"))
    shown = {(each.principal.name, each.principal.role, each.principal.runs) for each in grants}
    assert shown == {
        ("team-a", "ingest", "team-a/"),
        ("prometheus", "read", ""),
        ("alice", "operate", ""),
    }
    for each in grants:
        token = (folder / f"{each.principal.name}.token").read_text(encoding="utf-8").strip()
        assert each.credential == digest(token)


def test_the_example_of_a_file_may_listen_on_the_network(folder: Path) -> None:
    """With grants it is not refused."""
    file = folder / "collector.yaml"
    file.write_text(blocks("yaml")[0], encoding="utf-8")
    settings = load_settings(file, {})
    check_exposure(settings)
    assert (settings.auth.is_on, settings.tls.is_on) == (True, True)


def test_the_certificates_of_the_page_are_usable(folder: Path) -> None:
    """Of the server and of a client, signed by the authority."""
    server = ServerTls(
        TlsSettings(
            cert_file=str(folder / "straggler.example.org.pem"),
            client_ca_file=str(folder / "ca.pem"),
        )
    )
    client = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    client.load_cert_chain(str(folder / "node-1.example.org.pem"))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname="straggler.example.org"),
        server.context.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert "node-1.example.org" in names_of(ends[1].getpeercert())
