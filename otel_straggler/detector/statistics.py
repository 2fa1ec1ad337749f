"""NVRx's module of this name."""

from otel_straggler.report.types import Statistic

__all__ = ["Statistic"]
