"""A supervisor that is killed at every point of an action, and started again.

Run as a program: it forks a real supervisor for each point, with a port, a journal, and commands
of a shell executor, sends it a webhook, has it end by SIGKILL there, and starts another on the same
journal, which gets the webhook again, as Alertmanager would. One JSON line per point.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sqlite3
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from otel_straggler.collector.alerting.alert_json import fingerprint, rfc3339
from otel_straggler.supervisor import store
from otel_straggler.supervisor.service import Supervisor
from otel_straggler.supervisor.settings import load_settings

SCRIPT = """#!/bin/sh
# Kills the supervisor before it acts, after that, or instead, as the file `kill` says, once.
at=$(cat {folder}/kill 2>/dev/null)
rm -f {folder}/kill
if [ "$at" = before ]; then kill -9 $PPID; fi
if [ "$at" = instead ]; then kill -9 $PPID; exit; fi
echo "$1" >> {folder}/done
if [ "$at" = after ]; then kill -9 $PPID; fi
"""
CHECK = """#!/bin/sh
# Whether it acted: 0 = yes, 1 = no.
[ -f {folder}/done ] || exit 1
grep -qx "$1" {folder}/done
"""
CONFIG = """
server: {{listen: "127.0.0.1:0"}}
state: {{path: {folder}/db}}
fleet: {{hosts: {{a: running, s: spare}}}}
executor:
  kind: shell
  shell:
    commands: {{replace_host: [{folder}/act, "{{cause_id}}"]}}
    done_checks: {{{check}}}
policy:
  rules: [{{alert: Gpu, action: replace_host}}]
"""
_WRITES = ("INSERT", "UPDATE", "DELETE", "CREATE", "COMMIT")
_PATIENCE_S = 60.0


def prepare(folder: Path, *, has_check: bool) -> None:
    """The configuration and its commands."""
    folder.mkdir()
    for name, text in (("act", SCRIPT), ("check", CHECK)):
        (folder / name).write_text(text.format(folder=folder))
        (folder / name).chmod(0o755)
    check = f'replace_host: [{folder}/check, "{{cause_id}}"]' if has_check else ""
    (folder / "supervisor.yaml").write_text(CONFIG.format(folder=folder, check=check))


def kill_at_write(number: int) -> None:
    """End this process by SIGKILL before the so-manieth statement that writes."""
    connect, left = sqlite3.connect, [number]

    def traced(statement: str) -> None:
        if statement.lstrip().startswith(_WRITES):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    class Sqlite3:
        Error, DatabaseError = sqlite3.Error, sqlite3.DatabaseError
        OperationalError = sqlite3.OperationalError

        @staticmethod
        def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection = connect(*arguments, **options)
            connection.set_trace_callback(traced)
            return connection

    store.sqlite3 = Sqlite3  # type: ignore[assignment]


def supervise(folder: Path, webhook: bytes) -> None:
    """Serve until the webhook is dealt with; leave what is known in ``status``."""
    supervisor = Supervisor(load_settings(folder / "supervisor.yaml"))
    address = supervisor.start()
    connection = http.client.HTTPConnection(address, timeout=_PATIENCE_S)
    connection.request("POST", "/v1/alerts", webhook, {"Content-Type": "application/json"})
    connection.getresponse().read()
    connection.close()
    until_s = time.monotonic() + _PATIENCE_S
    while supervisor.engine.unfinished() and time.monotonic() < until_s:
        time.sleep(0.002)
    (folder / "status").write_text(json.dumps(supervisor.engine.status(10)))
    supervisor.stop()


def forked(folder: Path, webhook: bytes, *, kill_write: int = 0) -> int:
    """A supervisor of its own process; its exit code, negative for a signal."""
    child = os.fork()
    if child == 0:
        exit_code = 1
        try:
            if kill_write:
                kill_at_write(kill_write)
            supervise(folder, webhook)
            exit_code = 0
        finally:
            os._exit(exit_code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def outcome(folder: Path, webhook: bytes, *, kill_write: int = 0, kill: str = "") -> dict[str, Any]:
    """What has been done after a kill and a restart."""
    if kill:
        (folder / "kill").write_text(kill)
    first = forked(folder, webhook, kill_write=kill_write)
    second = forked(folder, webhook)
    done = folder / "done"
    status = json.loads((folder / "status").read_text())
    return {
        "point": kill or kill_write,
        "exit_codes": [first, second],
        "times": len(done.read_text().splitlines()) if done.exists() else 0,
        "decisions": [each["status"] for each in status["decisions"]],
        "hosts": {host["name"]: host["state"] for host in status["hosts"]},
    }


def main() -> None:
    folder, has_check = Path(sys.argv[1]), sys.argv[2] == "check"
    load_settings(None)
    for name in ("yaml", "otel_straggler.collector.ingest.http_server"):
        import_module(name)  # once, and not in each process
    labels = {"alertname": "Gpu", "node": "a"}
    alert = {"status": "firing", "labels": labels, "startsAt": rfc3339(time.time()),
             "annotations": {}, "fingerprint": fingerprint(labels)}  # fmt: skip
    webhook = json.dumps({"version": "4", "alerts": [alert]}).encode()
    points = ({"kill_write": number} for number in range(1, 1_000))
    scripted = ({"kill": at} for at in ("before", "instead", "after"))
    for number, point in enumerate((*scripted, *points)):
        own = folder / str(number)
        prepare(own, has_check=has_check)
        result = outcome(own, webhook, **point)  # type: ignore[arg-type]
        print(json.dumps(result), flush=True)
        if result["exit_codes"][0] == 0:  # there are no more statements
            return


if __name__ == "__main__":
    main()
