"""``Detector``: the drop-in face for code written against NVRx's straggler package.

    from otel_straggler import detector as straggler   # was: from nvidia_resiliency_ext import ...

The same calls and the same modules, with or without a GPU. What differs on purpose is in
docs/recipes/from-nvrx.md.
"""

from otel_straggler.detector import interval_tracker, reporting, statistics
from otel_straggler.detector.reporting import Report, StragglerId
from otel_straggler.detector.statistics import Statistic
from otel_straggler.detector.straggler import PULL_EVERY, CallableId, Detector

__all__ = ["CallableId", "Detector", "Report", "Statistic", "StragglerId"]
_MODULES = interval_tracker, reporting, statistics
_ = PULL_EVERY
