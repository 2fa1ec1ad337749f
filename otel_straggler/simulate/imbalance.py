"""Work that is unequal by its nature: lengths of sequences, popular experts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from otel_straggler.model.observation import Floats
from otel_straggler.simulate.noise import Draws
from otel_straggler.simulate.plan import RunPlan

SEQUENCES = 4
"""Sequences in a microbatch."""
TYPICAL_LENGTH = 2048.0
"""Mean tokens of a sequence."""
QUADRATIC = 0.5
"""Part of the work of an average microbatch that grows with the squares of the lengths."""
HOT_STEPS = 10
"""Steps after which another expert is popular."""


@dataclass(frozen=True, eq=False)
class SequenceWork:
    """Of some steps: ``work``, mean 1, and ``tokens`` (steps, data ranks, microbatches)."""

    work: Floats
    tokens: Floats


def draw_sequences(plan: RunPlan, draws: Draws, first: int, steps: int) -> SequenceWork:
    """Lengths are log-normal; work = a x sum of lengths + b x sum of their squares.

    The mean work is that of an infinite draw, so that a step is slow where its sequences are long.
    Cost: O(steps * data ranks * microbatches * sequences).
    """
    shape = (steps, plan.layout.dp, plan.microbatches, SEQUENCES)
    variance = length_variance(plan.sequence_cv)
    sigma = math.sqrt(variance)
    length = np.exp(sigma * draws.normals("sequences", first, shape) - variance / 2)
    square = length * length / math.exp(variance)
    work = ((1 - QUADRATIC) * length + QUADRATIC * square).mean(axis=3)
    tokens = np.rint(TYPICAL_LENGTH * length.sum(axis=3))
    return SequenceWork(work, tokens)


def length_variance(cv: float) -> float:
    """Variance of the log of the lengths, so that the work of a microbatch has this CV.

    For one sequence of log-variance v, with lengths and squares over their means:
    CV^2 = a^2 (e^v - 1) + 2ab (e^2v - 1) + b^2 (e^4v - 1). Solved by bisection.
    """
    wanted = cv * cv * SEQUENCES
    a, b = 1 - QUADRATIC, QUADRATIC
    low, high = 0.0, 10.0
    for _ in range(80):
        v = (low + high) / 2
        have = a * a * math.expm1(v) + 2 * a * b * math.expm1(2 * v) + b * b * math.expm1(4 * v)
        low, high = (v, high) if have < wanted else (low, v)
    return low if cv else 0.0


def expert_load(plan: RunPlan, draws: Draws, first: int, steps: int) -> Floats:
    """(steps, experts) work of the experts, mean 1: one is hot, and with time another.

    With h more work on one of E experts, CV = h sqrt(E - 1) / (E + h).
    """
    experts = plan.layout.ep
    more = plan.expert_cv * experts / (math.sqrt(experts - 1) - plan.expert_cv)
    load = np.ones((steps, experts))
    for index in range(steps):
        term = (first + index) // HOT_STEPS
        load[index, draws.once("experts", term).integers(experts)] += more
    return np.asarray(load / load.mean(axis=1, keepdims=True))
