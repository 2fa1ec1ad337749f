"""What a profile records, when, and where to; from arguments and from a command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler.errors import ConfigError

DEFAULT_FOLDER: Final = "prof"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """Arguments of :class:`otel_straggler.profile`, which explains them.

    Raises:
        ConfigError: one of them is wrong.
    """

    folder: str = DEFAULT_FOLDER
    wait: int = 0
    warmup: int = 1
    active: int = 8
    repeat: int = 1
    skip_first: int = 10
    record_shapes: bool = True
    profile_memory: bool = True
    with_stack: bool = True
    with_flops: bool = True
    with_modules: bool = True
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name, lowest in _LOWEST.items():
            value = getattr(self, name)
            if type(value) is not int or value < lowest:
                raise ConfigError.of(
                    f"profile({name}=...)",
                    value,
                    f"a number of steps of at least {lowest}",
                    "Leave it out for the default.",
                )

    @property
    def cycle(self) -> int:
        """Steps from one profile to the next."""
        return self.wait + self.warmup + self.active


_LOWEST: Final = {"wait": 0, "warmup": 0, "active": 1, "repeat": 0, "skip_first": 0}
FLAGS: Final = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
"""Passed to torch.profiler as they are."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--profiling``, ``--ptensorboard`` and ``--prof_dir``."""
    parser.add_argument("--profiling", action="store_true", help="profile some steps")
    parser.add_argument("--ptensorboard", action="store_true", help="traces for TensorBoard")
    parser.add_argument("--prof_dir", default=DEFAULT_FOLDER, help="folder of the profiles")


def arguments_of(given: Any) -> dict[str, Any] | None:
    """Arguments of a profile from a command line; None without ``--profiling``.

    Args:
        given: a namespace that has them, a list of arguments, or None for those of the program.
            Arguments of others are left alone.
    """
    if given is None or isinstance(given, Sequence):
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        add_arguments(parser)
        given, _ = parser.parse_known_args(sys.argv[1:] if given is None else list(given))
    if not getattr(given, "profiling", False):
        return None
    return {
        "folder": getattr(given, "prof_dir", DEFAULT_FOLDER),
        "tensorboard": bool(getattr(given, "ptensorboard", False)),
    }
