"""Certificates and grants of a collector with authentication, as files."""

from __future__ import annotations

import os
import ssl
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

TOKENS = {role: f"{role}-0123456789abcdef" for role in ("ingest", "read", "operate", "admin")}
WRONG = "wrong-0123456789abcdef"


def write_grants(folder: Path, *more: str) -> str:
    """A file with a grant per role, and further lines; returns its path."""
    path = folder / "grants"
    lines = [f"{role} {role}-user token:{token}" for role, token in TOKENS.items()]
    path.write_text("\n".join([*lines, *more]), encoding="utf-8")
    return str(path)


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


class Authority:
    """An authority, a certificate of 127.0.0.1, and clients of it."""

    def __init__(self, folder: Path) -> None:
        if os.environ.get("CI"):
            import trustme
        else:
            trustme = pytest.importorskip(
                "trustme", reason="trustme is not installed: TLS was not tried"
            )
        self._folder = folder
        self._ca = trustme.CA()
        self.ca_file = str(folder / "ca.pem")
        self._ca.cert_pem.write_to_path(self.ca_file)
        self.cert_file = str(folder / "server.pem")
        self.renew()

    def renew(self, not_after: datetime | None = None) -> None:
        """A new certificate in place of the one before; without an end it lasts for long."""
        server = self._ca.issue_cert("127.0.0.1", "localhost", not_after=not_after)
        server.private_key_and_cert_chain_pem.write_to_path(self.cert_file)

    def client(self, name: str) -> str:
        """The file of a client's certificate and key."""
        path = str(self._folder / f"{name}.pem")
        self._ca.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(path)
        return path

    def settings(self, **changes: Any) -> dict[str, Any]:
        return {"tls__cert_file": self.cert_file, **{f"tls__{k}": v for k, v in changes.items()}}

    def context(self, client: str | None = None) -> ssl.SSLContext:
        result = ssl.create_default_context(cafile=self.ca_file)
        if client is not None:
            result.load_cert_chain(client)
        return result
