"""Which experiments there are, in the order of their value where time is short."""

from __future__ import annotations

from importlib import import_module

from benchmarks.gpu.experiment import Experiment

STANDARD = "benchmarks.gpu.registry"
MODULES = (
    "e0_load",
    "e2_order",
    "e4_attribution",
    "e13_delay",
    "e3_steps",
    "e7_kineto",
    "e14_product",
    "e15_ddp",
    "e6_residue",
    "e5_costs",
    "e1_launches",
    "e11_detection",
    "e10_events",
    "e8_graphs",
)
SOAK = "e9_soak"


def experiments(registry: str = STANDARD) -> dict[str, Experiment]:
    """By key, with the soak. Another registry is a module with ``EXPERIMENTS``."""
    if registry != STANDARD:
        scripted = import_module(registry).EXPERIMENTS
        return {experiment.key: experiment for experiment in scripted}
    modules = [import_module(f"benchmarks.gpu.{name}") for name in (*MODULES, SOAK)]
    return {module.EXPERIMENT.key: module.EXPERIMENT for module in modules}
