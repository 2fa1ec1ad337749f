"""Integrations with other tools of a training script."""

from otel_straggler.integrations.tracker_scalars import TrackerScalars

__all__ = ["TrackerScalars"]
