"""``otel-straggler collector``: receive OTLP from every rank, score it, serve the results."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
import threading

import click

from otel_straggler.collector.settings_file import load_settings

_log = logging.getLogger(__name__)
_END_S = 2.0
_DESCRIPTORS = 8_192
"""4,096 connections of ranks, 512 of pages, connections to refuse, files."""


@click.command()
@click.option("--otlp-http", metavar="HOST:PORT", help="OTLP/HTTP.  [default: 127.0.0.1:4318]")
@click.option("--otlp-grpc", metavar="HOST:PORT", help="OTLP/gRPC.  [default: 127.0.0.1:4317]")
@click.option(
    "--metrics", metavar="HOST:PORT",
    help="Live page, /metrics, /v1/report, health.  [default: 127.0.0.1:9464]",
)  # fmt: skip
@click.option("--forward", metavar="URL", help="Pass requests on to URL/v1/...")
@click.option("--forward-mode", metavar="MODE", help="off, all, or sampled: what is worth keeping.")
@click.option("--history", metavar="PATH", help="File that references and verdicts survive in.")
@click.option("--window-seconds", type=float, metavar="S", help="Windows of spans without a step.")
@click.option("--window-steps", type=int, metavar="N", help="Steps that are scored together.")
@click.option(
    "--config", metavar="FILE", help="YAML; docs/collector.yaml has all settings. Flags win."
)
def command(
    otlp_http: str | None,
    otlp_grpc: str | None,
    metrics: str | None,
    forward: str | None,
    forward_mode: str | None,
    history: str | None,
    window_seconds: float | None,
    window_steps: int | None,
    config: str | None,
) -> None:
    """Receive OTLP from every rank, score it, serve metrics and reports.

    The first line on standard output, once all ports are open, is a JSON object with the
    addresses. Port 0 picks a free one. SIGTERM, SIGINT and SIGHUP (a terminal that closes; not
    with nohup) score what was received and end, within 20 s.
    """
    settings = load_settings(
        config,
        {
            "receivers.otlp_http": otlp_http,
            "receivers.otlp_grpc": otlp_grpc,
            "metrics.listen": metrics,
            "forward.url": forward,
            "forward.mode": forward_mode,
            "history.path": history,
            "scoring.window_seconds": window_seconds,
            "scoring.window_steps": window_steps,
        },
    )
    _log_to_stderr()
    from otel_straggler.collector.service import Collector

    stop = threading.Event()
    for number in signals_that_end():
        signal.signal(number, lambda *_: stop.set())
    take_file_descriptors()
    collector = Collector(settings)
    addresses = collector.start()
    spare_the_garbage_collector()
    _log.info("live page: %s", page_url(addresses["metrics"]))
    click.echo(json.dumps(addresses))
    sys.stdout.flush()
    stop.wait()
    collector.stop()
    end_without_waiting()


def signals_that_end() -> list[signal.Signals]:
    """SIGTERM, SIGINT, and SIGHUP unless the process is to outlive its terminal (nohup)."""
    result = [signal.SIGTERM, signal.SIGINT]
    hang_up = getattr(signal, "SIGHUP", None)  # Windows has none
    if hang_up is not None and signal.getsignal(hang_up) != signal.SIG_IGN:
        result.append(hang_up)
    return result


def page_url(address: str) -> str:
    """URL of the live page for a browser on this machine.

    >>> page_url("127.0.0.1:9464"), page_url("0.0.0.0:9464"), page_url("[::]:9464")
    ('http://127.0.0.1:9464/', 'http://127.0.0.1:9464/', 'http://[::1]:9464/')
    """
    host, _, port = address.rpartition(":")
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "::": "[::1]"}.get(host, host)  # noqa: S104
    return f"http://{host}:{port}/"


def take_file_descriptors() -> None:
    """Raise the limit on open files; many systems start with 1,024."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def end_without_waiting() -> None:
    """Exit while a large request is still being decoded: its sender got no answer and will
    retry."""
    from otel_straggler.collector.stopping import has_ended

    others = [t for t in threading.enumerate() if t is not threading.current_thread()]
    if not has_ended([t for t in others if not t.daemon], _END_S):
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


def spare_the_garbage_collector() -> None:
    """Freeze what is loaded: scanning all modules took half of a receiver's time."""
    gc.collect()
    gc.freeze()


def _log_to_stderr() -> None:
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
