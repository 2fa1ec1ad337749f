"""TLS of the collector's addresses. Certificates are renewed in place, so files are read again."""

from __future__ import annotations

import hashlib
import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from otel_straggler.collector.access.settings import TlsSettings
from otel_straggler.errors import ConfigError, InputError
from otel_straggler.regular_files import check_readable, read_small

_log = logging.getLogger(__name__)
_CHECK_S: Final = 1.0
HANDSHAKE_S: Final = 10.0
_SAN_KINDS: Final = frozenset({"DNS", "URI", "email"})
_REMEDY: Final = "See docs/operate/security.md, 'Certificates'."


class ServerTls:
    """The certificate of all addresses. Thread-safe; a renewed one that cannot be used changes
    nothing but a line in the log.

    An authority that has been removed from ``client_ca_file`` is trusted until the next start.

    Raises:
        ConfigError: a file cannot be read, or is not what it should be.
    """

    def __init__(
        self,
        settings: TlsSettings,
        monotonic_s: Callable[[], float] = time.monotonic,
        protocol: str = "http/1.1",
    ) -> None:
        self._settings = settings
        self._protocol = protocol
        self._now_s = monotonic_s
        self._lock = threading.Lock()
        self._checked_at_s = monotonic_s()
        self._state = self._stat()
        self._content = self._digest()
        self.context = self._context()
        self._load(self.context)

    def refresh(self) -> None:
        """Use the files' content again if it has changed; looks once a second at most. A file that
        is touched, or written with the same content, is no renewal."""
        now_s = self._now_s()
        with self._lock:
            if now_s - self._checked_at_s < _CHECK_S:
                return
            self._checked_at_s = now_s
            state = self._stat()
            if state == self._state:
                return
            self._state = state
            content = self._digest()
            if content == self._content:
                return
            self._content = content
            try:
                self._load(self._context())  # a context that has half of a pair would serve nobody
                self._load(self.context)
            except ConfigError as error:
                _log.error("tls: the certificate of before stays in use: %s", error)
            else:
                over = "gRPC" if self._protocol == "h2" else "HTTP"
                _log.info("tls: the certificate was read again, for %s", over)

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols([self._protocol])
        if self._settings.client_ca_file:
            required = self._settings.require_client_cert
            context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        settings = self._settings
        key_file = settings.key_file or settings.cert_file
        for name in ("cert_file", "key_file", "client_ca_file"):
            path = getattr(settings, name)
            try:
                if path:
                    check_readable(path)
            except OSError as error:
                remedy = f"Check the path and its permissions ({error.strerror})."
                expected = "a file that this process can read"
                raise ConfigError.of(f"tls.{name}", path, expected, remedy) from None
        try:
            context.load_cert_chain(settings.cert_file, key_file, password=lambda: b"")
        except (ssl.SSLError, OSError) as error:
            expected = f"a PEM certificate with its key, without a password, in {key_file}"
            remedy = f"{_REMEDY} ({error})"
            raise ConfigError.of("tls.cert_file", settings.cert_file, expected, remedy) from None
        if settings.client_ca_file:
            try:
                context.load_verify_locations(settings.client_ca_file)
            except (ssl.SSLError, OSError) as error:
                expected, remedy = "PEM certificates of authorities", f"{_REMEDY} ({error})"
                where = "tls.client_ca_file"
                raise ConfigError.of(where, settings.client_ca_file, expected, remedy) from None

    def _stat(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(map(_stat_of, self._files))

    def _digest(self) -> tuple[bytes | None, ...]:
        return tuple(map(_digest_of, self._files))

    @property
    def _files(self) -> tuple[str, ...]:
        """Those that are named; an empty path would be the working directory."""
        settings = self._settings
        named = settings.cert_file, settings.key_file, settings.client_ca_file
        return tuple(filter(None, named))


def names_of(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Common and alternative names of a certificate, as ``ssl`` gives it.

    >>> names_of({"subject": ((("commonName", "alice"),),), "subjectAltName": (("DNS", "a.x"),)})
    ('alice', 'a.x')
    """
    if not certificate:
        return ()
    pairs = (pair for part in certificate.get("subject", ()) for pair in part)
    common = tuple(str(value) for key, value in pairs if key == "commonName")
    others = certificate.get("subjectAltName", ())
    return common + tuple(str(value) for kind, value in others if kind in _SAN_KINDS)


def check_tls(settings: TlsSettings) -> None:
    """Check what no single value can say.

    Raises:
        ConfigError: a setting needs another.
    """
    if not settings.is_on:
        for name in ("key_file", "client_ca_file"):
            if value := getattr(settings, name):
                expected, remedy = "tls.cert_file with it", "Name the certificate."
                raise ConfigError.of(f"tls.{name}", value, expected, remedy)
    if settings.require_client_cert and not settings.client_ca_file:
        expected, remedy = "tls.client_ca_file with it", "Name who signs client certificates."
        raise ConfigError.of("tls.require_client_cert", True, expected, remedy)


def _stat_of(path: str) -> tuple[int, int] | None:
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino


def _digest_of(path: str) -> bytes | None:
    try:
        return hashlib.sha256(read_small(path, follow=True)).digest()
    except (OSError, InputError):
        return None
