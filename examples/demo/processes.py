"""The two kinds of processes that the demo starts, and ends: a collector and a training run."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

TRAIN = Path(__file__).with_name("train.py")
RANKS = 4
_READY_WITHIN_S = 60
_POLITE_S = 10


class Collector:
    """``otel-straggler collector`` on this machine.

    Attributes:
        addresses: its ready line: "otlp_http", "otlp_grpc", "metrics".
    """

    def __init__(self, *flags: str, addresses: dict[str, str] | None = None) -> None:
        where = addresses or dict.fromkeys(("otlp_http", "otlp_grpc", "metrics"), "127.0.0.1:0")
        ports = [word for name, at in where.items() for word in (f"--{_dashed(name)}", at)]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close())
        self._process = subprocess.Popen(
            [sys.executable, "-m", "otel_straggler.cli", "collector", *ports, *flags],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self.addresses = self._read_ready_line()

    @property
    def endpoint(self) -> str:
        return f"http://{self.addresses['otlp_http']}"

    @property
    def url(self) -> str:
        """Of the reports."""
        return f"http://{self.addresses['metrics']}"

    def kill(self) -> None:
        """As the kernel does when memory runs out."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        _end(self._process)
        self._process.stdout.close()
        self._errors.close()

    def _read_ready_line(self) -> dict[str, str]:
        alarm = threading.Timer(_READY_WITHIN_S, self._process.kill)
        alarm.start()
        line = self._process.stdout.readline()
        alarm.cancel()
        if not line:
            exit_code = self._process.wait()
            self._errors.seek(0)
            told = self._errors.read().decode(errors="replace")[-2000:]
            self.close()
            msg = f"the collector did not start (exit code {exit_code})\n{told}"
            raise RuntimeError(msg)
        return json.loads(line)


class Training:
    """``torchrun`` with four ranks of train.py on this machine."""

    def __init__(self, endpoint: str, run_id: str, log: Path, *flags: object) -> None:
        self._log = log
        elastic = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, *elastic, f"--nproc-per-node={RANKS}", TRAIN, *map(str, flags)],
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **os.environ,
                    "OTEL_STRAGGLER_ENDPOINT": endpoint,
                    "OTEL_STRAGGLER_RUN_ID": run_id,
                    "GLOO_SOCKET_IFNAME": "lo",
                    "OMP_NUM_THREADS": "1",
                },
            )

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def last_line(self) -> str:
        """Loss and accuracy, as last told."""
        told = [line for line in self.log.splitlines() if line.startswith("step ")]
        return told[-1] if told else ""

    def wait(self, timeout_s: float) -> int:
        return self._process.wait(timeout_s)

    def close(self) -> None:
        """End it, if it has not ended: torchrun ends its ranks."""
        _end(self._process)


def _end(process: subprocess.Popen) -> None:
    """Ask it to end; after a while make it. It leads its own session, so its children go too."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_POLITE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _dashed(name: str) -> str:
    return name.replace("_", "-")
