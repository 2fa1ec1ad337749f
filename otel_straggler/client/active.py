"""The recorder of this process, the base class of its sections, and what times its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_straggler.native import NATIVE, REASON

if TYPE_CHECKING or NATIVE is not None:
    from otel_straggler.client.native_recorder import RECORDER, STEP_TIMER
    from otel_straggler.client.native_recorder import NativeTimer as SectionTimer
else:
    from otel_straggler.client.python_recorder import RECORDER, STEP_TIMER
    from otel_straggler.client.python_recorder import PythonTimer as SectionTimer

__all__ = ["FORM", "RECORDER", "STEP_TIMER", "WHY_PYTHON", "SectionTimer"]

FORM = "python" if NATIVE is None else "native"
WHY_PYTHON = REASON
"""Empty where the recorder is native."""
