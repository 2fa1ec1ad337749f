"""From rows of durations to who is slow, who hangs, since when, why, and at what cost.

Pure: no clock, no I/O; time is an argument. ``scores`` gives NVRx's numbers, ``verdicts`` who is
slow and why, ``hangs`` who makes no progress or is silent.

Units: seconds where a name ends in ``_s``, nanoseconds of the sender's clock in ``_ns``; an excess,
effect, or rise is a logarithm (0.1 is about 10 % longer). Letters of shapes: T steps, R ranks, S
sections, C quantities, G groups of peers, H hosts. NaN is "unknown" throughout.
"""
