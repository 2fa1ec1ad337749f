"""Lines of the log of a service: text for people, or one JSON object a line for what stores logs.
Times have their zone. Whatever a message has in it from outside, it is one line."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import Any


def one_line(text: str) -> str:
    """Text for one line of a log: what is not printable is escaped, as in a Python string.

    >>> print(one_line("a\\x1b[31m\\n2026 ERROR b\\u202e"))
    a\\x1b[31m\\n2026 ERROR b\\u202e
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


class TextLines(logging.Formatter):
    """``TIME LEVEL MESSAGE``, with ``who`` after the time, and an indented traceback below.

    >>> record = logging.makeLogRecord({"created": 1.5, "levelname": "INFO", "msg": "a\\nb"})
    >>> TextLines().format(record).partition(" ")[2]
    'INFO a\\\\nb'
    """

    def __init__(self, who: str = "") -> None:
        super().__init__(" ".join(filter(None, ("%(asctime)s", who, "%(levelname)s %(message)s"))))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return one_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        lines = super().formatException(ei).splitlines()
        return "\n".join(f"    {one_line(line)}" for line in lines)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - logging's names
        """Local time with milliseconds and its distance from UTC (RFC 3339)."""
        return time_text(record.created)


class JsonLines(logging.Formatter):
    """An object with ``time``, ``level``, ``logger`` and ``message``; where there is one,
    ``exception``; of a line of the audit trail its fields as ``audit``.

    >>> record = logging.makeLogRecord({"levelname": "INFO", "name": "a.b", "msg": "ready\\n"})
    >>> json.loads(JsonLines().format(record))["message"]
    'ready\\n'
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time_text(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (fields := getattr(record, "audit", None)) is not None:
            line["audit"] = fields
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def time_text(unix_s: float) -> str:
    """Local time with its distance from UTC, as in 2026-01-01T13:00:00.000+01:00."""
    return datetime.fromtimestamp(unix_s).astimezone().isoformat(timespec="milliseconds")


def formatter(log_format: str) -> logging.Formatter:
    """Of ``log.format``: "text" or "json"."""
    return JsonLines() if log_format == "json" else TextLines()
