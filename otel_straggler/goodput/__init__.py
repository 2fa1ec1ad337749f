"""Where the time of a run goes: goodput and badput from what its ranks did. Pure: no clock, no I/O.

:func:`~otel_straggler.goodput.account.account` splits the time of every rank into productive time
and categories of badput that add up to the time of the run exactly, in integer nanoseconds.
"""
