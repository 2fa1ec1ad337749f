"""Secrets are not printed: a text that shows as ``***``, and URLs without passwords and keys."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

HIDDEN: Final = "***"
_USER: Final = re.compile(r"(://)[^/\s?#'\"<>]*@")
_BARE: Final = re.compile(
    r"(?<![\w/])[^\s:/@'\"<>]+:[^\s/@'\"<>]+@(?=[\w-]+(?::(?!step|[\d.]+s)|\.\w)|\[)"
)
"""Without a scheme. ``compute:1.10@rank3:step5`` and ``data:0.1@all:30s`` are faults."""
_FIELD: Final = re.compile(r"([?&][^=&#\s'\"<>]+=)[^&#\s'\"<>)]+?(?=[:.,;]*(?:[&#\s'\"<>)]|$))")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")


class Secret(str):
    """A text that prints as ``***``; :func:`reveal` gives it.

    >>> token = Secret("abc")
    >>> print(token, f"{token}", repr(token), reveal(token), token == "abc")
    *** *** *** abc True
    """

    __slots__ = ()

    def __str__(self) -> str:
        return HIDDEN

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, format_spec: str) -> str:
        return HIDDEN


def reveal(text: str) -> str:
    """The text itself, also of a :class:`Secret`."""
    return str.__str__(text)


def secret_if_url(text: str) -> str:
    """A URL is a secret, as it may have a password; another text is none.

    >>> secret_if_url("history.db"), secret_if_url("postgresql://me:pw@db/x")
    ('history.db', ***)
    """
    return Secret(reveal(text)) if "://" in reveal(text) else text


def without_secrets(text: str) -> str:
    """A text whose URLs have neither names and passwords nor values of a query.

    >>> without_secrets("http://me:pw@gw:4318/v1/traces?key=abc&n=1: refused")
    'http://***@gw:4318/v1/traces?key=***&n=***: refused'
    >>> without_secrets("me:pw@gw:4318")
    '***@gw:4318'
    >>> without_secrets("compute:1.10@rank37:step500")
    'compute:1.10@rank37:step500'
    >>> without_secrets("data:0.1@host2:30s")
    'data:0.1@host2:30s'
    """
    if "@" in text:
        text = _BARE.sub(f"{HIDDEN}@", text)
    if "://" not in text:
        return text
    return _URL.sub(
        lambda url: _FIELD.sub(rf"\1{HIDDEN}", _USER.sub(rf"\1{HIDDEN}@", url[0])), text
    )


def without_path(url: str) -> str:
    """A URL whose path is the secret, as that of a chat's webhook.

    >>> without_path("https://hooks.example.com/services/T0/B0/x")
    'https://hooks.example.com/***'
    """
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}/{HIDDEN}"


def redacted(value: Any) -> Any:
    """JSON whose texts are :func:`without_secrets`."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, dict):
        return {key: redacted(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(one) for one in value]
    return value
