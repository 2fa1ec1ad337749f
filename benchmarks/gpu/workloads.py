"""What arms run: steps of a transformer in sections, and turns that are timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from benchmarks.gpu.ways import Off

FORWARD, BACKWARD, OPTIMIZER = 1, 2, 3
WARM_FIRST, WARM = 20, 3
"""Steps before the first turn that counts, and before each later one."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of a model and its batch. is_fused: one kernel for many parameters in the optimizer."""

    layers: int
    width: int
    batch: int
    tokens: int
    is_fused: bool = False
    vocabulary: int = 8192


SMALL = Size(12, 768, 2, 256)
LARGE = Size(6, 4096, 8, 512, is_fused=True)
"""Launches hold the small one up: on an H200 its 470 kernels had 4 ms of work, and launching them
took 17 ms. The GPU holds the large one up: 31 TFLOP a step (``flops_of_step``) are 74 ms at the 420
TFLOP/s that were measured there, and some 250 kernels to launch. E3 says what was measured."""
TINY = Size(2, 32, 2, 16, vocabulary=64)
SPARE_BYTES = 3 << 29
"""Of a process, besides its model: the context, and PyTorch's workspaces."""


def fitting(cuda: Any, size: Size, processes: int) -> Size:
    """With as many layers as so many processes together find memory for."""
    each = int(cuda.memory_free() * 0.85) // processes - SPARE_BYTES
    return replace(size, layers=max(2, min(size.layers, each // bytes_of_layer(size))))


def flops_of_step(size: Size) -> float:
    """Of matrix products, forward and backward: six per weight and token, and attention, which is
    causal.

    >>> round(flops_of_step(LARGE) / 1e12)
    31
    """
    tokens = size.batch * size.tokens
    weights = size.layers * 12 * size.width**2 + size.vocabulary * size.width
    attention = 6 * size.layers * size.width * size.tokens
    return float(tokens * (6 * weights + attention))


def bytes_of_layer(size: Size) -> int:
    """Parameters, gradients and two moments in bf16, and what the backward pass needs."""
    return 12 * size.width**2 * 8 + 34 * size.width * size.batch * size.tokens


def model_of(torch: Any, size: Size, device: str, dtype: str) -> Any:
    """A causal transformer; its answer is the loss."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
            self.mix, self.out = nn.Linear(size.width, 3 * size.width), nn.Linear(*[size.width] * 2)
            self.up = nn.Linear(size.width, 4 * size.width)
            self.down = nn.Linear(4 * size.width, size.width)

        def forward(self, x: Any) -> Any:
            batch, tokens, width = x.shape
            heads = max(1, width // 64)
            mixed = self.mix(self.before(x)).view(batch, tokens, 3, heads, width // heads)
            q, k, v = mixed.permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, width))
            return x + self.down(functional.gelu(self.up(self.between(x))))

    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(size.vocabulary, size.width)
            self.blocks = nn.ModuleList(Block() for _ in range(size.layers))
            self.head = nn.Linear(size.width, size.vocabulary)

        def forward(self, words: Any) -> Any:
            x = self.words(words)
            for block in self.blocks:
                x = block(x)
            guessed = self.head(x).flatten(0, 1).float()
            return functional.cross_entropy(guessed, words.flatten())

    torch.manual_seed(0)
    with torch.device(device):
        return Model().to(getattr(torch, dtype))


class Training:
    """An arm: a model that is trained, timed in one way."""

    def __init__(self, cuda: Any, size: Size, way: Off) -> None:
        torch = cuda.torch
        self.cuda, self.way = cuda, way
        size = TINY if cuda.is_fake else size
        self._model = model_of(torch, size, cuda.device, cuda.dtype)
        kind = {"fused": True} if size.is_fused else {"foreach": True}
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4, **kind)
        shape = (size.batch, size.tokens)
        self._text = torch.randint(0, size.vocabulary, shape, device=cuda.device)

    def step(self) -> None:
        """One optimizer step, in three sections."""
        way = self.way
        with self.cuda.launches():
            way.begin(FORWARD)
            loss = self._model(self._text)
            way.end()
            way.begin(BACKWARD)
            loss.backward()
            way.end()
            way.begin(OPTIMIZER)
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
            way.end()


class Turns:
    """Turns of a step: its time, and the way's facts at the end."""

    def __init__(self, cuda: Any, way: Off, step: Callable[[], None]) -> None:
        self._cuda, self._way, self._step = cuda, way, step
        self._warm = WARM if cuda.is_fake else WARM_FIRST

    def turn(self, steps: int, warm: int | None = None) -> dict[str, Any]:
        """``wall_ms`` per step from before the first to after the GPU has ended the last;
        ``step_ms``, the median between ends of steps on the GPU; ``host_ms`` per step until all
        were launched; ``launch_ms`` of a step that finds the GPU idle, and does not wait for it;
        ``extra_steps`` that were run besides."""
        self._way.begin_turn()
        warm = self._warm if warm is None else warm
        for _ in range(warm):
            self._step()
        self._warm = WARM
        ends = [self._cuda.event() for _ in range(steps + 1)]
        self._cuda.synchronize()
        ends[0].record()
        began_s = time.perf_counter()
        for end in ends[1:]:
            self._step()
            end.record()
        host_s = time.perf_counter() - began_s
        self._cuda.synchronize()
        wall_s = time.perf_counter() - began_s
        launch_ms = self._launch_ms()
        self._way.end_turn()
        between = [a.elapsed_time(b) for a, b in pairwise(ends)]
        return {
            "launch_ms": launch_ms,
            "extra_steps": warm + 1,
            "wall_ms": wall_s / steps * 1e3,
            "host_ms": host_s / steps * 1e3,
            "step_ms": statistics.median(between),
        }

    def _launch_ms(self) -> float:
        began_s = time.perf_counter()
        self._step()
        launched_s = time.perf_counter() - began_s
        self._cuda.synchronize()
        return launched_s * 1e3

    def finish(self) -> dict[str, Any]:
        """Stop; what the way has seen."""
        self._way.stop()
        return self._way.facts()
