"""The pages as tests read them: code with what it claims to print, links, commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "alerts" / "RUNBOOK.md"])
_FENCE = re.compile(
    r"^(?:<!-- run: (?P<how>[^\n]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """Code of a page.

    Attributes:
        page: relative to the repository.
        line: where it begins.
        how: the words of the comment before it, such as "2 ranks"; empty = as it is.
        code: Python; of a diff what it is afterwards.
        printed: what it claims to print, None if nothing is claimed.
    """

    page: str
    line: int
    how: str
    code: str
    printed: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> Iterator[Block]:
    """All Python of all pages, in order."""
    for page in PAGES:
        yield from blocks_of(page)


def blocks_of(page: Path) -> list[Block]:
    text = text_of(page)
    result: list[Block] = []
    for fence in _FENCE.finditer(text):
        language, body = fence["language"], fence["text"]
        if language in ("python", "diff"):
            code = _after(body) if language == "diff" else body
            line = text.count("\n", 0, fence.start()) + 1
            name = str(page.relative_to(ROOT))
            result.append(Block(name, line, fence["how"] or "", code, None))
        elif language == "text":
            last = result.pop()
            result.append(Block(last.page, last.line, last.how, last.code, body))
    return result


def fences(page: Path, language: str) -> list[str]:
    """The texts of all fences of a language."""
    return [m["text"] for m in _FENCE.finditer(text_of(page)) if m["language"] == language]


def text_of(page: Path) -> str:
    """All of a page."""
    return page.read_text(encoding="utf-8")


def _after(diff: str) -> str:
    """A diff's lines that are there afterwards."""
    kept = (line for line in diff.splitlines() if not line.startswith("-"))
    return "".join(line[1:] + "\n" for line in kept)


def training_of_a_reader() -> dict[str, Any]:
    """A model, its optimizer and its loader; nothing where there is no torch."""
    if find_spec("torch") is None:
        return {}
    import torch

    class Model(torch.nn.Linear):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return super().forward(x).sum()

    model = Model(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.utils.data.DataLoader(torch.ones(3, 2))
    return {"model": model, "optimizer": optimizer, "dataloader": batches, "batches": batches}
