"""The extension module, if it was built and is wanted; and why not, if not.

Without it, sections are recorded and sent by a slim fallback in plain Python: no GPU times, no ring
file, no context propagation, and above the span budget whole steps are left out instead of folding
sections. Importing never fails; ``configure()`` refuses what cannot be had.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from otel_straggler.errors import ConfigError, describe

VARIABLE = "OTEL_STRAGGLER_NATIVE"
REQUESTS = ("auto", "off", "required")
_RECORD_LAYOUT = (1, 128)
"""Version and bytes of a record that the Python side knows to read."""
_NEEDED = (
    "EventTimer",
    "Exporter.correct_at_exit",
    "GpuStage",
    "KernelTimer",
    "SectionTimer",
    "Scanner",
    "MetricScanner",
    "SpanEncoder",
    "add_wait",
    "detection_section",
    "open_block",
    "set_gpu_timer",
    "sketch",
    "trace_ids",
)
"""One name of each part: an extension that was built from older sources may lack one."""


def check_requested() -> None:
    """Refuse what is asked for and is not there.

    Raises:
        ConfigError: ``OTEL_STRAGGLER_NATIVE`` is none of its values, or ``required`` and there is
            no extension module.
    """
    requested = _requested()
    if requested not in REQUESTS:
        raise ConfigError(
            describe(
                where=VARIABLE,
                value=requested,
                expected="one of " + ", ".join(REQUESTS),
                remedy="Unset it: the native part is used where it was built.",
            )
        )
    if requested == "required" and NATIVE is None:
        raise ConfigError(
            describe(
                where=VARIABLE,
                value=requested,
                expected=f"a package with its native part, but {REASON}",
                remedy="Install a wheel for this platform, or from source with a C++ compiler.",
            )
        )


@cache
def warn_if_missing() -> None:
    """Log once what is slower where the extension is missing and nobody has turned it off."""
    if NATIVE is None and _requested() != "off":
        logging.getLogger("otel_straggler").warning(
            "the compiled part of otel-straggler is missing (%s): a section takes about 9 times "
            "as long (0.6 µs), sending a span 12 times as much CPU, and nothing is sent while a "
            "library holds the GIL. `otel-straggler doctor` says how to install it.",
            REASON,
        )


def load() -> tuple[ModuleType | None, str]:
    """The module, or None and a short reason."""
    if _requested() == "off":
        return None, f"{VARIABLE} is off"
    try:
        module = import_module("otel_straggler._native")
    except ImportError as error:
        return None, f"it cannot be imported ({error})"
    layout = (module.RECORD_VERSION, module.RECORD_BYTES)
    if layout != _RECORD_LAYOUT:
        return None, f"it was built for records {layout}, not {_RECORD_LAYOUT}"
    missing = [name for name in _NEEDED if not _has(module, name)]
    if missing:
        return None, f"it was built from older sources, without {', '.join(missing)}"
    return module, ""


def _has(module: Any, name: str) -> bool:
    part, _, of_part = name.partition(".")
    return hasattr(module, part) and (not of_part or hasattr(getattr(module, part), of_part))


def _requested() -> str:
    return os.environ.get(VARIABLE, "").strip().lower() or "auto"


NATIVE, REASON = load()
