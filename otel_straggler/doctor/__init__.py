"""Why does nothing arrive? Checks of this machine, this environment and the way to the collector.

Each subject has a file; a check is a function that returns findings. Nothing is changed: no store
is written, no library of CUDA loaded, and what is sent is an empty request.
"""
