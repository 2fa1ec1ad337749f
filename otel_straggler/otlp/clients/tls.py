"""TLS of every client: whom it trusts, and what to do where it fails."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Final

_CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def tls_context(ca_file: str | None, cert_file: str | None, key_file: str | None) -> ssl.SSLContext:
    """Files are read for each connection: certificates are renewed in place.

    Raises:
        OSError: a file is missing (its name is in the error), or is not what it should be.
    """
    for file in filter(None, (ca_file, cert_file, key_file)):
        Path(file).stat()
    named = ca_file or next((os.environ[v] for v in _CA_VARIABLES if os.environ.get(v)), "")
    if named and Path(named).is_dir():
        context = ssl.create_default_context(capath=named)
    else:
        context = ssl.create_default_context(cafile=named or None)
    if not named and (bundle := load_authorities()):
        context.load_verify_locations(bundle)
    if cert_file:
        context.load_cert_chain(cert_file, key_file)
    return context


def load_authorities() -> str:
    """Of certifi, for images whose system has none; empty if it is not installed."""
    try:
        import certifi
    except ImportError:
        return ""
    return certifi.where()


_REFUSED: Final = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "ALERT", "alert")
_CUT: Final = (
    "closed connection without response",
    "Connection reset",
    "is not HTTP/1.1",
    "EOF occurred",
    "UNEXPECTED_EOF",
)
_UNTRUSTED: Final = ("CERTIFICATE_VERIFY_FAILED", "certificate verify failed")
_REASONS: Final = ("local issuer", "self-signed", "self signed")


def tls_advice(url: str, error: str, *, ca: str, own: str) -> str:
    """What to do about a connection that failed because of TLS; empty if TLS seems to have no part
    in it.

    Args:
        ca: how to name who signed the other side's certificate.
        own: what to do where the other side wants a certificate.

    >>> tls_advice("http://a:1", "Remote end closed connection without response", ca="", own="")
    'If it speaks TLS, begin the address with https://.'
    """
    if not url.startswith("https://"):
        is_cut = any(text in error for text in _CUT)
        return "If it speaks TLS, begin the address with https://." if is_cut else ""
    if "mismatch" in error or "doesn't match" in error:
        return "Use the name that its certificate is for."
    if "expired" in error:
        return "Renew its certificate."
    if any(text in error for text in (*_UNTRUSTED, *_REASONS)):
        return ca
    if "WRONG_VERSION_NUMBER" in error or "record layer failure" in error:
        return "It speaks no TLS on that port: begin the address with http://."
    if any(text in error for text in (*_REFUSED, *_CUT)):
        return f"If it wants a certificate: {own}"
    return ""
