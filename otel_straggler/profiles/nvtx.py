"""Sections and steps as NVTX ranges, while Nsight Systems profiles the training."""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

_LOG = logging.getLogger("otel_straggler")
_METHODS: Final = ("__enter__", "__exit__", "begin")


class NvtxRanges:
    """Mirrors every execution of a section, in its thread, and the steps, from now on until
    ``close()``: the class of sections is patched meanwhile.

    Args:
        section_type: the class of sections.
        nvtx: has ``range_push``, ``range_pop``, ``range_start`` and ``range_end``; torch's if left
            out, as soon as the program has imported torch.
    """

    def __init__(self, section_type: type[Any], nvtx: Any = None) -> None:
        self._section_type: type[Any] | None = section_type
        self._nvtx = nvtx
        self._open_step: Any = None
        self._methods = [getattr(section_type, name) for name in _METHODS]
        enter, leave, begin = self._methods

        def mirrored_enter(section: Any) -> Any:
            self._call("range_push", section.name)
            return enter(section)

        def mirrored_begin(section: Any, work: Any) -> None:
            self._call("range_push", section.name)
            begin(section, work)

        def mirrored_exit(section: Any, *error: Any) -> Any:
            result = leave(section, *error)
            self._call("range_pop")
            return result

        mirrored: tuple[Any, ...] = (mirrored_enter, mirrored_exit, mirrored_begin)
        for name, method in zip(_METHODS, mirrored, strict=True):
            setattr(section_type, name, method)

    def begin_step(self, number: int) -> None:
        """End the range of the step before, and begin the next one's."""
        self._end_step()
        self._open_step = self._call("range_start", f"step {number}")

    def close(self) -> None:
        """Leave sections as they were. Safe to call twice."""
        self._end_step()
        section_type, self._section_type = self._section_type, None
        for name in _METHODS if section_type is not None else ():
            delattr(section_type, name)

    def _end_step(self) -> None:
        if self._open_step is not None:
            self._call("range_end", self._open_step)
            self._open_step = None

    def _call(self, name: str, *arguments: Any) -> Any:
        nvtx = self._nvtx or _nvtx_of_torch()
        if nvtx is None or self._section_type is None:
            return None
        try:
            return getattr(nvtx, name)(*arguments)
        except RuntimeError as error:  # a torch without CUDA
            _LOG.warning("sections are not mirrored as NVTX ranges: %s", error)
            self._open_step = None
            self.close()
            return None


def _nvtx_of_torch() -> Any:
    """None while torch is not imported, or is being imported."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return getattr(cuda, "nvtx", None)
