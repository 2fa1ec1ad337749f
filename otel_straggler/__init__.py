"""Find the slow rank, and the silent one, in a distributed PyTorch job, with OpenTelemetry."""

from otel_straggler._version import __version__

__all__ = ["__version__"]
