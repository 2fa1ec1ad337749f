"""Lines of the log of a service: text for people, or one JSON object a line for what stores logs.
Times have their zone."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import Any, Final

from otel_straggler.model.names import visible

_BELOW: Final = "  "


class TextLines(logging.Formatter):
    """``TIME LEVEL MESSAGE`` in one line, and a traceback below, indented: no text from outside
    begins a line of the log.

    >>> record = logging.makeLogRecord({"created": 1.5, "levelname": "INFO", "msg": "a\\nb"})
    >>> TextLines().format(record).partition(" ")[2]
    'INFO a�b'
    """

    def format(self, record: logging.LogRecord) -> str:
        lines = [f"{time_text(record.created)} {record.levelname} {visible(record.getMessage())}"]
        if record.exc_info:
            below = self.formatException(record.exc_info).splitlines()
            lines += [_BELOW + visible(line) for line in below]
        return "\n".join(lines)


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
