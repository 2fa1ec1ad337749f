"""What a run says of its alerts, what people have said of its hang, what this collector may do.

The one place where these words come in; everything else about alerts asks here.
"""

from __future__ import annotations

from otel_straggler.collector.settings import CollectorSettings
from otel_straggler.model.alert import Mode


def mode_of(settings: CollectorSettings) -> Mode:
    """Whether this collector's alerts may call somebody."""
    return "page" if settings.alerts.mode == "page" else "observe"
