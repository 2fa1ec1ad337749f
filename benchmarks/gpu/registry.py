"""Which experiments there are, in the order of their value where time is short."""

from __future__ import annotations

from importlib import import_module

from benchmarks.gpu.experiment import Experiment

STANDARD = "benchmarks.gpu.registry"
MODULES = (
    "e0_load",
    "e16_variants",
    "e4_attribution",
    "e3_steps",
    "e17_sampling",
    "e14_product",
    "e7_kineto",
    "e6_residue",
    "e19_checkpoints",
    "e20_graphs",
    "e18_slow_rank",
    "e15_ddp",
    "e13_delay",
    "e2_order",
    "e10_events",
    "e5_costs",
    "e8_graphs",
    "e11_detection",
    "e1_launches",
)
"""Down to E6, with budgets of 330 s together, what the rules of acceptance.py look at."""
SOAK = "e9_soak"


def experiments(registry: str = STANDARD) -> dict[str, Experiment]:
    """By key, with the soak. Another registry is a module with ``EXPERIMENTS``."""
    if registry != STANDARD:
        scripted = import_module(registry).EXPERIMENTS
        return {experiment.key: experiment for experiment in scripted}
    modules = [import_module(f"benchmarks.gpu.{name}") for name in (*MODULES, SOAK)]
    return {module.EXPERIMENT.key: module.EXPERIMENT for module in modules}
