"""What other tools of a training script get from us."""

from otel_straggler.integrations.tracker_scalars import TrackerScalars

__all__ = ["TrackerScalars"]
