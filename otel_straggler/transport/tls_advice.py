"""What to do about a connection that failed because of TLS, from the words of the failure."""

from __future__ import annotations

from typing import Final

_REFUSED: Final = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "ALERT", "alert")
_CUT: Final = (
    "closed connection without response",
    "Connection reset",
    "BadStatusLine",
    "EOF occurred",
    "UNEXPECTED_EOF",
)
_UNTRUSTED: Final = ("CERTIFICATE_VERIFY_FAILED", "certificate verify failed")
_REASONS: Final = ("local issuer", "self-signed", "self signed")


def tls_advice(url: str, told: str, *, ca: str, own: str) -> str:
    """One sentence; empty if TLS seems to have no part in it.

    Args:
        url: that was asked.
        told: what the libraries said.
        ca: how one names who signed the other side's certificate.
        own: what to do where the other side wants a certificate.

    >>> tls_advice("http://a:1", "Remote end closed connection without response", ca="", own="")
    'If it speaks TLS, begin the address with https://.'
    """
    if not url.startswith("https://"):
        is_cut = any(words in told for words in _CUT)
        return "If it speaks TLS, begin the address with https://." if is_cut else ""
    if "mismatch" in told or "doesn't match" in told:
        return "Use the name that its certificate is for."
    if "expired" in told:
        return "Renew its certificate."
    if any(words in told for words in (*_UNTRUSTED, *_REASONS)):
        return ca
    if "WRONG_VERSION_NUMBER" in told or "record layer failure" in told:
        return "It speaks no TLS on that port: begin the address with http://."
    if any(words in told for words in (*_REFUSED, *_CUT)):
        return f"If it wants a certificate: {own}"
    return ""
