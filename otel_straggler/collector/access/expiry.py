"""When certificates and grants end."""

from __future__ import annotations

import math
import ssl
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

from otel_straggler.collector.access.roles import Principal
from otel_straggler.errors import InputError
from otel_straggler.regular_files import read_small

_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18


@dataclass(frozen=True, slots=True)
class Expiry:
    """The end of something that lets somebody in.

    Attributes:
        what: "certificate" or "grants", as in ``semconv.TROUBLES``.
        name: the file of the certificate, or the name of the grant.
        at_s: seconds since 1970.
    """

    what: str
    name: str
    at_s: float

    @property
    def text(self) -> str:
        """
        >>> Expiry("grants", "prometheus", 1_893_456_000.0).text
        'the grant prometheus ends on 2030-01-01 00:00 UTC'
        """
        kind = "grant" if self.what == "grants" else "certificate"
        at = datetime.fromtimestamp(self.at_s, timezone.utc)
        return f"the {kind} {self.name} ends on {at:%Y-%m-%d %H:%M} UTC"


def expiries(certificates: Iterable[str], principals: Iterable[Principal]) -> list[Expiry]:
    """What ends: of each file the certificate that ends first, and of each name the grant."""
    ends = ((path, ends_of_certificates(path)) for path in dict.fromkeys(certificates) if path)
    grants: dict[str, float] = {}
    for each in principals:
        if math.isfinite(each.ends_at_s):
            grants[each.name] = min(each.ends_at_s, grants.get(each.name, math.inf))
    return [
        *(Expiry("certificate", path, min(its)) for path, its in ends if its),
        *(Expiry("grants", name, at_s) for name, at_s in grants.items()),
    ]


def ends_of_certificates(path: str) -> tuple[float, ...]:
    """When the certificates of a PEM file end, in its order; none of a file that cannot be read, or
    of a certificate that is none: who loads it says so."""
    try:
        text = read_small(path, follow=True).decode("ascii", "replace")
    except (OSError, InputError):
        return ()
    return tuple(_ends(text))


def _ends(text: str) -> Iterator[float]:
    for part in text.split(_CERTIFICATE)[1:]:
        pem = f"{_CERTIFICATE}{part.partition(_END)[0]}{_END}\n"
        try:
            yield not_after_s(ssl.PEM_cert_to_DER_cert(pem))
        except (ValueError, LookupError):
            continue


def not_after_s(der: bytes) -> float:
    """The end of a certificate (RFC 5280: the second time of ``validity``).

    Raises:
        ValueError, LookupError: it is none.
    """
    certificate = _content(der, _SEQUENCE)
    fields = _elements(_content(certificate, _SEQUENCE))
    if fields[0][0] == _VERSION:
        fields = fields[1:]
    tag, validity = fields[3]  # after serial number, signature algorithm and issuer
    if tag != _SEQUENCE:
        raise ValueError("no validity")
    tag, value = _elements(validity)[1]
    form = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}[tag]
    at = datetime.strptime(value.decode("ascii"), form)  # noqa: DTZ007 - Z is UTC
    if tag == _UTC_TIME and at.year >= 2050:  # two digits stand for 1950 to 2049
        at = at.replace(year=at.year - 100)
    return at.replace(tzinfo=timezone.utc).timestamp()


def _content(der: bytes, tag: int) -> bytes:
    """Of the first element, which has this tag."""
    first, content = _elements(der)[0]
    if first != tag:
        raise ValueError(f"tag {first:#x}")
    return content


def _elements(der: bytes) -> list[tuple[int, bytes]]:
    """Tags and contents, one after the other (DER: a length of a byte, or of so many)."""
    elements = []
    at = 0
    while at < len(der):
        tag, length = der[at], der[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(der[at : at + size], "big"), at + size
        if at + length > len(der):
            raise ValueError("cut off")
        elements.append((tag, der[at : at + length]))
        at += length
    return elements
