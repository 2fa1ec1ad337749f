"""NVRx's module of this name."""

from otel_straggler.report.interval import ReportIntervalTracker

__all__ = ["ReportIntervalTracker"]
