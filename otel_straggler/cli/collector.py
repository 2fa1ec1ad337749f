"""``otel-straggler collector``: receive OTLP from every rank, score it, serve the results."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from otel_straggler.collector.settings_file import (
    check_start,
    flag_of,
    flag_rows,
    load_settings,
)
from otel_straggler.log_lines import formatter

_Command = TypeVar("_Command", bound=Callable[..., Any])
_log = logging.getLogger(__name__)
_END_S = 2.0
_DESCRIPTORS = 8_192
"""4,096 connections of ranks, 512 of pages, connections to refuse, files."""


def _with_flags(function: _Command) -> _Command:
    """Add an option for each setting that has a flag."""
    for row in reversed(flag_rows().values()):
        flag, metavar = flag_of(row)
        default = f"  [default: {row.default}]" if row.default else ""
        text = f"{row.meaning[0].upper()}{row.meaning[1:]}.{default}"
        kind = str if isinstance(row.default, tuple) else type(row.default)
        option = (
            click.option(flag, is_flag=True, default=None, help=text)
            if isinstance(row.default, bool)
            else click.option(flag, type=kind, metavar=metavar, help=text)
        )
        function = option(function)
    return function


@click.command(short_help="Receive OTLP from every rank, score it, serve metrics and reports.")
@_with_flags
@click.option(
    "--config", metavar="FILE", help="YAML; docs/collector.yaml has all settings. Flags win."
)
@click.option(
    "--check", is_flag=True, help="Check the settings and the files that they name, then exit."
)
def command(config: str | None, check: bool, **flags: Any) -> None:
    """Receive OTLP from every rank, score it, serve metrics and reports.

    The first line on standard output, once all ports are open, is a JSON object with the
    addresses. Port 0 picks a free one. SIGTERM, SIGINT and SIGHUP (a terminal that closes; not
    with nohup) score what was received and end, within 20 s; what there was no time to score is in
    the spool (history.spool), or its number is the last line on standard error.
    """
    given = {
        key: flags[flag_of(row)[0].removeprefix("--").replace("-", "_")]
        for key, row in flag_rows().items()
    }
    settings = load_settings(config, given)
    if check:
        check_start(settings)
        click.echo("The collector would start with these settings.")
        return
    from otel_straggler.collector.service import Collector

    stop = start_serving(settings.log.format)
    raise_file_limit()
    collector = Collector(settings)
    addresses = collector.start()
    freeze_garbage_collector()
    _log.info("live page: %s", page_url(addresses["metrics"], is_tls=settings.tls.is_on))
    serve_until(stop, addresses)
    collector.stop()
    if collector.unfinished:
        click.echo(f"collector: {collector.unfinished}.", err=True)
    exit_without_waiting()


def start_serving(log_format: str = "text") -> threading.Event:
    """Log to standard error, as ``log.format`` says; a signal that ends the process sets the
    event."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(log_format))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    stop = threading.Event()
    for number in signals_that_end():
        signal.signal(number, lambda *_: stop.set())
    return stop


def serve_until(stop: threading.Event, addresses: dict[str, str]) -> None:
    """Print the addresses, and wait for the end."""
    click.echo(json.dumps(addresses))
    sys.stdout.flush()
    stop.wait()


def signals_that_end() -> list[signal.Signals]:
    """SIGTERM, SIGINT, and SIGHUP unless the process is to outlive its terminal (nohup)."""
    result = [signal.SIGTERM, signal.SIGINT]
    hang_up = getattr(signal, "SIGHUP", None)  # Windows has none
    if hang_up is not None and signal.getsignal(hang_up) != signal.SIG_IGN:
        result.append(hang_up)
    return result


def page_url(address: str, *, is_tls: bool = False) -> str:
    """URL of the live page for a browser on this machine.

    >>> page_url("127.0.0.1:9464"), page_url("0.0.0.0:9464"), page_url("[::]:9464")
    ('http://127.0.0.1:9464/', 'http://127.0.0.1:9464/', 'http://[::1]:9464/')
    """
    host, _, port = address.rpartition(":")
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "::": "[::1]"}.get(host, host)  # noqa: S104
    return f"{'https' if is_tls else 'http'}://{host}:{port}/"


def raise_file_limit() -> None:
    """Raise the limit on open files; many systems start with 1,024."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def exit_without_waiting() -> None:
    """Exit while a large request is still being decoded: its sender got no answer and will
    retry."""
    others = [t for t in threading.enumerate() if t is not threading.current_thread()]
    if not has_ended([t for t in others if not t.daemon], _END_S):
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


def has_ended(threads: Iterable[threading.Thread], within_s: float) -> bool:
    """Whether all threads end within the time."""
    until_s = time.monotonic() + within_s
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def freeze_garbage_collector() -> None:
    """Freeze what is loaded: scanning all modules took half of a receiver's time."""
    gc.collect()
    gc.freeze()
