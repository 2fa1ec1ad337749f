"""From rows of durations to "who is slow, who hangs, since when, why, what it costs".

Pure: no clock, no I/O; time is an argument. ``scores`` gives NVRx's numbers, ``verdicts`` says who
is slow and why, ``hangs`` is about those who make no progress or are silent.

Units: seconds where a name ends in ``_s``, nanoseconds of the sender's clock in ``_ns``; what is
called excess, effect or rise is a logarithm (0.1 is about 10 % longer). Letters of shapes: T
steps, R ranks, S sections, C quantities, G groups of peers, H hosts. NaN is "unknown" throughout
and takes no part.
"""
