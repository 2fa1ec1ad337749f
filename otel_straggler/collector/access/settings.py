"""Who may use a collector: settings, addresses, and which of these a start without them may listen
on."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from typing import Final

from otel_straggler.errors import ConfigError
from otel_straggler.setting import ANY_TEXT, SWITCH, option, text, texts
from otel_straggler.strict_json import whole_number


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


def parse_address(address: str, *, where: str) -> tuple[str, int]:
    """Split HOST:PORT (an IPv6 host in brackets).

    >>> parse_address("[::1]:4318", where="x")
    ('::1', 4318)

    Raises:
        ConfigError: there is no port, or it is none.
    """
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = whole_number(port)
    if not colon or not host or number is None or number > 65_535:
        expected = "HOST:PORT with a port of 0 to 65535"
        remedy = "Use for example 127.0.0.1:4318; port 0 picks a free one."
        raise ConfigError.of(where, address, expected, remedy)
    return host, number


def _is_address(address: str) -> bool:
    try:
        parse_address(address, where="")
    except ConfigError:
        return False
    return True


ADDRESS: Final = text("HOST:PORT; port 0 picks a free one", _is_address)
