"""OTLP/JSON as plain values: own names in lowerCamelCase, hex ids, 64-bit numbers as strings.

protobuf's own JSON parser reads another dialect (base64 ids) and is a hundred times slower.
"""

from __future__ import annotations

import binascii
from typing import Any

from otel_straggler.wire.identity import Value


class MalformedError(ValueError):
    """The request as a whole is not OTLP."""


def items(node: Any, key: str) -> list[Any]:
    """The list under ``key``; absent and null mean empty."""
    if not isinstance(node, dict):
        raise MalformedError(f"expected an object with {key!r}, got {type(node).__name__}")
    value = node.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise MalformedError(f"{key}: expected a list, got {type(value).__name__}")
    return value


def member(node: Any, key: str) -> dict[str, Any]:
    """The object under ``key``; absent and null mean empty."""
    if not isinstance(node, dict):
        raise MalformedError(f"expected an object with {key!r}, got {type(node).__name__}")
    value = node.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MalformedError(f"{key}: expected an object, got {type(value).__name__}")
    return value


def text(node: dict[str, Any], key: str) -> str:
    value = node.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MalformedError(f"{key}: expected a string, got {type(value).__name__}")
    return value


def integer(node: dict[str, Any], key: str) -> int:
    """A 64-bit number, written as a number or as a string."""
    value = node.get(key)
    if value is None or value == "":
        return 0
    if isinstance(value, bool) or not isinstance(value, (int, str, float)):
        raise MalformedError(f"{key}: expected an integer, got {type(value).__name__}")
    try:
        return int(value)
    except (ValueError, OverflowError):
        raise MalformedError(f"{key}: expected an integer, got {value!r:.50}") from None


def identifier(node: dict[str, Any], key: str) -> bytes:
    """A hex id; text that is no hex gives the empty id, which no span may have."""
    try:
        return binascii.unhexlify(text(node, key))
    except ValueError:
        return b""


def attributes(node: dict[str, Any]) -> dict[str, Value]:
    """Scalar attributes; lists and maps mean nothing here and are left out."""
    found: dict[str, Value] = {}
    for entry in items(node, "attributes"):
        value = _scalar(member(entry, "value"))
        if value is not None:
            found[text(entry, "key")] = value
    return found


def _scalar(value: dict[str, Any]) -> Value:
    if "stringValue" in value:
        return text(value, "stringValue")
    if "intValue" in value:
        return integer(value, "intValue")
    if "boolValue" in value:
        return bool(value["boolValue"])
    if "doubleValue" in value:
        return number(value["doubleValue"])
    return None


def number(value: Any) -> float | None:
    """A double; also the strings "NaN", "Infinity" and digits."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
