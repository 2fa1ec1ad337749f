"""Find the slow rank, and the silent one, in a distributed PyTorch job, with OpenTelemetry."""

from otel_straggler._version import __version__
from otel_straggler.client.process import configure, flush, gpu_timing, set_gpu_timing, shutdown
from otel_straggler.client.profiling import profile
from otel_straggler.client.sections import section
from otel_straggler.client.steps import phase, step
from otel_straggler.client.topology import set_topology
from otel_straggler.client.watch.handle import watch

__all__ = [
    "__version__",
    "configure",
    "flush",
    "gpu_timing",
    "phase",
    "profile",
    "section",
    "set_gpu_timing",
    "set_topology",
    "shutdown",
    "step",
    "watch",
]
