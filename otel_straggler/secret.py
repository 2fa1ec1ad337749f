"""Secrets are not printed: a text that shows as ``***``, and URLs without passwords and keys."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

HIDDEN: Final = "***"
_USER: Final = re.compile(r"(://)(?:[^/\s?#'\"<>]*|[^/\s?#'\"<>:]*:[^\s'\"<>]*)@")
"""What stands before a host; a password may have any of ``/?#`` in it, though it should not."""
_BARE: Final = re.compile(
    r"(?<![\w/])[^\s:/@'\"<>]+:[^\s/@'\"<>]+@(?=[\w-]+(?::(?!step|[\d.]+s)|\.\w)|\[)"
)
"""Without a scheme. ``compute:1.10@rank3:step5`` and ``data:0.1@all:30s`` are faults."""
_FIELD: Final = re.compile(r"([?&][^=&#\s'\"<>]+=)[^&#\s'\"<>)]+?(?=[:.,;]*(?:[&#\s'\"<>)]|$))")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")
_WORDS: Final = r"authorization|password|passwd|pwd|token|secret|api[_-]?key|credentials?"
_NAMED: Final = re.compile(
    rf"""((?:\b|_)(?:{_WORDS})['"]?\s*(?:=|(?<=['"])\s*:)\s*['"]?)(?:(?:bearer|basic)(?:\s|%20)+)?"""
    r"""[^\s'",;&}})\]]+""",
    re.IGNORECASE,
)
"""``token=abc``, ``"password": "abc"``, ``'Authorization': 'Bearer abc'``."""
_TOKEN: Final = re.compile(
    r"(\b(?:bearer|basic)(?:\s|%20)+|\bauthorization:\s*(?!bearer|basic)|\btoken:(?=\S{16}))[\w.~+/=-]{6,}",
    re.IGNORECASE,
)
"""``Bearer abcdef``, ``Authorization: abcdef``, and a token of a file of grants."""
_JWT: Final = re.compile(r"\beyJ[\w-]{5,}\.[\w-]+\.[\w-]*")
_SECRET_KEY: Final = re.compile(rf"(?:.*[_-])?(?:{_WORDS})", re.IGNORECASE)


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
    """A text whose URLs have neither names and passwords nor values of a query, and in which what
    is named a token, a password or a key is hidden, as is a bearer token.

    >>> without_secrets("http://me:pw@gw:4318/v1/traces?key=abc&n=1: refused")
    'http://***@gw:4318/v1/traces?key=***&n=***: refused'
    >>> without_secrets("me:pw@gw:4318")
    '***@gw:4318'
    >>> without_secrets("compute:1.10@rank37:step500")
    'compute:1.10@rank37:step500'
    >>> without_secrets("data:0.1@host2:30s")
    'data:0.1@host2:30s'
    >>> without_secrets("{'token': 'abc', 'to': 1} -H 'Authorization: Bearer abcdef' key_token=x")
    "{'token': '***', 'to': 1} -H 'Authorization: Bearer ***' key_token=***"
    """
    text = _JWT.sub(HIDDEN, _TOKEN.sub(rf"\1{HIDDEN}", _NAMED.sub(rf"\1{HIDDEN}", text)))
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


class _Shown(str):
    """A text that an error shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def of_kind(value: object) -> str:
    """What a value is that may hold anything, without saying it.

    >>> [of_kind(each) for each in ("abc", b"{", [1], {}, None, 7)]
    [a text of 3 characters, 1 bytes, a list of 1, an object of 0, nothing, a number]
    """
    if isinstance(value, str | bytes | list | dict):
        size = len(value)
        named = {
            str: f"a text of {size} characters",
            bytes: f"{size} bytes",
            list: f"a list of {size}",
        }
        return _Shown(named.get(type(value), f"an object of {size}"))
    return _Shown("nothing" if value is None else "a number")


def redacted(value: Any) -> Any:
    """JSON whose texts are :func:`without_secrets`, and without values of keys that name a
    secret."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, dict):
        return {
            key: HIDDEN if isinstance(key, str) and _SECRET_KEY.fullmatch(key) else redacted(one)
            for key, one in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redacted(one) for one in value]
    return value
