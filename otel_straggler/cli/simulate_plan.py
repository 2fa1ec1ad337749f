"""Options of ``otel-straggler simulate`` for runs of any layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from otel_straggler.errors import ConfigError, describe
from otel_straggler.simulate.faults import Fault
from otel_straggler.simulate.plan import GPU_TIMINGS, PRESETS, TIMINGS, Layout, RunPlan

Command = TypeVar("Command", bound=Callable[..., Any])

STEPS_AFTER_FAULT: Final = 200
DEFAULT_STEPS: Final = 400
DEFAULT_RANKS: Final = 64
SCENARIO_ONLY: Final = ("scenario", "slow_rank", "section", "slowdown", "onset_step")
_SHARED: Final = ("ranks_per_node", "noise", "seed", "run_id")

_OPTIONS: Final[tuple[tuple[str, Any, str], ...]] = (
    ("--timing", click.Choice(TIMINGS), "What the times hold: work alone, waiting too, launches."),
    ("--gpu-timing", click.Choice(GPU_TIMINGS), "What GPUs tell: nothing, events, kernels."),
    ("--microbatches", int, "Runs of forward and backward in a step."),
    ("--step-s", float, "Usual seconds of a step."),
    ("--stage-factor", float, "Work of the last pipeline stage / of the others."),
    ("--sequence-cv", float, "Spread of the work of microbatches, from lengths of sequences."),
    ("--expert-cv", float, "Spread of the load of experts; the hot one changes."),
    ("--gc-every-steps", int, "Steps between garbage collections of a rank."),
    ("--gc-s", float, "Usual seconds of a garbage collection."),
    ("--checkpoint-every", int, "Steps between checkpoints."),
    ("--eval-every", int, "Steps between evaluations."),
    ("--warm-up-steps", int, "Slow steps after a start."),
    ("--diurnal", float, "Amplitude of the change of speed over a day."),
    ("--common-mode", float, "Spread of what all ranks share in a step."),
    ("--rank-offset", float, "Spread of lasting differences between ranks."),
    ("--spikes", float, "Part of the steps of a rank with a section that takes far longer."),
    ("--missing-reports", float, "Part of the steps of a rank that never arrive."),
    ("--clock-offset-s", float, "Spread of the clocks of the nodes."),
    ("--first-step", int, "Number of the first step."),
    ("--restart-at-step", int, "A new attempt goes on from the last checkpoint."),
)
_FLAGS: Final = (
    ("--report-topology/--no-report-topology", "Whether ranks tell their place in the layout."),
    ("--report-tokens", "Forward tells its tokens."),
    ("--report-hardware", "Ranks name their GPUs; with --speed their sensors are sent, too."),
    ("--renumbers", "After the restart the nodes have other ranks."),
)
_NAMES: Final = ("layout", "faults", *(name.lstrip("-").replace("-", "_") for name, *_ in _OPTIONS))
_FLAG_NAMES: Final = ("report_topology", "report_tokens", "report_hardware", "renumbers")


def generator_options(command: Command) -> Command:
    """The options of a generated run; None where not given."""
    for flags, meaning in reversed(_FLAGS):
        command = click.option(flags, is_flag=True, default=None, help=meaning)(command)
    for name, kind, meaning in reversed(_OPTIONS):
        command = click.option(name, type=kind, help=meaning)(command)
    faults = click.option(
        "--fault",
        "faults",
        multiple=True,
        metavar="KIND:SIZE@WHO:stepN[-M]",
        help="What goes wrong, such as compute:1.10@rank37:step500; may be repeated.",
    )
    layout = click.option(
        "--layout", metavar="tp8,pp4,dp32", help="Parallel dimensions; tp, cp, ep, pp, dp."
    )
    return layout(faults(command))


def is_generated(given: Mapping[str, Any]) -> bool:
    """Whether an option asks for a generated run rather than a named scenario."""
    return any(given[name] not in (None, ()) for name in (*_NAMES, *_FLAG_NAMES))


def build_plan(given: Mapping[str, Any], start_ns: int) -> RunPlan:
    """The plan of the given options.

    Raises:
        ConfigError: an option is wrong, or belongs to named scenarios.
    """
    for name in SCENARIO_ONLY:
        if given[name] is not None:
            _refuse_scenario_option(name, given[name])
    faults = tuple(map(Fault.parse, given["faults"]))
    reported = {
        name: given[name]
        for name in (*_NAMES, *_FLAG_NAMES, *_SHARED)
        if name not in ("layout", "faults", "noise") and given[name] is not None
    }
    if given["noise"] is not None:
        reported["noise"] = read_noise(given["noise"])
    first = given["first_step"] or 0
    return RunPlan(
        layout=_layout(given["layout"], given["ranks"]),
        steps=_steps(faults, first) if given["steps"] is None else given["steps"],
        faults=faults,
        start_ns=start_ns,
        **reported,
    )


def read_noise(text: str) -> str | float:
    """A preset's name, or a number.

    >>> read_noise("st"), read_noise("0.02")
    ('ST', 0.02)
    """
    if text.upper() in PRESETS:
        return text.upper()
    try:
        return float(text)
    except ValueError:
        expected = "a number, or one of " + ", ".join(PRESETS)
        message = describe(
            where="simulated run, noise", value=text, expected=expected, remedy="Change --noise."
        )
        raise ConfigError(message) from None


def _layout(text: str | None, ranks: int | None) -> Layout:
    if text is not None:
        return Layout.parse(text, ranks)
    return Layout(dp=DEFAULT_RANKS if ranks is None else ranks)


def _steps(faults: tuple[Fault, ...], first: int) -> int:
    """Long enough to show the effect of every fault."""
    ends = (fault.end_step or fault.onset_step for fault in faults)
    return max(DEFAULT_STEPS, *(end - first + STEPS_AFTER_FAULT for end in ends), 1)


def _refuse_scenario_option(name: str, value: object) -> None:
    option = f"--{name.replace('_', '-')}"
    raise ConfigError.of(
        option,
        value,
        "nothing, beside options of a generated run",
        "It belongs to the named scenarios; say what is slow with --fault.",
    )
