"""Write reference pages, alert files, dashboards, Kubernetes manifests and the script of a report
from the code: ``make generate``. ``--check`` only looks.

Each page is what the code says; a field without a description stops it with a sentence. The script
needs esbuild (``make servers``): without it, it is left as it is, except under CI.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import alerts_page
import configuration_page
import kubernetes_manifests
import torch_page
import wire_page
from described import Undescribed

from otel_straggler.alerts.render import render_all
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.dashboards import filters
from otel_straggler.dashboards.export import render_all as render_dashboards

HERE = Path(__file__).parent
ESBUILD = HERE.parent / "tests" / "interop" / "javascript" / "node_modules" / "esbuild"
PAGE = HERE.parent / "otel_straggler" / "page"
sys.path.insert(0, str(HERE.parent))  # benchmarks are not installed
from benchmarks.gpu import page as gpu_page  # noqa: E402

NOTE = "<!-- Made by docs/generate.py from the code. Change the code, then run: make generate -->\n"
PAGES = {
    "operate/alerts.md": alerts_page.page,
    "reference/torch-versions.md": torch_page.page,
    "reference/configuration.md": configuration_page.page,
    "internals/gpu-measurements.md": gpu_page.page,
    "reference/names-on-the-wire.md": wire_page.page,
}


def main(arguments: list[str]) -> int:
    """Write, or with ``--check`` compare; 1 if a page is stale or cannot be made."""
    stale = []
    rules, pages = render_all(AlertSettings()), render_dashboards()
    made = {f"../alerts/{name}": text for name, text in rules.items()}
    made |= {f"../dashboards/{name}": text for name, text in pages.items()}
    read = [*pages.values(), *(text for name, text in rules.items() if "rules" in name)]
    made["../dashboards/federation.yml"] = filters.federation_file(read)
    made["../dashboards/remote-write.yml"] = filters.remote_write_file(read)
    made["collector.yaml"] = configuration_page.example_file()
    manifests = "../examples/platforms/kubernetes"
    made[f"{manifests}/collector.yaml"] = kubernetes_manifests.manifests()
    in_chart = {f"files/{name}": text for name, text in {**rules, **pages}.items()}
    made[f"{manifests}/monitoring.yaml"] = kubernetes_manifests.monitoring(in_chart)
    if (script := report_script()) is not None:
        made["../otel_straggler/page/report.js"] = script
    elif os.environ.get("CI"):
        return _say("report.js cannot be made: no esbuild. Run: make servers")
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


def report_script() -> str | None:
    """The modules of the page as one script; None without esbuild."""
    node = shutil.which("node")
    if node is None or not ESBUILD.is_dir():
        return None
    options = ("--bundle", "--minify", "--line-limit=120", "--format=iife", "--target=es2022")
    main = PAGE / "static" / "js" / "main.js"
    command = [node, ESBUILD / "bin" / "esbuild", main, *options, "--log-level=warning"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603


def _say(message: str) -> int:
    sys.stderr.write(message + "\n")
    return 1


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # wrong variables are tried out on the way
    sys.exit(main(sys.argv[1:]))
