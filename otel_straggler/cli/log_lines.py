"""Lines of the log of a service: text for people, or one JSON object a line for what stores logs.
Times have their zone."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import Any, Final

_TEXT: Final = "%(asctime)s %(levelname)s %(message)s"


class TextLines(logging.Formatter):
    """``TIME LEVEL MESSAGE``, and a traceback below.

    >>> record = logging.makeLogRecord({"created": 1.5, "levelname": "INFO", "msg": "ready"})
    >>> TextLines().format(record).partition(" ")[2]
    'INFO ready'
    """

    def __init__(self) -> None:
        super().__init__(_TEXT)

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
