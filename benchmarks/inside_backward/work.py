"""Layers whose forward and backward take a set time and no processor.

Eight ranks train on two cores, so a layer sleeps for the time that a GPU would need. It does so in
an operator of its own, which ``torch.compile`` leaves alone, and whose backward is called when the
engine gets there: as a real layer it comes before the gradients of what precedes it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

LAYERS = 4
DATA_S, FORWARD_S, BACKWARD_S = 0.008, 0.010, 0.016
"""Of a microbatch on a rank that is well."""
WIDTH, BATCH = 32, 4


@dataclass(slots=True)
class Pace:
    """Seconds that this rank takes for each execution, in this step.

    Attributes:
        data_s: for a batch.
        forward_s, backward_s: by layer.
    """

    data_s: float = DATA_S
    forward_s: list[float] = field(default_factory=lambda: [FORWARD_S / LAYERS] * LAYERS)
    backward_s: list[float] = field(default_factory=lambda: [BACKWARD_S / LAYERS] * LAYERS)
    _added: Mapping[str, Any] = field(default_factory=dict)

    def plan(self, added: Mapping[str, Any], scale: float) -> None:
        """Be well, until ``begin`` of the step ``added["onset"]``; empty: for good.

        Args:
            scale: of all times but what is added.
        """
        self.data_s = DATA_S * scale
        self.forward_s = [FORWARD_S * scale / LAYERS] * LAYERS
        self.backward_s = [BACKWARD_S * scale / LAYERS] * LAYERS
        self._added = added

    def begin(self, step: int) -> None:
        """Have this step's times, before anything of it is done."""
        if step != self._added.get("onset"):
            return
        self.data_s += self._added["data_s"]
        for times, name in ((self.forward_s, "forward_s"), (self.backward_s, "backward_s")):
            times[:] = [a + b for a, b in zip(times, self._added[name], strict=True)]


PACE = Pace()
"""Of this process."""


@torch.library.custom_op("inside_backward::sleep_forward", mutates_args=())
def _sleep_forward(x: torch.Tensor, layer: int) -> torch.Tensor:
    time.sleep(PACE.forward_s[layer])
    return x.clone()


@torch.library.custom_op("inside_backward::sleep_backward", mutates_args=())
def _sleep_backward(x: torch.Tensor, _layer: int) -> torch.Tensor:
    return x.clone()


@torch.library.custom_op("inside_backward::backward_of_sleep", mutates_args=())
def _backward_of_sleep(gradient: torch.Tensor, layer: int) -> torch.Tensor:
    time.sleep(PACE.backward_s[layer])
    return gradient.clone()


def _like(x: torch.Tensor, _layer: int) -> torch.Tensor:
    return torch.empty_like(x)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG001  torch's
    ctx.layer = inputs[1]


for _operator in (_sleep_forward, _sleep_backward, _backward_of_sleep):
    _operator.register_fake(_like)
_sleep_forward.register_autograd(lambda _, gradient: (gradient, None))
_sleep_backward.register_autograd(
    lambda ctx, gradient: (_backward_of_sleep(gradient, ctx.layer), None), setup_context=_remember
)


class Layer(nn.Module):
    """A linear layer and its time, which passes before there are gradients of it."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.linear(_sleep_forward(x, self.at)))
        return _sleep_backward(x, self.at)


def network(first: int = 0, last: int = LAYERS) -> nn.Sequential:
    """Layers ``first`` to ``last``, alike on all ranks."""
    torch.manual_seed(first)
    return nn.Sequential(*(Layer(at) for at in range(first, last)))


def load_batch() -> torch.Tensor:
    """A batch, in the time that loading it takes."""
    time.sleep(PACE.data_s)
    return torch.randn(BATCH, WIDTH)
