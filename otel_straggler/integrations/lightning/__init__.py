"""Callbacks for Lightning's ``Trainer``, of ``lightning`` and of ``pytorch_lightning``.

The two with the names of NVRx's take their place by another import:

    from otel_straggler.integrations.lightning import StragglerDetectionCallback
    # was: from nvidia_resiliency_ext.ptl_resiliency import StragglerDetectionCallback
"""

from otel_straggler.inject.simulated_faults import SimulatedFaultParams
from otel_straggler.integrations.lightning.checkpoints import CheckpointCallback
from otel_straggler.integrations.lightning.fault_tolerance import FaultToleranceCallback
from otel_straggler.integrations.lightning.step_timing import StepTimingCallback
from otel_straggler.integrations.lightning.straggler_detection import StragglerDetectionCallback

__all__ = [
    "CheckpointCallback",
    "FaultToleranceCallback",
    "SimulatedFaultParams",
    "StepTimingCallback",
    "StragglerDetectionCallback",
]
