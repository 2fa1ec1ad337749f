"""``python -m otel_straggler.agent``: the agent's process. The launcher starts it."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path

from otel_straggler.agent.config import FaultToleranceConfig
from otel_straggler.agent.process import CONFIG, checked_folder, listening, locked
from otel_straggler.agent.reporting import HangReports
from otel_straggler.agent.server import AgentServer
from otel_straggler.client.termination import end_with_parent
from otel_straggler.errors import StragglerError
from otel_straggler.log_lines import TextLines

_LOG = logging.getLogger("otel_straggler.agent")
_EVIDENCE = "OTEL_STRAGGLER_EVIDENCE_DIR"


def main() -> int:
    """Serve until SIGTERM."""
    end_with_parent(signal.SIGCONT)  # it sees then that the launcher has gone, also if stopped
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--ready-fd", type=int, required=True)
    given = parser.parse_args()
    with os.fdopen(given.ready_fd, "w") as ready:
        try:
            folder = checked_folder(given.folder)
            config = FaultToleranceConfig.from_yaml_file(folder / CONFIG)
            lock = locked(folder)
            server = _server(config, folder)
        except StragglerError as error:
            ready.write(" ".join(str(error).split()))
            return error.exit_code
        ready.write("ready\n")
    try:
        _serve(server)
    finally:
        lock.release()
    return 0


def _server(config: FaultToleranceConfig, folder: Path) -> tuple[AgentServer, HangReports]:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextLines("otel-straggler agent"))
    logging.basicConfig(level=config.log_level, handlers=[handler])
    reports = HangReports(os.environ)
    diagnostics = config.diagnostics_dir or os.environ.get(_EVIDENCE, "").strip()
    where = Path(diagnostics) if diagnostics else folder / "diagnostics"
    server = AgentServer(
        config, listening(folder), where.absolute(), reports.run_id, reports.rank_hung
    )
    return server, reports


def _serve(both: tuple[AgentServer, HangReports]) -> None:
    server, reports = both
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    ended: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: ended.append(received))

    def woken() -> None:
        os.read(reading, 100)

    server.wake_on(reading, woken)
    parent = os.getppid()
    reports.started()
    try:
        while not ended:
            server.step()
            if os.getppid() != parent and not server.ranks:
                _LOG.warning("the launcher has gone, and so have the ranks: the agent ends")
                break
    finally:
        with contextlib.suppress(OSError):
            reports.ended()
        server.close()


if __name__ == "__main__":
    sys.exit(main())
