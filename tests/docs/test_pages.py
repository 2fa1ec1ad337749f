"""What the pages point to exists: files, headings, make targets, commands, metrics."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from otel_straggler import semconv
from otel_straggler.cli.group import otel_straggler
from otel_straggler.detector import Report

from .pages import PAGES, ROOT, fences, text_of

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@every_page
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    """To a file, and where it names one to a heading of that file."""
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text_of(page)):
        name, _, heading = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        if heading:
            assert heading in anchors(file), target


def test_every_page_of_the_site_can_be_reached() -> None:
    """By the navigation, which names no page that is missing, or by a link of a page in it."""
    pages = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}
    named = set(re.findall(r": (\S+\.md)$", text_of(ROOT / "mkdocs.yml"), re.MULTILINE))
    assert named <= pages
    linked = {
        str((ROOT / "docs" / page).parent.joinpath(target).resolve().relative_to(ROOT / "docs"))
        for page in named
        for target in re.findall(r"\]\(([\w/-]+\.md)", text_of(ROOT / "docs" / page))
    }
    assert pages <= named | linked


def test_every_page_is_linked_where_a_reader_begins() -> None:
    """From the README or the home page of the site; single decisions from their list."""
    pages = {p for p in ROOT.glob("docs/*/*.md") if p.parent.name != "decisions"}
    begins = (ROOT / "README.md", ROOT / "docs" / "index.md")
    linked = {
        (page.parent / target).resolve()
        for page in begins
        for target in re.findall(r"\]\(([\w./-]+\.md)", text_of(page))
    }
    assert {str(page.relative_to(ROOT)) for page in pages - linked} == set()


@every_page
def test_every_make_target_exists(page: Path) -> None:
    """As the Makefile has it."""
    makefile = text_of(ROOT / "Makefile")
    for target in re.findall(r"(?:`|^)make ([a-z-]+)", text_of(page), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def command_lines() -> Iterator[tuple[str, str]]:
    """Page and every command line that begins with the program's name."""
    for page in PAGES:
        inline = re.findall(r"`(otel-straggler [^`]+)`", text_of(page))
        both = [*fences(page, ""), *fences(page, "bash")]
        yield from commands(
            page, [*inline, *(line for block in both for line in block.splitlines())]
        )
    for folder in "examples", "dashboards", "docs":
        for file in sorted([*ROOT.glob(f"{folder}/*.yaml"), *ROOT.glob(f"{folder}/*.yml")]):
            comments = re.findall(r"#\s+(otel-straggler .+)", text_of(file))
            inline = re.findall(r"`(otel-straggler [^`]+)`", text_of(file))
            yield from commands(file, [*inline, *comments])


def commands(file: Path, lines: list[str]) -> Iterator[tuple[str, str]]:
    """Those of the lines, and of what is piped in them, that are ours; each on one line."""
    pieces = [piece.strip() for line in lines for piece in " ".join(line.split()).split(" | ")]
    for piece in pieces:
        result = re.sub(r"^(\$ |\.venv/bin/|srun |[A-Z_]+=\S+ )+", "", piece)
        if result.startswith("otel-straggler ") and "..." not in result:
            yield file.name, result.replace(" [--run ID]", " --run ID")


@pytest.mark.parametrize(("page", "line"), sorted(set(command_lines())))
def test_every_command_line_is_accepted(page: str, line: str, tmp_path: Path) -> None:
    """By its verb's own parser; nothing is run. Capital words stand for values."""
    del page
    stand_in = tmp_path / "file"
    stand_in.touch()
    text = shlex.split(line, comments=True)[1:]
    text = [str(stand_in) if w in {"FILE", "URL", "RUN"} else w for w in text]
    with click.Context(otel_straggler) as context:
        command = otel_straggler.get_command(context, text[0])
        assert command is not None, text[0]
        command.make_context(text[0], text[1:], parent=context)


@every_page
def test_every_metric_that_is_named_is_one(page: Path) -> None:
    """In Prometheus' spelling. Keys of a report are no metrics."""
    metrics = [v for value in vars(semconv).values() for v in inside(value)]
    known = {m.prometheus_name for m in metrics if isinstance(m, semconv.Metric)}
    named = set(re.findall(r"\bstraggler_[a-z_]+\b", text_of(page).replace("otel_straggler", "")))
    assert named <= known | set(Report().identify_stragglers())


PROMQL = [q.strip() for page in PAGES for q in fences(page, "promql")]


@pytest.mark.parametrize("query", PROMQL)
def test_every_query_is_understood_by_prometheus(query: str, tmp_path: Path) -> None:
    """As the expression of a rule, which promtool parses."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip(
            "promtool is not installed (make servers): "
            "it would show that Prometheus takes the query"
        )
    rules = tmp_path / "rules.yaml"
    rules.write_text(f"groups: [{{name: g, rules: [{{alert: A, expr: '{query}'}}]}}]\n")
    checked = subprocess.run([promtool, "check", "rules", str(rules)], check=False, timeout=60)
    assert checked.returncode == 0


def inside(value: object) -> list[object]:
    return list(value.values()) if isinstance(value, dict) else [value]


def anchors(page: Path) -> set[str]:
    """Headings as GitHub names them in an address."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    text = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in text}
