"""Who may use a collector: settings, and what a start without them may listen on."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from otel_straggler.setting import ANY_TEXT, SWITCH, option, texts


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings:
    """Who may do what; docs/operate/security.md."""

    grant_files: tuple[str, ...] = option(
        (),
        texts("a list of paths", all),
        "files of grants, one a line: role, name, credential; read again when they change. Empty = "
        "anybody who reaches an address may do everything there",
    )
    insecure: bool = option(
        False,
        SWITCH,
        "listen on addresses that are not loopback although there are no grants",
        "--insecure",
    )

    @property
    def is_on(self) -> bool:
        return bool(self.grant_files)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """TLS of all three addresses. The files are read again when they change."""

    cert_file: str = option("", ANY_TEXT, "PEM file of the certificate and its chain; empty = none")
    key_file: str = option("", ANY_TEXT, "its key; empty = in the same file")
    client_ca_file: str = option(
        "", ANY_TEXT, "authorities whose client certificates count as credentials, PEM"
    )
    require_client_cert: bool = option(
        False,
        SWITCH,
        "refuse clients without one. gRPC asks for client certificates only with this",
    )

    @property
    def is_on(self) -> bool:
        return bool(self.cert_file)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on a host.

    >>> is_loopback("127.0.0.2"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(info[4][0])).is_loopback for info in infos)
