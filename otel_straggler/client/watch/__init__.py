"""``watch()``: sections and steps of a training loop that marks nothing.

``loop`` makes sections and steps of what happens, ``attaching`` has torch report what happens,
``handle`` counts who watches what, ``everywhere`` watches whatever trains in this process.
"""
