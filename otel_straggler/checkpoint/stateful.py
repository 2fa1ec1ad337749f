"""What a training's state is made of, besides tensors: for DCP's ``Stateful`` protocol."""

from __future__ import annotations

import random
from typing import Any, Final

from otel_straggler.errors import InputError

_NUMBERS: Final = 624


class PerRank:
    """State that differs from rank to rank, such as the position of a data loader: kept under the
    number of the rank. A rank that the checkpoint does not have keeps what it has.

    Args:
        part: has ``state_dict()`` and ``load_state_dict()``.
        rank: by default that of the process group.
    """

    def __init__(self, part: Any, rank: int | None = None) -> None:
        self._part = part
        self._rank = _rank() if rank is None else rank

    def state_dict(self) -> dict[str, Any]:
        return {f"rank {self._rank}": self._part.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._part.load_state_dict(state[f"rank {self._rank}"])


class RandomState:
    """The generators of Python, NumPy (if loaded), and torch on this rank's devices; in
    :class:`PerRank`."""

    def state_dict(self) -> dict[str, Any]:
        import sys

        import torch

        state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
        if "numpy" in sys.modules:
            state["numpy"] = sys.modules["numpy"].random.get_state()
        if torch.cuda.is_available():
            state["cuda"] = torch.cuda.get_rng_state()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        import sys

        import torch

        random.setstate(state["python"])
        torch.set_rng_state(state["torch"])
        if "numpy" in state and "numpy" in sys.modules:
            sys.modules["numpy"].random.set_state(_checked(state["numpy"]))
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state(state["cuda"])


def _checked(state: Any) -> Any:
    """NumPy takes any position in its 624 numbers, and reads there."""
    if not isinstance(state, tuple) or type(state[2]) is not int or not 0 <= state[2] <= _NUMBERS:
        raise InputError.of(
            "the state of NumPy's random numbers", state[2:3] or state,
            f"what get_state() returns, with a position from 0 to {_NUMBERS}",
            "Restore another step.",
        )  # fmt: skip
    return state


class _Training:
    """Model and optimizers under names that do not depend on how they are sharded."""

    def __init__(self, model: Any, optimizers: Any) -> None:
        self._model = model
        self._optimizers = optimizers

    def state_dict(self) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizers = get_state_dict(self._model, self._optimizers)
        return {"model": model, "optimizers": optimizers}

    def parts_with_tensors(self) -> list[Any]:
        """What has the tensors of the state, without making it."""
        optimizers = self._optimizers
        return [self._model, *([optimizers] if hasattr(optimizers, "state") else optimizers)]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        from torch.distributed.checkpoint.state_dict import set_state_dict

        set_state_dict(
            self._model,
            self._optimizers,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizers"],
        )


def training_state(model: Any, optimizers: Any = (), **parts: Any) -> dict[str, Any]:
    """A state for :class:`.Manager` that also restores an optimizer which has not stepped yet:
    model and optimizers by DCP's own functions, the generators of random numbers of each rank, and
    ``parts`` as they are.

    Args:
        model: a module; also DDP or FSDP.
        optimizers: one, or several.
        parts: such as a scheduler, or ``loader=PerRank(loader)``.
    """
    return {
        "training": _Training(model, optimizers),
        "random": PerRank(RandomState()),
        **parts,
    }


def _rank() -> int:
    from torch import distributed

    is_on = distributed.is_available() and distributed.is_initialized()
    return distributed.get_rank() if is_on else 0
