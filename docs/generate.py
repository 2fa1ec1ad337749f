"""Write reference pages, alert files and dashboards from the code: ``make generate``. ``--check``
only looks.

Each page is what the code says; a field without a description stops it with a sentence.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import alerts_page
import configuration_page
import wire_page
from described import Undescribed

from otel_straggler.alerts.render import render_all
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.dashboards.render import render_all as render_dashboards

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # benchmarks are not installed
from benchmarks.gpu import page as gpu_page  # noqa: E402

NOTE = "<!-- Made by docs/generate.py from the code. Change the code, then run: make generate -->\n"
PAGES = {
    "operate/alerts.md": alerts_page.page,
    "reference/configuration.md": configuration_page.page,
    "internals/gpu-measurements.md": gpu_page.page,
    "reference/names-on-the-wire.md": wire_page.page,
}


def main(arguments: list[str]) -> int:
    """Write, or with ``--check`` compare; 1 if a page is stale or cannot be made."""
    stale = []
    made = {f"../alerts/{name}": text for name, text in render_all(AlertSettings()).items()}
    made |= {f"../dashboards/{name}": text for name, text in render_dashboards().items()}
    for name, page in PAGES.items():
        try:
            made[name] = NOTE + page()
        except Undescribed as error:
            return _say(f"docs/{name} cannot be made: {error}")
    for name, text in made.items():
        file = HERE / name
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        stale.append(f"docs/{name}".replace("docs/../", ""))
        if "--check" not in arguments:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    if stale and "--check" in arguments:
        return _say(f"{', '.join(stale)}: not what the code says. Run: make generate")
    return 0


def _say(message: str) -> int:
    sys.stderr.write(message + "\n")
    return 1


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # wrong variables are tried out on the way
    sys.exit(main(sys.argv[1:]))
