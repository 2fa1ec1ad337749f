"""What lost time is the time of: of GPUs where ranks told of some, else of ranks.

A rank waits as long whatever it computes on; names on the wire say ``gpu`` all the same.
"""

from __future__ import annotations


def time_text(*, on_gpu: bool) -> str:
    """
    >>> time_text(on_gpu=True), time_text(on_gpu=False)
    ('GPU time', 'rank time')
    """
    return "GPU time" if on_gpu else "rank time"


def hours_text(*, on_gpu: bool) -> str:
    """
    >>> hours_text(on_gpu=True), hours_text(on_gpu=False)
    ('GPU-hours', 'rank-hours')
    """
    return "GPU-hours" if on_gpu else "rank-hours"
