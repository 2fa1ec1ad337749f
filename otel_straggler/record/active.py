"""The recorder of this process, the base class of its sections, and what times its steps."""

from otel_straggler.record.python_recorder import RECORDER, STEP_TIMER
from otel_straggler.record.python_recorder import PythonTimer as SectionTimer

__all__ = ["RECORDER", "STEP_TIMER", "SectionTimer"]
