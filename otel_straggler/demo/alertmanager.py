"""A real Alertmanager on a free port of this machine, if one is installed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from otel_straggler.demo.server import Server, free_address

PROGRAMS = ("alertmanager", "prometheus-alertmanager")
"""Its name, and the one that Debian gives it."""
Json = dict[str, Any]


def find_alertmanager() -> str | None:
    """Path of the program; None if none is on PATH."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


def start_alertmanager(program: str, config: Json, folder: Path) -> Server:
    """Start it, and wait until it is ready.

    Args:
        program: from :func:`find_alertmanager`.
        config: its configuration file; JSON is YAML too.
        folder: for its files; made if it is not there.

    Raises:
        StragglerError: it does not start; the message has the end of its log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "alertmanager.yml"
    file.write_text(json.dumps(config))
    address = free_address()
    flags = (
        f"--config.file={file}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",  # alone: no gossip
    )
    return Server([program, *flags], address, folder / "log")


def config_of(url: str, *, wait_s: float) -> Json:
    """Everything goes to one webhook, grouped by run.

    Args:
        url: of the webhook.
        wait_s: before the first notification of a group; double before each further one.
    """
    return {
        "route": {
            "receiver": "webhook",
            "group_by": ["cluster", "run_id", "group"],
            "group_wait": f"{wait_s:g}s",
            "group_interval": f"{2 * wait_s:g}s",
            "repeat_interval": "4h",
        },
        "receivers": [
            {"name": "webhook", "webhook_configs": [{"url": url, "send_resolved": True}]}
        ],
    }
