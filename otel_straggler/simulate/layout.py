"""How the ranks of a job are laid out over the parallel dimensions."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from otel_straggler.errors import ConfigError, describe

_PART = re.compile(r"(tp|cp|ep|pp|dp)=?(\d{1,9})")
_EXAMPLE = "parts such as tp8,pp4,dp32"
MOST_RANKS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Sizes of the parallel dimensions.

    Ranks are numbered with the tensor dimension fastest, then context, data and pipeline, as
    Megatron does it. Experts take no ranks of their own: ``ep`` neighbours in the data dimension
    share the experts.

    >>> layout = Layout.parse("tp2,pp2,dp4")
    >>> layout.ranks, layout.place(5)
    (16, (('data', 2), ('tensor', 1), ('pipeline', 0)))
    """

    tp: int = 1
    cp: int = 1
    ep: int = 1
    pp: int = 1
    dp: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                _refuse(getattr(self, field.name), f"{field.name} of at least 1")
        if self.dp % self.ep:
            _refuse(str(self), f"dp that is a multiple of ep ({self.ep})")
        if self.ranks > MOST_RANKS:
            _refuse(str(self), f"at most {MOST_RANKS:,} ranks")

    def __str__(self) -> str:
        sizes = ((f.name, getattr(self, f.name)) for f in fields(self))
        return ",".join(f"{name}{size}" for name, size in sizes if size > 1 or name == "dp")

    @classmethod
    def parse(cls, text: str, ranks: int | None = None) -> Layout:
        """Read ``tp8,pp4,dp32``; with ``ranks``, dp may be left out.

        >>> Layout.parse("tp8,pp4", ranks=1024).dp
        32

        Raises:
            ConfigError: it cannot be read, names a dimension twice, or has other than ``ranks``.
        """
        sizes: dict[str, int] = {}
        for part in text.replace(" ", "").lower().split(","):
            match = _PART.fullmatch(part)
            if match is None:
                _refuse(text, _EXAMPLE)
            if match[1] in sizes:
                _refuse(text, f"{match[1]} only once")
            sizes[match[1]] = int(match[2])
        layout = cls(**({"dp": sizes.get("ep", 1)} | sizes))
        if ranks is None:
            return layout
        if "dp" not in sizes:
            layout = cls(**sizes, dp=max(ranks // (layout.ranks // layout.dp), 1))
        if layout.ranks != ranks:
            _refuse(text, f"a layout of {ranks} ranks, not {layout.ranks}")
        return layout

    @property
    def ranks(self) -> int:
        """Ranks in all."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def inner(self) -> int:
        """Ranks that work on the same layers and data, and meet in every layer."""
        return self.tp * self.cp

    @cached_property
    def data_index(self) -> npt.NDArray[np.intp]:
        """(ranks,) index in the data dimension."""
        return np.arange(self.ranks) // self.inner % self.dp

    @cached_property
    def stage(self) -> npt.NDArray[np.intp]:
        """(ranks,) pipeline stage."""
        return np.arange(self.ranks) // (self.inner * self.dp)

    @cached_property
    def expert_index(self) -> npt.NDArray[np.intp]:
        """(ranks,) index in the expert dimension."""
        return self.data_index % self.ep

    @cached_property
    def inner_group(self) -> npt.NDArray[np.intp]:
        """(ranks,) number of the group that meets in every layer."""
        return np.arange(self.ranks) // self.inner

    @cached_property
    def data_group(self) -> npt.NDArray[np.intp]:
        """(ranks,) number of the group that sums its gradients up."""
        return self.stage * self.inner + np.arange(self.ranks) % self.inner

    def place(self, rank: int) -> tuple[tuple[str, int], ...]:
        """Where a rank stands: (dimension, index); the data dimension, and those above size 1."""
        indices = (
            ("data", self.dp, int(self.data_index[rank])),
            ("tensor", self.tp, rank % self.tp),
            ("pipeline", self.pp, int(self.stage[rank])),
            ("context", self.cp, rank // self.tp % self.cp),
            ("expert", self.ep, int(self.expert_index[rank])),
        )
        return tuple((name, index) for name, size, index in indices if size > 1 or name == "data")


def _refuse(value: object, expected: str) -> NoReturn:
    remedy = f"Change --layout; it takes {_EXAMPLE}."
    raise ConfigError(describe(where="layout", value=value, expected=expected, remedy=remedy))
