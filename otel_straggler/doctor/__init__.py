"""Checks of this machine, its environment and the way to the collector.

A check is a function that returns findings. Nothing is changed, no CUDA library is loaded, and only
empty requests are sent.
"""
