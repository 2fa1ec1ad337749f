"""All servers of a fleet: shards with TLS and tokens behind the real OpenTelemetry Collector, a
Prometheus with the rules, and two Alertmanagers: one for the rules, one for what shards send."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.alert_delay import servers
from benchmarks.alert_delay.jobs import Job, Launcher
from benchmarks.alert_delay.stage import find_programs
from benchmarks.ingest import otelcol
from benchmarks.rehearsal.told import Told, hear
from otel_straggler.cli import main as cli
from otel_straggler.cli.otelcol_files import shard_of_run
from otel_straggler.demo.processes import Collector, Server, free_address, start_alertmanager
from otel_straggler.demo.receiver import Receiver

Json = dict[str, Any]
SHARDS: Final = 3
WAYS: Final = ("rules", "collector")
"""Who decides: the rules in Prometheus, or a shard itself."""
LONGEST_S: Final = 90.0
_TOKENS: Final = {
    "team-a": "ingest team-a token:{} runs=a-",
    "team-b": "ingest team-b token:{} runs=b-",
    "prometheus": "read prometheus token:{}",
    "alice": "operate alice token:{}",
}


class Scene:
    """Started at once; ``close`` ends all of it.

    Args:
        folder: for all files; what a server printed stands there, too.

    Raises:
        FileNotFoundError: Prometheus, an Alertmanager, the OpenTelemetry Collector or openssl is
            not there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._closing = contextlib.ExitStack()
        self._lock = threading.Lock()
        self._failing: set[str] = set()
        self._otelcol = otelcol.find()
        if self._otelcol is None:
            raise FileNotFoundError("no OpenTelemetry Collector (OTELCOL names one)")
        with self._closing:
            self._write_secrets()
            self._start()
            self._closing = self._closing.pop_all()

    def close(self) -> None:
        self._closing.close()

    def _write_secrets(self) -> None:
        self._tokens = {name: f"token-of-{name}-0123456789" for name in _TOKENS}
        lines = [line.format(self._tokens[name]) for name, line in _TOKENS.items()]
        (self.folder / "grants").write_text("\n".join(lines) + "\n")
        (self.folder / "grants").chmod(0o600)
        for name, token in self._tokens.items():
            (self.folder / f"{name}.token").write_text(token)
            (self.folder / f"{name}.token").chmod(0o600)
        self.certificate = _certificate(self.folder)
        # For shards that ask each other, and for commands.
        os.environ["SSL_CERT_FILE"] = str(self.certificate)
        os.environ["OTEL_STRAGGLER_TOKEN_FILE"] = str(self.folder / "prometheus.token")

    def _start(self) -> None:
        prometheus, alertmanager = find_programs()
        self.hooks, urls = {}, {}
        for way in WAYS:
            self.hooks[way] = Receiver(self._answer)
            self._closing.callback(self.hooks[way].close)
            config = servers.alertmanager_config(self.hooks[way].url)
            server = start_alertmanager(alertmanager, config, self.folder / way)
            self._closing.callback(server.close)
            urls[way] = server.url
        self._alertmanager = urls["collector"]
        self.addresses = [
            {name: free_address() for name in ("otlp_http", "otlp_grpc", "metrics")}
            for _ in range(SHARDS)
        ]
        self.shards: list[Collector] = []
        for number in range(SHARDS):
            self.shards.append(self._start_shard(number))
        self._closing.callback(self._close_shards)
        self.prometheus = self._start_prometheus(prometheus, urls["rules"])
        self._closing.callback(self.prometheus.close)
        self._start_otelcols()
        self.launcher = Launcher(self.folder / "jobs")
        self._closing.callback(self.launcher.close)

    # --- shards ------------------------------------------------------------------------------

    def _start_shard(self, number: int) -> Collector:
        settings = {
            "metrics": {
                "collector_id": f"shard-{number}",
                "peers": [f"https://{each['metrics']}" for each in self.addresses],
            },
            "auth": {"grant_files": [str(self.folder / "grants")]},
            "tls": {"cert_file": str(self.certificate)},
            "history": {"path": str(self.folder / f"shard-{number}.db"), "save_every_seconds": 1},
            "scoring": {"window_steps": 20, "grace_seconds": 0.5},
            "liveness": {
                "lost_after_seconds": servers.LOST_AFTER_S,
                "min_timeout_seconds": servers.MIN_TIMEOUT_S,
                "unknown_timeout_seconds": 16 * servers.MIN_TIMEOUT_S,
                "max_timeout_seconds": 16 * servers.MIN_TIMEOUT_S,
            },
            "alerts": {
                **servers.ALERTS,
                "failed_for_seconds": 15,
                "mode": "page",
                "notify": {"alertmanagers": [self._alertmanager]},
            },
        }
        file = self.folder / f"shard-{number}.yaml"
        file.write_text(json.dumps(settings))
        return Collector(f"--config={file}", addresses=self.addresses[number])

    def _close_shards(self) -> None:
        for shard in self.shards:
            shard.close()

    def kill_shard(self, number: int) -> None:
        """As ``kill -9``."""
        self.shards[number].kill()

    def restart_shard(self, number: int) -> None:
        self.shards[number] = self._start_shard(number)

    def shard_of(self, run_id: str) -> int:
        return shard_of_run(run_id, SHARDS)

    def get(self, shard: int, path: str) -> Any:
        """JSON of a shard, as who may read all."""
        return self._request(shard, path, "prometheus")

    def operate(self, shard: int, path: str, body: Json) -> Any:
        """Ask for a change, as who may operate."""
        return self._request(shard, path, "alice", body)

    def _request(self, shard: int, path: str, who: str, body: Json | None = None) -> Any:
        headers = {
            "Authorization": f"Bearer {self._tokens[who]}",
            "Content-Type": "application/json",
        }
        url = f"https://{self.addresses[shard]['metrics']}{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers)
        trust = ssl.create_default_context(cafile=str(self.certificate))
        with urllib.request.urlopen(request, timeout=30, context=trust) as answer:
            return json.load(answer)

    # --- servers in front and behind ---------------------------------------------------------

    def _start_prometheus(self, program: str, alertmanager: str) -> Server:
        folder = self.folder / "prometheus"
        server = servers.start_prometheus(
            program,
            folder,
            servers.rules(failed_for_seconds=15),
            alertmanager,
            scheme="https",
            tls_config={"ca_file": str(self.certificate)},
            authorization={"credentials_file": str(self.folder / "prometheus.token")},
            metric_relabel_configs=[  # docs/operate/scale-out.md
                {
                    "source_labels": ["run_id"],
                    "regex": ".+",
                    "target_label": "collector",
                    "replacement": "fleet",
                }
            ],
        )
        targets = [{"targets": [each["metrics"] for each in self.addresses]}]
        (folder / "targets.json").write_text(json.dumps(targets))
        return server

    def _start_otelcols(self) -> None:
        """An agent and a gateway, as ``deploy otelcol`` writes them, on free ports."""
        folder, ca = self.folder / "otelcol", str(self.certificate)
        arguments = ["--shards", str(SHARDS), "-o", str(folder), "--otelcol", str(self._otelcol)]
        arguments += ["--shard-url", "https://localhost:{n}", "--shard-ca-file", ca]
        arguments += ["--shard-token-env", "SHARD_TOKEN", "--queue-dir", str(folder / "queue")]
        os.environ["SHARD_TOKEN"] = self._tokens["team-a"]
        with contextlib.redirect_stdout(io.StringIO()):
            code = cli(["deploy", "otelcol", *arguments])
        if code:
            raise RuntimeError(f"deploy otelcol ended with {code}")
        self._gateway_at = free_address(), free_address()
        self._agent_at = free_address(), free_address()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._closing.callback(self._close_otelcols)
        self.start_gateway()
        self._start_otelcol("agent", self._agent_at)

    def start_gateway(self) -> None:
        self._start_otelcol("gateway", self._gateway_at)

    def kill_otelcol(self, name: str) -> None:
        """As ``kill -9``."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def _close_otelcols(self) -> None:
        for name in [*self._processes]:
            self.kill_otelcol(name)

    def _start_otelcol(self, name: str, at: tuple[str, str]) -> None:
        folder = self.folder / "otelcol"
        document = yaml.safe_load((folder / f"{name}.yaml").read_text())
        document["extensions"]["file_storage"]["directory"] = str(folder / f"{name}-queue")
        if name == "agent":
            document["exporters"]["otlp_grpc"]["endpoint"] = self._gateway_at[1]
            document["exporters"]["otlp_grpc"]["tls"] = {"insecure": True}
        else:
            for number, address in enumerate(self.addresses):
                exporter = document["exporters"][f"otlp_http/shard{number}"]
                exporter["endpoint"] = f"https://{address['otlp_http']}"
        protocols = document["receivers"]["otlp"]["protocols"]
        protocols["http"] = {"endpoint": at[0]}
        protocols["grpc"] = {"endpoint": at[1]}
        file, log = folder / f"{name}-here.yaml", folder / f"{name}.log"
        file.write_text(json.dumps(document))
        quiet = "--set=service::telemetry::metrics::level=none"
        with log.open("ab") as output:
            self._processes[name] = subprocess.Popen(
                [str(self._otelcol), "--config", str(file), quiet], stdout=output, stderr=output
            )
        host, _, port = at[0].rpartition(":")
        otelcol.wait_until_listening(host, int(port), log)

    # --- jobs --------------------------------------------------------------------------------

    def start(self, run_id: str, *, team: str = "", **more: Any) -> Job:
        """Ranks of team a through agent and gateway, those of team b directly to their shard.
        Without a team it is that of the run's name."""
        if (team or run_id[0]) == "a":
            endpoint, environment = f"http://{self._agent_at[0]}", {}
        else:
            endpoint = f"https://{self.addresses[self.shard_of(run_id)]['otlp_http']}"
            environment = {
                "OTEL_EXPORTER_OTLP_CERTIFICATE": str(self.certificate),
                "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{self._tokens['team-b']}",
            }
        environment |= more.pop("environment", {})
        return self.launcher.start(
            run_id, endpoint, heartbeat_s=servers.HEARTBEAT_S, environment=environment, **more
        )

    def trained(self, run_id: str, **more: Any) -> Job:
        """The same, and wait until its timeouts have been learnt: 40 steps."""
        job = self.start(run_id, **more)
        self.wait_for_step(job, job.spec.first_step + 40)
        return job

    def wait_for_step(self, job: Job, step: int) -> None:
        """Until a window that ends after ``step`` of this attempt has been scored."""

        def is_there() -> bool:
            path = f"/v1/report?run={job.run_id}"
            run = self.get(self.shard_of(job.run_id), path)["runs"].get(job.run_id, {})
            windows = run.get("windows", [])
            return any(
                window["last_step"] >= step - 1 and window["attempt"] == job.spec.attempt
                for window in windows
            )

        self.wait_until(is_there, f"{job.spec.name}: no window to step {step}\n{job.log[-2000:]}")

    # --- what was told -----------------------------------------------------------------------

    def fail_notifications(self, run_id: str, *, fail: bool) -> None:
        """Have both webhooks answer 500 to what is about a run."""
        with self._lock:
            (self._failing.add if fail else self._failing.discard)(run_id)

    def _answer(self, _path: str, payload: Json) -> int:
        with self._lock:
            return 500 if payload.get("groupLabels", {}).get("run_id") in self._failing else 200

    def told(self, way: str, run_id: str = "") -> list[Told]:
        """Alerts about a run, or about none, in the order in which they came."""
        result: list[Told] = []
        for one in self.hooks[way].received:
            for alert in one.payload["alerts"] if one.status == 200 else ():
                if alert["labels"].get("run_id", "") == run_id:
                    hear(result, one, alert)
        return result

    def wait_for(self, run_id: str, alert: str, *, over: bool = False) -> None:
        """Until both ways have told of it; ``over``: and that it has ended."""

        def is_told(way: str) -> bool:
            its = [told for told in self.told(way, run_id) if told.name == alert]
            return any(told.ended_s is not None or not over for told in its)

        for way in WAYS:
            what = "is not over" if over else "did not fire"
            self.wait_until(
                lambda way=way: is_told(way),  # type: ignore[misc]
                f"{alert} of {run_id or 'no run'} {what} by the {way}",
            )

    def wait_until(self, claim: Callable[[], bool], why: str) -> None:
        """Raises: TimeoutError: it did not become true."""
        ends_at_s = time.monotonic() + LONGEST_S
        while not _holds(claim):
            if time.monotonic() > ends_at_s:
                raise TimeoutError(why)
            time.sleep(0.1)


def _holds(claim: Callable[[], bool]) -> bool:
    try:
        return claim()
    except OSError:  # a shard is away
        return False


@contextlib.contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    """One that is closed in the end."""
    result = Scene(folder)
    try:
        yield result
    finally:
        result.close()


def _certificate(folder: Path) -> Path:
    """Certificate and key of this machine, signed by itself."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise FileNotFoundError("openssl is not installed")
    key, certificate, both = (folder / name for name in ("key.pem", "cert.pem", "tls.pem"))
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "30", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    both.write_text(certificate.read_text() + key.read_text())
    both.chmod(0o600)
    return both
