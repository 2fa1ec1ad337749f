"""The recorder of this process and the base class of its sections."""

from otel_straggler.record.python_recorder import RECORDER
from otel_straggler.record.python_recorder import PythonTimer as SectionTimer

__all__ = ["RECORDER", "SectionTimer"]
