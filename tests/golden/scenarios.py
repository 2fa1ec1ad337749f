"""The runs that are pinned: arguments of ``otel-straggler simulate``, and what is changed in what
it sends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

START_S = 1_790_000_000.0
"""When all of them begin."""
_SMALL = ("--microbatches", "1", "--step-s", "0.5")
_OURS = "straggler."

Message = Any

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "healthy": ("--layout", "dp8", "--steps", "120"),
    "slow_gpu": ("--layout", "dp8", "--steps", "120", "--fault", "compute:1.4@rank5:step40"),
    "slow_data": ("--layout", "dp8", "--steps", "120", "--fault", "data:0.2@rank2:step40"),
    "late": ("--layout", "dp8", "--steps", "120", "--fault", "late:0.2@rank6:step40"),
    "slow_host": (
        "--layout", "dp16", "--ranks-per-node", "4", "--steps", "120",
        "--fault", "compute:1.3@host2:step40",
    ),
    "slow_link": (
        "--layout", "dp16", "--ranks-per-node", "4", "--steps", "120",
        "--fault", "link:3@host1:step40",
    ),
    "recovered": ("--layout", "dp8", "--steps", "120", "--fault", "compute:1.4@rank1:step30-60"),
    "intermittent": ("--layout", "dp8", "--steps", "120", "--fault", "flap:1.5@rank3:step40"),
    "imbalance": (
        "--layout", "pp4,dp4", "--steps", "80", "--step-s", "0.2", "--stage-factor", "1.4",
        "--sequence-cv", "0.2", "--report-tokens",
    ),
    "experts": ("--layout", "ep4,dp4", "--steps", "100", "--expert-cv", "0.3"),
    "gpu_times": (
        "--layout", "tp2,dp4", "--steps", "120", "--timing", "asynchronous", "--gpu-timing",
        "cupti", "--report-hardware", "--fault", "compute:1.4@rank5:step40",
    ),
    "restarted": (
        "--layout", "dp8", "--steps", "100", "--restart-at-step", "60", "--checkpoint-every", "20",
        "--renumbers", "--fault", "compute:1.4@host0:step30", "--ranks-per-node", "2",
    ),
    "stuck": (
        "--layout", "dp8", "--steps", "120", "--fault", "hang_never_joined@rank3:step40",
        "--hold-s", "90",
    ),
    "lost": (
        "--layout", "dp8", "--steps", "120", "--fault", "crash@rank6:step40", "--hold-s", "90",
    ),
    "actors": ("--layout", "dp4", "--steps", "120", "--fault", "compute:1.4@rank1:step40"),
    "learners": ("--layout", "dp4", "--steps", "120", "--seed", "1"),
    "plain_spans": ("--scenario", "one_slow_rank", "--ranks", "4", "--steps", "400",
                    "--slow-rank", "2", "--onset-step", "200"),
}  # fmt: skip
"""Arguments by the name of a record."""


def arguments_of(name: str) -> list[str]:
    run = () if "--scenario" in ARGUMENTS[name] else _SMALL
    return ["simulate", *run, *ARGUMENTS[name], "--run-id", run_of(name), "--speed", "1"]


def run_of(name: str) -> str:
    """Two records are groups of one run."""
    return "groups" if name in ("actors", "learners") else name


RUNS = tuple(dict.fromkeys(map(run_of, ARGUMENTS)))


def _group(name: str) -> Callable[[Message], None]:
    def change(resource_part: Message) -> None:
        pair = resource_part.resource.attributes.add(key="training.group")
        pair.value.string_value = name

    return change


def _foreign(resource_spans: Message) -> None:
    """As another instrumentation would say it: no section, no sequence, no scope of ours."""
    for scope_spans in resource_spans.scope_spans:
        scope_spans.scope.name = "trainer"
        for span in scope_spans.spans:
            kept = [pair for pair in span.attributes if not pair.key.startswith(_OURS)]
            del span.attributes[:]
            span.attributes.extend(kept)


CHANGES: dict[str, Callable[[Message], None]] = {
    "actors": _group("actors"),
    "learners": _group("learners"),
}
CHANGES_OF_SPANS: dict[str, Callable[[Message], None]] = {"plain_spans": _foreign}


OFFLINE = ("healthy", "slow_gpu", "slow_host", "imbalance", "gpu_times", "restarted", "lost")
"""Records that are scored from a file, too."""


def offline_arguments(name: str, path: str) -> list[str]:
    arguments = arguments_of(name)
    del arguments[arguments.index("--speed") :]
    for option in ("--hold-s", "--report-hardware"):
        if option in arguments:
            at = arguments.index(option)
            del arguments[at : at + (2 if option == "--hold-s" else 1)]
    return [*arguments, "--format", "otlp-proto", "-o", path]
