"""Profiles by torch.profiler: of some steps to files, and of a slow rank next to a healthy one.

Nothing here starts by itself, and torch is imported only where a profile begins.
"""
