"""A real distributed training in which one rank becomes slow, and a collector that is not told.

    python examples/demo/run.py            about a minute, on a CPU, offline
    python examples/demo/run.py --keep     the live page stays until Ctrl-C

Exit code 0 if the collector names the right rank and section, 1 if not, 2 if something failed.
"""

import argparse
import contextlib
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from advice import ADVICE, OTHER
from processes import RANKS, Collector, Training
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from otel_straggler.cli.top import View, fetch_report
from otel_straggler.errors import StragglerError, UnavailableError

RUN = "demo"
WINDOW_STEPS = 20
NEWEST = 3
PATIENCE_S = 15
LONGEST_S = 300
INTRODUCTION = """
Four ranks train a network for {steps} steps. Half-way, one of them becomes slow.
The collector is told neither which one nor where.
"""
LIVE_PAGE = """Watch it on the live page, while it trains:

    [bold]{url}/[/bold]
"""
SECTIONS = ("data_loading", "forward")


class Watch:
    """Looks at the collector's report again and again, and keeps every window it sees."""

    def __init__(self, collector: Collector) -> None:
        self._url = f"{collector.url}/v1/report"
        self._answered_at = time.monotonic()
        self.report = None
        self.windows: list[dict] = []

    def look(self) -> dict | None:
        """The newest window, if it is one not seen before."""
        try:
            self.report = fetch_report(self._url)
            self._answered_at = time.monotonic()
        except UnavailableError:
            if time.monotonic() - self._answered_at > PATIENCE_S:
                raise
            return None
        windows = self.report["runs"].get(RUN, {}).get("windows", [])
        if not windows or windows[-1] in self.windows:
            return None
        self.windows.append(windows[-1])
        return windows[-1]

    def verdict(self) -> dict | None:
        """Who loses most over the newest windows, if a score lists it too."""
        newest = self.windows[-NEWEST:]
        listed = {(s["rank"], s["section"]) for w in newest for s in w["stragglers"]}
        found = [w["largest_excess"] for w in newest if w["largest_excess"]]
        found = [e for e in found if (e["rank"], e["section"]) in listed]
        return max(found, key=lambda e: e["excess_s"], default=None)


def main() -> int:
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(stderr=options.json, quiet=options.quiet or options.json, highlight=False)
    began = time.monotonic()
    console.print(INTRODUCTION.format(steps=options.steps))
    try:
        with running(options) as (collector, training):
            console.print(LIVE_PAGE.format(url=collector.url))
            watch = Watch(collector)
            show = show_live if console.is_terminal and not console.quiet else show_lines
            show(watch, training, console, options.steps)
            is_right = conclude(options, watch, time.monotonic() - began)
            if options.keep:
                keep_running(collector, console)
            elif console.is_terminal and not console.quiet and sys.stdin.isatty():
                keep_until_enter(collector, console)
    except KeyboardInterrupt:
        return 130
    except (StragglerError, RuntimeError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    return 0 if is_right else 1


@contextlib.contextmanager
def running(options: argparse.Namespace) -> Iterator[tuple[Collector, Training]]:
    """Both started; both ended, whatever happens."""
    with tempfile.TemporaryDirectory(prefix="straggler-demo-") as folder:
        collector = Collector(f"--window-steps={WINDOW_STEPS}")
        training = None
        try:
            training = Training(
                collector.endpoint, RUN, Path(folder, "train.log"),
                "--steps", options.steps, "--seed", options.seed,
                "--slow-rank", options.slow_rank, "--slow-section", options.slow_section,
            )  # fmt: skip
            yield collector, training
        finally:
            if training is not None:
                training.close()
            collector.close()


def conclude(options: argparse.Namespace, watch: Watch, seconds: float) -> bool:
    """Say what was found; whether it is what was planted."""
    found = watch.verdict()
    planted = {"rank": options.slow_rank, "section": options.slow_section}
    is_right = found is not None and all(found[key] == planted[key] for key in planted)
    if options.json:
        result = {"right": is_right, "planted": planted, "found": found, "seconds": seconds,
                  "windows": len(watch.windows)}  # fmt: skip
        print(json.dumps(result), flush=True)
    elif is_right or not options.quiet:
        say_verdict(Console(highlight=False), found, planted, is_right, seconds)
    return is_right


def keep_running(collector: Collector, console: Console) -> None:
    """Until Ctrl-C, for people who look at the page; training has ended."""
    with contextlib.suppress(KeyboardInterrupt):  # from the moment in which it is told
        console.print(f"\n{collector.url}/ stays until Ctrl-C.")
        threading.Event().wait()


def keep_until_enter(collector: Collector, console: Console) -> None:
    """Else the page would go in the moment in which it has something to show."""
    with contextlib.suppress(KeyboardInterrupt, EOFError):
        console.print(f"\nThe page stays for you to look at: {collector.url}/\nEnter ends it.")
        input()


def show_live(watch: Watch, training: Training, console: Console, steps: int) -> None:
    """A table that changes in place."""
    with Live(Text("starting four ranks ..."), console=console, auto_refresh=False) as live:
        for _ in looks(watch, training, steps):
            if watch.windows:
                line = training.last_line  # none in the first steps
                told = Text(f"\ntraining: {line}" if line else "", style="dim")
                view = View(watch.report, RUN, "the collector")
                live.update(Group(view, told), refresh=True)


def show_lines(watch: Watch, training: Training, console: Console, steps: int) -> None:
    """A plain line for each window."""
    for window in looks(watch, training, steps):
        if window is None:
            continue
        slow = [
            f"rank {s['rank']}: {s['section']} takes {1 / s['score']:.1f}x the fastest rank"
            for s in window["stragglers"]
            if s["kind_of_score"] == "section_relative"
        ]
        told = f"steps {window['first_step']:3d} to {window['last_step']:3d}   "
        console.print(told + (", ".join(slow) or "all alike"))


def looks(watch: Watch, training: Training, steps: int):
    """Windows as they close, None in between, until the last step is scored."""
    ends_at = time.monotonic() + LONGEST_S
    scored_by = None
    while time.monotonic() < ends_at:
        if training.exit_code:
            msg = f"training failed with exit code {training.exit_code}:\n{training.log[-4000:]}"
            raise RuntimeError(msg)
        if training.exit_code == 0 and scored_by is None:
            scored_by = time.monotonic() + 15
        window = watch.look()
        yield window
        is_last = bool(watch.windows) and watch.windows[-1]["last_step"] == steps - 1
        if scored_by is not None and (is_last or time.monotonic() > scored_by):
            return
        if window is None:
            time.sleep(0.5)
    msg = f"not done after {LONGEST_S} s:\n{training.log[-4000:]}"
    raise RuntimeError(msg)


def say_verdict(console, found, planted, is_right, seconds) -> None:
    """The end of the story."""
    text = Text()
    if found is None:
        text.append("Nothing found.\n", style="bold red")
    else:
        peers, own, lost = (1e3 * found[key] for key in ("role_median_s", "own_s", "excess_s"))
        text.append(f"Rank {found['rank']} on {found['node']} was slow in {found['section']}.\n",
                    style="bold")  # fmt: skip
        text.append(f"It needed {own:.0f} ms a step where its peers needed {peers:.0f} ms: all "
                    f"{RANKS} ranks lost {lost / 1e3:.3f} s in every step.\n")  # fmt: skip
        text.append("\nWhat to try next\n", style="bold")
        for hint in ADVICE.get(found["section"], OTHER):
            text.append(f"  - {hint}\n")
    told = f"\nPlanted was rank {planted['rank']} in {planted['section']}: "
    text.append(
        told + ("found." if is_right else "NOT found."), style="green" if is_right else "red"
    )
    text.append(f"   {seconds:.0f} s, start to end.", style="dim")
    console.print(Panel(text, title="Verdict", title_align="left", padding=(1, 2)))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ranks = [*map(str, range(RANKS)), "random"]
    parser.add_argument("--slow-rank", choices=ranks, default="random")
    parser.add_argument("--slow-section", choices=[*SECTIONS, "random"], default="random")
    parser.add_argument("--steps", type=int, default=240, help="at least 80 (default: 240)")
    parser.add_argument("--seed", type=int, help="repeats the random choices")
    parser.add_argument("--quiet", action="store_true", help="print nothing but the verdict")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON, no more")
    parser.add_argument("--keep", action="store_true", help="keep the live page until Ctrl-C")
    options = parser.parse_args()
    if options.steps < 4 * WINDOW_STEPS:
        parser.error(f"--steps: got {options.steps}; expected at least {4 * WINDOW_STEPS}")
    options.seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    chosen = random.Random(options.seed)
    rank, section = chosen.randrange(RANKS), chosen.choice(SECTIONS)
    options.slow_rank = rank if options.slow_rank == "random" else int(options.slow_rank)
    if options.slow_section == "random":
        options.slow_section = section
    return options


if __name__ == "__main__":
    sys.exit(main())
