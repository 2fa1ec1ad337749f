"""A run view as text: the answer first, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from otel_straggler.cli.fitting_table import Column, FittingTable
from otel_straggler.cli.liveness_lines import earlier_line, lost_text, state_in_text
from otel_straggler.cli.profile_lines import profile_lines
from otel_straggler.cli.text import Json, clock, digits, duration, printable
from otel_straggler.model.rank_names import ranks_text
from otel_straggler.model.verdict import hours_text

MAX_RANKS = 10
MAX_LINES = 10
MAX_VERDICTS = 5
_SENTENCE = 1_000
_NAME = 40
_STYLES = {"good": "bold green", "watch": "bold yellow", "bad": "bold red", "ended": "bold"}
_HOUR_S = 3600.0
_OLD_S = 2.0
"""A history is written every few seconds: its view is older than now."""
_WORTH_A_LINE_S = 1e-6
_RANK_COLUMNS = (
    Column("rank", is_number=True),
    Column("host", drop_order=3),
    Column("role", drop_order=1),
    Column("state", drop_order=2),
    Column("own time", is_number=True),
    Column("slowest in", wraps=True),
)
_LEDGER_COLUMNS = (
    Column("section", wraps=True),
    Column("of the step", is_number=True),
    Column("typical", is_number=True, drop_order=2),
    Column("last of all", drop_order=1),
)


def report_lines(run_view: Json) -> Iterator[RenderableType]:
    yield _title(run_view)
    yield from _answer(run_view)
    yield from _figures(run_view)
    yield from _verdicts(run_view)
    yield from profile_lines(run_view.get("profiles", ()))
    yield from _heat(run_view["heat"])
    yield from _slowest(run_view)
    yield from _missing_gpu_scores(run_view["run"])
    yield from _ledger(run_view["ledger"])
    yield from _waits(run_view["waits"])
    yield from _states(run_view["ranks"])
    yield from _earlier_hangs(run_view["hangs"], _hours(run_view))
    yield from _alerts(run_view)


def _title(run_view: Json) -> Text:
    run = run_view["run"]
    job = f" ({printable(run['job'])})" if run["job"] and run["job"] != run["run_id"] else ""
    group = f", group {printable(run['group'])}" if run["group"] else ""
    attempt = f", attempt {run['attempt']}" if run["attempt"] else ""
    step = "" if run["step"] is None else f", step {run['step']:,}"
    ranks = f"{run['ranks_reporting']:,} of {run['world_size'] or 0:,} ranks"
    reported = (
        f"{job}: {state_in_text(run['state'])}, {ranks}{step}{attempt}{group}; {_moments(run_view)}"
    )
    return Text(f"run {printable(run['run_id'])}", style="bold").append(reported, style="not bold")


def _moments(run_view: Json) -> str:
    run = run_view["run"]
    if run["finished_at_s"] is not None:
        return f"{clock(run['began_at_s'])} to {clock(run['finished_at_s'])}"
    view = f"now {clock(run_view['now_s'])}"
    seen_at_s = run.get("seen_at_s", run_view["now_s"])  # older collectors do not report it
    awaited_since_s = run.get("awaited_since_s")
    if awaited_since_s is not None:
        restarted = f"not seen since the collector was restarted {clock(awaited_since_s)}"
        return f"since {clock(run['began_at_s'])}, as of {clock(seen_at_s)}, {restarted}"
    if run["is_live"] and run_view["now_s"] - seen_at_s > _OLD_S:
        view = f"as of {clock(seen_at_s)}"
    if not run["is_live"]:
        view = f"last seen {clock(run['received_at_s'])}"
    return f"since {clock(run['began_at_s'])}, {view}"


def _answer(run_view: Json) -> Iterator[Text]:
    answer = run_view["answer"]
    yield Text(printable(answer["headline"], _SENTENCE), style=_STYLES.get(answer["tone"], "bold"))
    sentence = printable(answer["sentence"] or "", _SENTENCE)
    if sentence and sentence.rstrip(".") != answer["headline"]:
        yield Text(sentence)
    facts = [*_since(answer), *_cause(answer), *_peers(answer), *_cost(answer, _hours(run_view))]
    if facts:
        yield Text(", ".join(facts))
    for advice in answer["advice"]:
        yield Text(f"do: {printable(advice, _SENTENCE)}")
    for command in answer["commands"]:
        yield Text(f"    {printable(command, _SENTENCE)}", style="dim")


def _since(answer: Json) -> Iterator[str]:
    parts = []
    if answer["since_step"] is not None:
        parts.append(f"step {answer['since_step']:,}")
    if answer["since_s"] is not None:
        parts.append(clock(answer["since_s"]))
    if parts:
        yield f"since {' at '.join(parts)}"


def _cause(answer: Json) -> Iterator[str]:
    if answer["cause_text"]:
        sure = answer["confidence"]
        how = f" (confidence {sure:.2f})" if sure is not None else ""
        yield f"cause {printable(answer['cause_text'])}{how}"


def _is_over(answer: Json) -> bool:
    return bool(answer["kind"] == "ended")


def _peers(answer: Json) -> Iterator[str]:
    peers = answer["peers"]
    if peers and peers["own_s"] is not None and peers["peers_s"] is not None:
        count = f"{peers['n_peers']:,} peers" if peers["n_peers"] else "its peers"
        own, theirs = duration(peers["own_s"]), duration(peers["peers_s"])
        if answer["scope"] in ("run", "role"):  # compared with its past, or with equal work
            is_uneven = (answer["cause"] or "").endswith("_imbalance")
            yield f"{own} instead of {theirs} {'with equal work' if is_uneven else 'as before'}"
            return
        yield f"{own} where {count} {'took' if _is_over(answer) else 'take'} {theirs}"


def _hours(run_view: Json) -> str:
    """Unit of lost hours. Older collectors do not report GPUs."""
    return hours_text(on_gpu=bool(run_view["run"].get("on_gpu")))


def _cost(answer: Json, hours: str) -> Iterator[str]:
    cost = answer["cost"]
    if cost and cost["gpu_seconds_lost_per_hour"]:
        yield f"costs {_in_hours(cost['gpu_seconds_lost_per_hour'])} {hours} an hour"
    if cost and cost["gpu_seconds_lost"]:
        so_far = "in all" if _is_over(answer) else "so far"
        yield f"{_in_hours(cost['gpu_seconds_lost'])} {hours} lost {so_far}"


def _in_hours(seconds: float) -> str:
    hours = seconds / _HOUR_S
    return digits(hours) if hours >= 0.01 else f"{hours:.2g}"


def _figures(run_view: Json) -> Iterator[Text]:
    run, parts = run_view["run"], []
    takes = "took" if _is_over(run_view["answer"]) else "takes"
    if run["step_s"] is not None:
        slowest = run["slowest_step_s"]
        of_slowest = (
            "" if slowest is None else f" (own work of the slowest rank {duration(slowest)})"
        )
        parts.append(f"a step {takes} {duration(run['step_s'])}{of_slowest}")
    if run["slowdown"] is not None:
        parts.append(f"the run {takes} {run['slowdown']:.2f}x as long as it could")
    if run["resolvable_slowdown"] is not None:
        parts.append(f"from {100 * (run['resolvable_slowdown'] - 1):.2g} % on it would show")
    if parts:
        yield Text(", ".join(parts))


def _verdicts(run_view: Json) -> Iterator[Text]:
    """All but the one in the answer."""
    reported = (run_view["answer"]["sentence"] or "").lower()
    standing = [v for v in run_view["verdicts"] if v["stands"]]
    others = [v for v in standing if v["sentence"] and v["sentence"].lower() not in reported]
    for verdict in others[:MAX_VERDICTS]:
        silenced = ", silenced" if verdict["silenced"] else ""
        text = (
            f"{printable(verdict['state'])}{silenced}: {printable(verdict['sentence'], _SENTENCE)}"
        )
        yield Text(text, style="dim" if verdict["state"] == "suspect" else "bold")
    more = len(others) - MAX_VERDICTS
    if more > 0:
        yield Text(f"and {more:,} verdicts that cost less", style="dim")


def _heat(heat: Json) -> Iterator[Text]:
    is_reported = any(cell[2] is not None for cell in heat["cells"])
    if is_reported and heat["pattern"] != "even":
        yield Text(f"matrix of workers: {printable(heat['pattern_text'], _SENTENCE)}")


def _slowest(run_view: Json) -> Iterator[RenderableType]:
    """The slowest ranks of the newest window, each with its slowest section."""
    ranks, slowdowns = run_view["ranks"], run_view["slowdowns"]
    known = [at for at, reported in enumerate(slowdowns["overall"]) if reported is not None]
    known.sort(key=lambda at: -slowdowns["overall"][at])
    if not known:
        return
    rows = [
        (
            str(ranks["rank"][at]),
            printable(_named(ranks["nodes"], ranks["node"][at]), _NAME),
            printable(_named(ranks["roles"], ranks["role"][at]), _NAME),
            printable(_named(ranks["states"], ranks["state"][at])),
            _own_time(run_view, at),
            _slowest_section(run_view, at),
        )
        for at in known[:MAX_RANKS]
    ]
    yield FittingTable(_RANK_COLUMNS, rows)
    if len(known) > MAX_RANKS:
        more = f"{len(known) - MAX_RANKS:,} more ranks, none of them slower than these"
        yield Text(more, style="dim")


def _missing_gpu_scores(run: Json) -> Iterator[Text]:
    """Older collectors do not report why."""
    if run.get("gpu_scores_missing"):
        yield Text(printable(run["gpu_scores_missing"], _SENTENCE), style="dim")


def _own_time(run_view: Json, at: int) -> str:
    overall = run_view["slowdowns"]["overall"]
    return "no peers" if _is_alone(run_view, overall, at) else f"{overall[at]:.2f}x"


def _is_alone(run_view: Json, slowdowns: Sequence[float | None], at: int) -> bool:
    """Whether no other rank of its role has such a time: 1.00x means nothing then."""
    roles = run_view["ranks"]["role"]
    return not any(
        reported is not None and other != at and roles[other] == roles[at]
        for other, reported in enumerate(slowdowns)
    )


def _slowest_section(run_view: Json, at: int) -> str:
    by_section = run_view["slowdowns"]["by_section"]
    reported = [
        (column[at], section["name"])
        for section, column in zip(run_view["sections"], by_section, strict=True)
        if column[at] is not None
        and section["kind"] in ("compute", "data")
        and not _is_alone(run_view, column, at)
    ]
    if not reported:
        return ""
    slowdown, name = max(reported)
    return f"{printable(name, _NAME)} {slowdown:.2f}x"


def _ledger(ledger: Sequence[Json]) -> Iterator[RenderableType]:
    lines = [line for line in ledger if (line["exposed_s"] or 0.0) > _WORTH_A_LINE_S]
    if not lines:
        return
    rows = [
        (
            printable(line["section"], _NAME),
            duration(line["exposed_s"]),
            "" if line["typical_s"] is None else duration(line["typical_s"]),
            "" if line["leader_rank"] is None else f"rank {line['leader_rank']}",
        )
        for line in sorted(lines, key=lambda line: -line["exposed_s"])[:MAX_LINES]
    ]
    yield FittingTable(_LEDGER_COLUMNS, rows)


def _waits(waits: Sequence[Json]) -> Iterator[Text]:
    caused = [line for line in waits if (line["caused_s"] or 0.0) > _WORTH_A_LINE_S]
    if caused:
        reported = ", ".join(f"rank {w['rank']} ({duration(w['caused_s'])})" for w in caused[:3])
        yield Text(f"others waited most for: {reported}")


def _states(ranks: Json) -> Iterator[Text]:
    """Ranks that are not well."""
    by_state: dict[str, list[int]] = {}
    for rank, state in zip(ranks["rank"], ranks["state"], strict=True):
        by_state.setdefault(_named(ranks["states"], state), []).append(rank)
    for state, result in by_state.items():
        if state not in ("ok", "training", "unknown", "finished", "ended"):
            yield Text(f"{printable(state)}: {ranks_text(result)}")


def _earlier_hangs(worlds: Sequence[Json], hours: str) -> Iterator[Text]:
    """The longest, newest first, and brief ones as a sum. Older collectors report none."""
    for world in worlds:
        brief = world.get("earlier_brief")
        earlier = [hang for hang in world.get("earlier", ()) if not hang.get("is_brief")]
        by_length = sorted(range(len(earlier)), key=lambda at: -(earlier[at]["duration_s"] or 0.0))
        for at in sorted(by_length[:MAX_LINES]):
            yield Text(earlier_line(earlier[at], hours), style="yellow")
        left_out = 0 if brief else world.get("earlier_left_out", 0)
        more = max(0, len(earlier) - MAX_LINES) + left_out
        if more:
            yield Text(f"and {more:,} shorter hang{'s' * (more > 1)}", style="dim")
        if brief:
            text = printable(brief["sentence"], _SENTENCE)
            yield Text(f"hangs: {text}{lost_text(brief, hours)}", style="yellow")


def _alerts(run_view: Json) -> Iterator[Text]:
    fired = "" if run_view["run"]["is_live"] else " fired"
    for alert in run_view["alerts"][:MAX_LINES]:
        reported = (
            alert["annotations"].get("summary") or alert["annotations"].get("description") or ""
        )
        text = f"alert {printable(alert['name'])}{fired}: {printable(reported, _SENTENCE)}"
        yield Text(text, style="bold yellow")


def _named(table: Sequence[str], index: int | None) -> str:
    return "" if index is None else table[index]
