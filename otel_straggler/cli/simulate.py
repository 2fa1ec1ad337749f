"""``otel-straggler simulate``: telemetry of a run whose slow rank is known."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import click

from otel_straggler.cli.sending import Poster
from otel_straggler.errors import ConfigError, InputError
from otel_straggler.model.observation import ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.simulate.auxiliary_metrics import Sensors
from otel_straggler.simulate.faults import HANG_KINDS, Fault
from otel_straggler.simulate.labels import Label
from otel_straggler.simulate.plan import GPU_TIMINGS, PRESETS, TIMINGS, Layout, RunPlan
from otel_straggler.simulate.replay import (
    Ending,
    Replay,
    StoppedClock,
    end_of_ns,
    seconds_before,
)
from otel_straggler.simulate.runs import generate
from otel_straggler.simulate.scenarios import NEW_YEAR_2026_NS, SCENARIOS, Plan, simulate
from otel_straggler.simulate.writers import (
    as_json_line,
    encode_requests,
    encode_requests_of,
    frame,
    write_csv,
)

_DEFAULT = Plan()
_STEPS_AFTER_FAULT: Final = 200
_DEFAULT_STEPS: Final = 400
_DEFAULT_RANKS: Final = 64
_Command = TypeVar("_Command", bound=Callable[..., Any])

_OF_ANY_RUN: Final = (
    ("--ranks", int, f"Ranks of the run.  [default: {_DEFAULT.ranks}]"),
    ("--steps", int, f"Optimizer steps.  [default: {_DEFAULT.steps}]"),
    (
        "--ranks-per-node",
        int,
        f"Ranks on a node.  [default: {_DEFAULT.ranks_per_node}; of a generated run 8]",
    ),
    ("--slow-rank", int, "Rank that is slow or missing.  [default: 5, or the last rank]"),
    ("--section", None, f"Where it is slow.  [default: {_DEFAULT.section}]"),
    ("--slowdown", float, f"Its time / the usual time.  [default: {_DEFAULT.slowdown}]"),
    ("--onset-step", int, "First slow step.  [default: 0]"),
    (
        "--noise",
        None,
        f"Noise of every time, or AR, ST or SE.  [default: {_DEFAULT.noise:g}; generated: ST]",
    ),
    ("--seed", int, "Of the random numbers.  [default: 0]"),
    ("--run-id", None, f"Name of the run.  [default: {_DEFAULT.run_id}]"),
)
_OF_GENERATED: Final = (
    ("--timing", click.Choice(TIMINGS), "Content of the times: work alone, waiting too, launches."),
    ("--gpu-timing", click.Choice(GPU_TIMINGS), "What GPUs report: nothing, events, kernels."),
    ("--gpu-sample-every", int, "Kernels are timed in one step of so many, the others by events."),
    ("--gpu-missing", float, "Share of the executions whose GPU times never come."),
    ("--microbatches", int, "Executions of forward and backward in a step."),
    ("--step-s", float, "Usual seconds of a step."),
    ("--outside-s", float, "Usual seconds of a step that no section covers, besides these."),
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
    ("--spikes", float, "Share of the steps of a rank with a section that takes far longer."),
    ("--missing-reports", float, "Share of the steps of a rank that never arrive."),
    ("--clock-offset-s", float, "Spread of the clocks of the nodes."),
    ("--first-step", int, "Number of the first step."),
    ("--restart-at-step", int, "A new attempt goes on from the last checkpoint."),
)
_FLAGS: Final = (
    (
        "--report-topology/--no-report-topology",
        "Whether ranks report their position in the layout.",
    ),
    ("--report-tokens", "Forward reports its tokens."),
    ("--report-hardware", "Ranks name their GPUs; with --speed their sensors are sent, too."),
    ("--report-collectives", "Ranks report what they wait in collectives."),
    ("--renumbers", "After the restart the nodes have other ranks."),
)
_SCENARIO_ONLY: Final = ("scenario", "slow_rank", "section", "slowdown", "onset_step")
_PLANNED: Final = (
    *(name.lstrip("-").replace("-", "_") for name, *_ in _OF_GENERATED),
    *("report_topology", "report_tokens", "report_hardware", "report_collectives", "renumbers"),
)


def _run_options(command: _Command) -> _Command:
    """The options that choose a run; None where not given."""
    options = [
        *(click.option(name, type=kind, help=meaning) for name, kind, meaning in _OF_ANY_RUN),
        click.option(
            "--layout", metavar="tp8,pp4,dp32", help="Parallel dimensions; tp, cp, ep, pp, dp."
        ),
        click.option(
            "--fault",
            "faults",
            multiple=True,
            metavar="KIND:SIZE@WHO:stepN[-M]",
            help="What goes wrong, such as compute:1.10@rank37:step500; may be repeated.",
        ),
        *(click.option(name, type=kind, help=meaning) for name, kind, meaning in _OF_GENERATED),
        *(click.option(name, is_flag=True, default=None, help=text) for name, text in _FLAGS),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.option(
    "--scenario",
    type=click.Choice(list(SCENARIOS)),
    help="A named run.  [default: one_slow_rank, unless --layout, --fault or the like is given]",
)
@_run_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "otlp-json", "otlp-proto"]),
    default="csv",
    show_default=True,
    help="otlp-* as the OpenTelemetry Collector's file exporter writes them.",
)
@click.option("-o", "--output", default="-", show_default=True, help="File to write; - is stdout.")
@click.option("--labels", metavar="FILE", help="Write what is wrong with a generated run as JSON.")
@click.option(
    "--send",
    metavar="[URL]",
    is_flag=False,
    flag_value="",
    help="Send it to this collector instead of writing, with the headers, certificates, protocol "
    "and compression that OTEL_STRAGGLER_* and OTEL_EXPORTER_OTLP_* set for a rank; without URL "
    "also to the address that these set. What it cannot take now is sent again.",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0.0),
    help="With --send: step by step with heartbeats; 1 = in real time, 0 = without a pause.",
)
@click.option(
    "--quick-until-step",
    type=click.IntRange(min=0),
    metavar="N",
    help="With --speed: steps before N are sent at once, as if the run had begun long ago.",
)
@click.option(
    "--hold-s",
    type=click.FloatRange(min=0.0),
    default=60.0,
    show_default=True,
    help="With --speed: how long a hung run goes on sending heartbeats.",
)
def command(
    form: str,
    output: str,
    labels: str | None,
    send: str | None,
    speed: float | None,
    quick_until_step: int | None,
    hold_s: float,
    **given: Any,
) -> None:
    """Write or send the telemetry of a run whose slow rank is known.

    otel-straggler simulate --ranks 8 --slow-rank 5 | otel-straggler score -

    otel-straggler simulate --layout tp8,pp4,dp32 --fault compute:1.10@rank37:step500 -o run.csv
    """
    _check_outputs(send, speed, labels, given)
    if quick_until_step is not None and speed is None:
        raise ConfigError.of(
            "--quick-until-step", quick_until_step, "--speed with it", "Add --speed 1."
        )
    chosen = _choose(given, NEW_YEAR_2026_NS if send is None else time.time_ns())
    if quick_until_step:
        began_s = time.time() - seconds_before(chosen.batches, quick_until_step)
        chosen = _choose(given, int(began_s * 1e9))
    if form == "csv" and send is None and chosen.is_restarted:
        raise ConfigError.of(
            "--format", form, "otlp-json or otlp-proto", "A CSV file has no attempts."
        )
    if labels is not None:
        truth = {"run_id": chosen.run_id, "labels": [label.as_json() for label in chosen.labels]}
        with _opened(labels, "--labels") as file:
            file.write(json.dumps(truth, indent=2).encode() + b"\n")
    if send is not None:
        with Poster(send) as poster:
            count = _send(chosen, poster, speed, quick_until_step or 0, hold_s)
        click.echo(f"{count} spans sent to {poster.address}, run {chosen.run_id}", err=True)
        return
    with _opened(output, "--output") as file:
        for piece in _pieces(chosen.batches, form):
            file.write(piece)


@dataclass(frozen=True)
class _Chosen:
    run_id: str
    batches: Iterable[ObservationBatch]
    labels: tuple[Label, ...] = ()
    is_restarted: bool = False
    sensors: Sensors | None = None

    def ending(self, hold_s: float) -> Ending | None:
        """How the run ends if it does not end well."""
        hangs = [x for x in self.labels if x.kind in HANG_KINDS and x.end_step is None]
        silent = [label.ranks_by_attempt[-1] for label in hangs if label.kind == "crash"]
        return Ending(silent=frozenset().union(*silent), hold_s=hold_s) if hangs else None


def _choose(given: dict[str, Any], start_ns: int) -> _Chosen:
    return _generated(given, start_ns) if _is_generated(given) else _scenario(given, start_ns)


def _is_generated(given: Mapping[str, Any]) -> bool:
    """Whether an option asks for a generated run rather than a named scenario."""
    return any(given[name] not in (None, ()) for name in ("layout", "faults", *_PLANNED))


def _check_outputs(
    send: str | None, speed: float | None, labels: str | None, given: dict[str, Any]
) -> None:
    if speed is not None and send is None:
        raise ConfigError.of("--speed", speed, "--send URL with it", "A file has no speed.")
    if labels is not None and not _is_generated(given):
        remedy = "Name what is slow with --fault."
        raise ConfigError.of("--labels", labels, "a generated run", remedy)
    if given.get("report_hardware") and speed is None:
        remedy = "Sensors go with heartbeats, which only --speed sends."
        expected = "--send URL --speed N with it"
        raise ConfigError.of("--report-hardware", "no --speed", expected, remedy)
    if send and not send.startswith(("http://", "https://")):
        expected = "a URL such as http://127.0.0.1:4318"
        raise click.BadParameter(f"got {send!r}; expected {expected}", param_hint="--send")


def _scenario(given: dict[str, Any], start_ns: int) -> _Chosen:
    names = ("ranks", "steps", "ranks_per_node", "section", "slowdown", "onset_step", "seed")
    numbers = {n: given[n] for n in (*names, "run_id", "slow_rank") if given[n] is not None}
    if given["noise"] is not None:
        noise = _read_noise(given["noise"])
        numbers["noise"] = PRESETS[noise] if isinstance(noise, str) else noise
    last = max(numbers.get("ranks", _DEFAULT.ranks) - 1, 0)
    plan = Plan(start_ns=start_ns, **{"slow_rank": min(_DEFAULT.slow_rank, last), **numbers})
    run = simulate(given["scenario"] or "one_slow_rank", plan)
    return _Chosen(plan.run_id, (run.batch,))


def _generated(given: dict[str, Any], start_ns: int) -> _Chosen:
    plan = _plan(given, start_ns)
    run = generate(plan)
    is_restarted = plan.restart_at_step is not None
    sensors = Sensors(run.labels, plan.seed) if plan.report_hardware else None
    return _Chosen(plan.run_id, run.batches(), run.labels, is_restarted, sensors)


def _plan(given: Mapping[str, Any], start_ns: int) -> RunPlan:
    for name in _SCENARIO_ONLY:
        if given[name] is not None:
            option = f"--{name.replace('_', '-')}"
            remedy = "It belongs to the named scenarios; name what is slow with --fault."
            expected = "nothing, with options of a generated run"
            raise ConfigError.of(option, given[name], expected, remedy)
    faults = tuple(map(Fault.parse, given["faults"]))
    names = (*_PLANNED, "ranks_per_node", "seed", "run_id")
    planned = {name: given[name] for name in names if given[name] is not None}
    if given["noise"] is not None:
        planned["noise"] = _read_noise(given["noise"])
    ranks, first = given["ranks"], given["first_step"] or 0
    ends = (fault.end_step or fault.onset_step for fault in faults)
    needed = max(_DEFAULT_STEPS, *(end - first + _STEPS_AFTER_FAULT for end in ends), 1)
    return RunPlan(
        layout=Layout.parse(given["layout"], ranks)
        if given["layout"] is not None
        else Layout(dp=_DEFAULT_RANKS if ranks is None else ranks),
        steps=needed if given["steps"] is None else given["steps"],
        faults=faults,
        start_ns=start_ns,
        **planned,
    )


def _read_noise(text: str) -> str | float:
    """A preset's name, or a number."""
    if text.upper() in PRESETS:
        return text.upper()
    try:
        return float(text)
    except ValueError:
        expected = "a number, or one of " + ", ".join(PRESETS)
        raise ConfigError.of("simulated run, noise", text, expected, "Change --noise.") from None


def _pieces(batches: Iterable[ObservationBatch], form: str) -> Iterator[bytes]:
    if form == "csv":
        yield from (text.encode() for text in write_csv(batches))
    elif form == "otlp-json":
        yield from (as_json_line(request).encode() for request in encode_requests_of(batches))
    else:
        yield from map(frame, encode_requests_of(batches))


@contextlib.contextmanager
def _opened(output: str, option: str) -> Iterator[BinaryIO]:
    if output == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with Path(output).open("wb") as file:
            yield file
    except OSError as error:
        expected, why = "a file that can be written", f"{error.strerror}."
        raise InputError.of(option, output, expected, why) from error


def _send(
    chosen: _Chosen, poster: Poster, speed: float | None, quick_until_step: int, hold_s: float
) -> int:
    if speed is None:
        return _send_at_once(chosen, poster, hold_s)
    replay = Replay(
        poster.post,
        speed=speed,
        ending=chosen.ending(hold_s),
        quick_until_step=quick_until_step,
        sensors=chosen.sensors,
    )
    return replay.run(chosen.batches)


def _send_at_once(chosen: _Chosen, poster: Poster, hold_s: float) -> int:
    """All rows, and where the run ends well its end: by the clock of its ranks, which is ahead."""
    count = end_ns = 0
    sources: tuple[Source, ...] = ()
    for batch in chosen.batches:
        for request in encode_requests(batch, first_span=count):
            poster.post("traces", request)
        count += len(batch)
        if len(batch):
            sources, end_ns = batch.sources, max(end_ns, end_of_ns(batch))
    if sources and chosen.ending(hold_s) is None:
        Replay(poster.post, speed=0.0, clock=StoppedClock(end_ns / 1e9)).end(sources)
    return count
