"""Two ranks' operators side by side: which take longer on the slow one. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from otel_straggler.model.operator_tables import OUTSIDE, OperatorTable, OperatorTime

SMALL_PART: Final = 0.02
"""Of the step: a smaller difference explains no slow rank."""
_CALLS_DIFFER: Final = 1.1
_DEVICE_PART: Final = 0.5
"""Kernels explain a slow rank if they explain this part of what its host lost: a slow kernel shows
on the host as well, in the operator that waits for it."""


@dataclass(frozen=True, slots=True)
class OperatorDifference:
    """One operator on both ranks, per step.

    Attributes:
        slow_s, peer_s: seconds a step without what it calls; of kernels if ``on_device``.
        slow_calls, peer_calls: a step.
    """

    name: str
    slow_s: float
    peer_s: float
    slow_calls: float
    peer_calls: float
    on_device: bool = False

    @property
    def difference_s(self) -> float:
        """Above 0: the slow rank takes longer."""
        return self.slow_s - self.peer_s

    @property
    def ratio(self) -> float | None:
        """None where the peer does not run it."""
        return self.slow_s / self.peer_s if self.peer_s > 0.0 else None


def compare_operators(slow: OperatorTable, peer: OperatorTable) -> list[OperatorDifference]:
    """All operators of both, the one that costs the slow rank most more than its peer first; those
    in which the peer takes longer, which are its waits, last. Cost: O(n log n)."""
    on_device = _is_on_device(slow, peer)
    of_slow = {each.name: each for each in slow.operators}
    of_peer = {each.name: each for each in peer.operators}
    differences = [
        _difference(
            name,
            of_slow.get(name) or OperatorTime(name, 0, 0.0),
            of_peer.get(name) or OperatorTime(name, 0, 0.0),
            (slow.n_steps, peer.n_steps),
            on_device=on_device,
        )
        for name in {**of_slow, **of_peer}
    ]
    return sorted(differences, key=lambda each: (-each.difference_s, each.name))


def _is_on_device(slow: OperatorTable, peer: OperatorTable) -> bool:
    if not (slow.has_device and peer.has_device):
        return False
    return _largest(slow, peer, "device_s") >= _DEVICE_PART * _largest(slow, peer, "host_s")


def _largest(slow: OperatorTable, peer: OperatorTable, what: str) -> float:
    """How many seconds a step the slow rank takes longer, in the operator with the largest."""
    of_peer = {each.name: getattr(each, what) / peer.n_steps for each in peer.operators}
    differences = (
        getattr(each, what) / slow.n_steps - of_peer.get(each.name, 0.0) for each in slow.operators
    )
    return max(differences, default=0.0)


def _difference(
    name: str, slow: OperatorTime, peer: OperatorTime, steps: tuple[int, int], *, on_device: bool
) -> OperatorDifference:
    return OperatorDifference(
        name=name,
        slow_s=(slow.device_s if on_device else slow.host_s) / steps[0],
        peer_s=(peer.device_s if on_device else peer.host_s) / steps[1],
        slow_calls=slow.calls / steps[0],
        peer_calls=peer.calls / steps[1],
        on_device=on_device,
    )


def difference_text(slow: OperatorTable, peer: OperatorTable) -> str:
    """One sentence: which operator makes the slow rank slow, or that none does. The time outside
    of operators is never named: most of the peer's is waiting for the slow rank."""
    differences = compare_operators(slow, peer)
    step_s = sum(each.slow_s for each in differences)
    largest = next((each for each in differences if each.name != OUTSIDE), None)
    if largest is None or largest.difference_s <= SMALL_PART * step_s:
        return (
            f"No operator takes longer on rank {slow.rank} than on rank {peer.rank}: look outside "
            "of PyTorch's operators, at Python, data loading and files."
        )
    return _text(largest, slow.rank, peer.rank)


def _text(one: OperatorDifference, slow: int, peer: int) -> str:
    where = ", on the GPU" if one.on_device else ""
    if one.ratio is None:
        return (
            f"{one.name} takes {_duration(one.slow_s)} a step on rank {slow}{where}; rank {peer} "
            "does not run it."
        )
    return (
        f"{one.name} takes {_digits(one.ratio)}x as long on rank {slow} as on rank {peer} "
        f"({_duration(one.slow_s)} against {_duration(one.peer_s)} a step{where})"
        f"{_calls_text(one)}."
    )


def _calls_text(one: OperatorDifference) -> str:
    """Where it is called more often, too."""
    if one.slow_calls < _CALLS_DIFFER * one.peer_calls:
        return ""
    calls, peer_calls = _digits(one.slow_calls), _digits(one.peer_calls)
    return f"; it is called {calls} times a step against {peer_calls}"


def _digits(value: float) -> str:
    """
    >>> _digits(3.14), _digits(31.4), _digits(24.0)
    ('3.1', '31', '24')
    """
    return f"{value:.1f}".removesuffix(".0") if value < 10.0 else f"{value:.0f}"


def _duration(seconds: float) -> str:
    """
    >>> _duration(0.1204), _duration(0.00391), _duration(2.5), _duration(0.00002)
    ('120 ms', '3.9 ms', '2.5 s', '20 us')
    """
    for unit, size_s in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size_s:
            return f"{_digits(seconds / size_s)} {unit}"
    return f"{_digits(seconds * 1e6)} us"
