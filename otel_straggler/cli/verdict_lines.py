"""Verdicts as text, costliest first, and what the run loses.

Like ``report_table`` this reads the JSON report, so that ``score`` and ``top`` show the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from rich.text import Text

from otel_straggler.cli.liveness_lines import is_over, text_of
from otel_straggler.cli.text import Json, printable, rank_key, rank_ranges
from otel_straggler.detect.verdicts.pipeline import WORST_WORKERS
from otel_straggler.model.causes import CAUSES, cause_text, next_action
from otel_straggler.model.hidden_waiting import HOW_TO_SEE, hidden_text
from otel_straggler.model.verdict import CALLED_SLOW, hours_text
from otel_straggler.semconv import LISTED_KINDS

MAX_VERDICTS = 10
MAX_RECOVERED = 5
MANY_CHANGES = 5
"""With more changes than these, the newest are listed one by one."""
NEWEST_CHANGES = 8
_LONGEST_SENTENCE = 600
_LONGEST_NAME = 60
_STYLES = {"confirmed": "bold red", "flapping": "bold red", "suspect": "dim"}
_SILENCED = {"dismiss": ", dismissed", "mute": ", muted"}
_SLOW_RUN = 1.1
_WORTH_A_WORD = 0.5
"""Minimum share of the loss for which its location is shown."""


def verdict_lines(run: Json, maximum: int = MAX_VERDICTS) -> Iterator[Text]:
    """Slow, suspected and recovered subjects; costliest first."""
    current = current_verdicts(run)
    standing = [verdict for verdict in current if verdict["state"] in _STYLES]
    silenced = {d["subject_id"]: d["action"] for d in run.get("decisions", ()) if d["is_in_force"]}
    for verdict in standing[:maximum]:
        text = _SILENCED.get(silenced.get(verdict["subject_id"], ""), "")
        yield _line(run, verdict, text)
    if len(standing) > maximum:
        yield Text(f"and {_count(standing[maximum:])} that lose less", style="dim")
    recovered = [verdict for verdict in current if verdict["state"] == "recovered"]
    if recovered:
        yield Text(f"recovered: {_names(recovered)}", style="green")


def current_verdicts(run: Json) -> list[Json]:
    """The newest verdict of every subject: slow ones first, then by loss."""
    newest = {verdict["subject_id"]: verdict for verdict in run.get("verdicts", ())}
    order = {state: index for index, state in enumerate(("confirmed", "flapping", "suspect"))}

    def key(verdict: Json) -> tuple[int, float]:
        index = max(order.get(verdict["state"], 3), 1)  # flapping ones are among the confirmed
        return index, -(verdict["gpu_seconds_lost_per_hour"] or 0.0)

    return sorted(newest.values(), key=key)


def run_line(run: Json) -> Iterator[Text]:
    """What the run loses, and the detection limit; empty if unknown."""
    reported = run["run"]
    lost = reported["slowdown"] or 0.0
    parts = [*_loss(run, reported), *_resolvable(run, reported)]
    if parts:
        yield Text(", ".join(parts), style="bold" if lost >= _SLOW_RUN else "")
    if hides_waiting(run):
        text = hidden_text(
            printable(reported.get("waits_inside") or "", _LONGEST_NAME),
            is_unseen=bool(reported.get("waits_unseen")),
            is_over=is_over(run, reported["group"]),
        )
        called = any(verdict["state"] in CALLED_SLOW for verdict in current_verdicts(run))
        which = "another slow rank" if called else "a slow rank"
        yield Text(f"{which} might not show: {text}. To see it, {HOW_TO_SEE}", style="yellow")


def hides_waiting(run: Json) -> bool:
    """Whether a slow rank may look like all others. Older reports do not say it."""
    reported = run["run"]
    return bool(reported.get("waits_inside") or reported.get("waits_unseen"))


def history_lines(run: Json) -> Iterator[Text]:
    """The newest changes of state if there are many; oldest of them first."""
    changes: Sequence[Json] = run.get("verdicts", ())
    if len(changes) <= MANY_CHANGES:
        return
    newest = changes[-NEWEST_CHANGES:]
    yield Text(f"{len(changes):,} changes of state, the newest {len(newest)}:", style="dim")
    for change in newest:
        yield Text(
            f"  {step_of(change):>12}  {change['state']:<9}  {_reported(change)}", style="dim"
        )


def cause_of(reported: Json) -> str:
    """The name of a cause.

    >>> cause_of({"cause": "stage_imbalance"}), cause_of({"cause": "news"})
    ('stage imbalance', 'news')
    """
    if reported["cause"] not in CAUSES:
        return printable(str(reported["cause"]), _LONGEST_NAME)
    return cause_text(reported["cause"], on_gpu=bool(reported.get("on_gpu")))


def action_of(verdict: Json) -> str:
    """The next action; empty if unknown."""
    if verdict["cause"] not in CAUSES:
        return ""
    return next_action(verdict["cause"], on_gpu=bool(verdict.get("on_gpu")))


def subject(verdict: Json) -> str:
    if verdict["scope"] == "rank":
        where = f" on {verdict['node']}" if verdict["node"] else ""
        return printable(f"rank {rank_key(verdict)}{where}", _LONGEST_NAME)
    name = {"host": verdict["node"], "role": verdict["role"]}.get(verdict["scope"])
    return printable(f"{verdict['scope']} {name}" if name else "the run", _LONGEST_NAME)


# --- one verdict -------------------------------------------------------------------------------


def _line(run: Json, verdict: Json, silenced: str) -> Text:
    state = verdict["state"] + silenced + (", pages" if verdict["pages"] else "")
    sentence = printable(text_of(run, verdict), _LONGEST_SENTENCE) or f"{_reported(verdict)}."
    action = action_of(verdict)
    do = f" Do: {action}." if action and verdict["state"] != "suspect" else ""
    return Text(f"{state}: {sentence}{do}", style=_STYLES[verdict["state"]])


def _reported(verdict: Json) -> str:
    section = printable(verdict["section"] or "whole step", _LONGEST_NAME)
    slowdown = verdict["slowdown"]
    how = f" {slowdown:.2f}x" if slowdown is not None else ""
    return f"{subject(verdict)}: {section}{how}, {cause_of(verdict)}"


def step_of(change: Json) -> str:
    return "" if change["at_step"] is None else f"step {change['at_step']:,}"


def _names(verdicts: Sequence[Json]) -> str:
    names = ", ".join(subject(verdict) for verdict in verdicts[:MAX_RECOVERED])
    more = len(verdicts) - MAX_RECOVERED
    return f"{names} and {more:,} more" if more > 0 else names


def _count(verdicts: Sequence[Json]) -> str:
    """``2 confirmed and 31 suspects``."""
    suspects = sum(verdict["state"] == "suspect" for verdict in verdicts)
    called = len(verdicts) - suspects
    text = [f"{called:,} confirmed"] * bool(called) + [f"{suspects:,} suspect"] * bool(suspects)
    return " and ".join(text)


# --- the run -----------------------------------------------------------------------------------


def _loss(run: Json, reported: Json) -> Iterator[str]:
    has_ended = is_over(run, reported["group"])
    if reported["slowdown"] is not None:
        why = f": {_cause_of_run(run, reported)}" if reported["cause"] else ""
        takes = "took" if has_ended else "takes"
        yield f"the run {takes} {reported['slowdown']:.2f}x as long as it could{why}"
        for key, index in (("m_w", _worst_workers(reported)), ("m_s", "the last stage")):
            part = reported[key]
            if part is not None and part >= _WORTH_A_WORD:
                yield f"{100 * min(part, 1.0):.0f} % of that by {index}"
    if reported["gpu_seconds_lost"]:
        so_far = "in all" if has_ended else "so far"
        of_what = hours_text(on_gpu=bool(reported.get("on_gpu")))
        yield f"{reported['gpu_seconds_lost'] / 3600:.3g} {of_what} lost {so_far}"


def _worst_workers(reported: Json) -> str:
    """3 % of the workers, at least one."""
    count = round(WORST_WORKERS * len(reported["heat"]))
    return f"the {count} worst workers" if count > 1 else "the worst worker"


def _cause_of_run(run: Json, reported: Json) -> str:
    """The cause as named by the verdict that gave it to the run."""
    current = current_verdicts(run)
    same = [
        v for v in current if (v["cause"], v["group"]) == (reported["cause"], reported["group"])
    ]
    return cause_of(same[0] if same else reported)


def _resolvable(run: Json, reported: Json) -> Iterator[str]:
    if reported["resolvable_slowdown"] is not None:
        percent = 100 * (reported["resolvable_slowdown"] - 1)
        could = "could" if is_over(run, reported["group"]) else "can"
        yield f"smallest slowdown that {could} be shown {percent:.2g} %"


_FASTEST = 0.999
_MAX_WAIT = 0.5
_NAME = 48


def without_victims(run: Json, window: Json) -> tuple[dict[str, Any], list[Text]]:
    """The window without victims of slow ranks, and a line for each section that has some."""
    called = called_ranks(run, window)
    waited_in = {
        name: waiting
        for name, kind in window["sections"].items()
        if called and kind in LISTED_KINDS and (waiting := _waiting(window, name, called))
    }
    if not waited_in:
        return dict(window), []
    kept = [
        one
        for one in window["stragglers"]
        if rank_key(one) not in waited_in.get(one["section"], ())
    ]
    has_ended = is_over(run, window["group"])
    lines = [
        _victims_line(window, name, keys, called, has_ended=has_ended)
        for name, keys in waited_in.items()
    ]
    return {**window, "stragglers": kept}, lines


def named_ranks(run: Json, window: Json) -> frozenset[str]:
    """Keys of the ranks that lines about the run name: of verdicts, suspicions too, and of those
    for whom a hang waits."""
    prefix = f"{window['group']}/" if window["group"] else ""
    hung = {
        f"{prefix}{rank}"
        for world in run.get("liveness", ())
        if world["group"] == window["group"]
        for rank in world.get("culprits", ())
    }
    return called_ranks(run, window, _STYLES) | (hung & set(window["ranks"]))


def called_ranks(run: Json, window: Json, states: Collection[str] = CALLED_SLOW) -> frozenset[str]:
    """Keys of the ranks that a verdict in one of these states names, directly or by node."""
    keys: set[str] = set()
    for verdict in current_verdicts(run):
        if verdict["state"] in states and verdict["group"] == window["group"]:
            if verdict["scope"] == "rank":
                keys.add(rank_key(verdict))
            elif verdict["scope"] == "host":
                ranks = window["ranks"].items()
                keys.update(key for key, rank in ranks if rank["node"] == verdict["node"])
    return frozenset(keys & set(window["ranks"]))


def no_wait_line(window: Json) -> Iterator[Text]:
    """A hint that scores cannot show a slow rank where no section is of kind wait."""
    has_gpu = any(score is not None for score in window["gpu_relative_scores"].values())
    kinds = window["sections"].values()
    if len(window["ranks"]) > 1 and "compute" in kinds and "wait" not in kinds and not has_gpu:
        yield Text(
            "no section of kind wait: a rank that is slow where all wait for each other (with DDP: "
            "in backward) looks like the others",
            style="dim",
        )


def _waiting(window: Json, name: str, called: frozenset[str]) -> frozenset[str]:
    """Ranks that wait in a section: most ranks, if a slow one is the fastest."""
    scores = {k: s for k, s in window["section_relative_scores"][name].items() if s is not None}
    fastest = {key for key, score in scores.items() if score > _FASTEST}
    others = scores.keys() - called
    listed = {rank_key(one) for one in window["stragglers"] if one["section"] == name} & others
    if not fastest or not fastest <= called or len(listed) <= _MAX_WAIT * len(others):
        return frozenset()
    return frozenset(listed)


def _victims_line(
    window: Json, name: str, waiting: frozenset[str], called: frozenset[str], *, has_ended: bool
) -> Text:
    scores = window["section_relative_scores"][name]
    fastest = [key for key in called if (scores.get(key) or 0.0) > _FASTEST]
    plural = len(waiting) != 1
    take = "took" if has_ended else "take" if plural else "takes"
    may_be = "may have been waiting" if has_ended else "may be waiting"
    return Text(
        f"{_ranks(window, waiting)} {take} longer than "
        f"{_ranks(window, frozenset(fastest))} in {printable(name, _NAME)}: "
        f"{'they' if plural else 'it'} {may_be} there for the slow rank"
    )


def _ranks(window: Json, keys: frozenset[str]) -> str:
    group = f"{printable(window['group'], _NAME)}/" if window["group"] else ""
    numbers = rank_ranges(int(key.rpartition("/")[2]) for key in keys)
    return f"rank{'s' * (len(keys) != 1)} {group}{numbers}"
