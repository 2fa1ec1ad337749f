"""PyTorch's flight recorder, read in its own process, once a rank is suspected to be stuck.

The functions that dump it hold the GIL, and NCCL's asks the driver meanwhile: with a driver that
hangs, no Python would run any more. So it is read as PyTorch's debugging tools do, through a server
of PyTorch's in a C++ thread, on a socket in a folder that only this user can open. It is there for
one answer, within a time and a size; and never again in a process in which it did not answer.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import logging
import math
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from otel_straggler.model.flight_dumps import flight_record_of
from otel_straggler.model.flight_records import FlightRecord

RECORDERS = {"nccl": "dump_nccl_trace_json", "cpu": "fr_trace_json"}
"""Handlers of PyTorch's by recorder: one for NCCL, one for all backends on processors (gloo)."""
MAX_BYTES = 16 * 1024 * 1024
"""Some 35,000 entries; there are 2,000 unless somebody wants more."""
TIMEOUT_S = 10.0
_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_LOG = logging.getLogger("otel_straggler")


class UnavailableError(Exception):
    """The flight recorder cannot be read, and why."""


class FlightRecorder:
    """For one thread.

    Args:
        rank: as this process reports it; that of ``torch.distributed`` has to be the same.
    """

    def __init__(self, rank: int, timeout_s: float = TIMEOUT_S) -> None:
        self._rank = rank
        self._timeout_s = timeout_s
        self._why_never = ""
        self._has_logged = False

    def read(self) -> FlightRecord:
        """What this rank has launched. Cost: some 20 µs for an entry, most of it without the GIL.

        Raises:
            UnavailableError: it cannot be read; logged once.
        """
        try:
            return self._read()
        except UnavailableError as error:
            self._log(error)
            raise
        except Exception as error:  # PyTorch's private parts may raise whatever they like
            self._log(error)
            raise UnavailableError(f"{type(error).__name__}: {error}") from error

    def _log(self, error: Exception) -> None:
        if not self._has_logged:
            self._has_logged = True
            _LOG.warning("PyTorch's flight recorder cannot be read: %s", error)

    def _read(self) -> FlightRecord:
        if self._why_never:
            raise UnavailableError(self._why_never)
        distributed = sys.modules.get("torch.distributed.distributed_c10d")
        if distributed is None or not distributed.is_initialized():
            raise UnavailableError("torch.distributed is not initialized")
        if distributed.get_rank() != self._rank:
            rank = distributed.get_rank()
            raise UnavailableError(f"rank {rank} of torch.distributed is rank {self._rank} here")
        private = distributed.torch._C._distributed_c10d  # noqa: SLF001
        handlers = _handlers(private)
        dumps = {
            backend: json.loads(body) for backend, body in self._bodies(private, handlers).items()
        }
        records = [
            _record_of(dump, self._rank, backend, distributed) for backend, dump in dumps.items()
            if dump.get("pg_config") or dump.get("entries")
        ]  # fmt: skip
        if not records:
            raise UnavailableError(_why_empty())
        return _merged(records)

    def _bodies(self, private: Any, handlers: dict[str, str]) -> dict[str, bytes]:
        """The answers by backend."""
        ends_at_s = time.monotonic() + self._timeout_s
        with _serving(private._WorkerServer) as (path, server):  # noqa: SLF001
            try:
                return {
                    backend: _ask(path, handler, ends_at_s) for backend, handler in handlers.items()
                }
            except TimeoutError as error:
                # To end the server is to wait for its thread, which waits for the driver.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(server.release()))
                self._why_never = f"it did not answer within {self._timeout_s:g} s"
                raise UnavailableError(self._why_never) from error


def _handlers(private: Any) -> dict[str, str]:
    names = getattr(private, "_get_handler_names", None)
    if names is None or not hasattr(private, "_WorkerServer"):
        raise UnavailableError("this PyTorch has no server for it (2.5 or newer has)")
    known = set(names())
    handlers = {backend: name for backend, name in RECORDERS.items() if name in known}
    if not handlers:
        raise UnavailableError("this PyTorch does not record its backends")
    return handlers


class _Server:
    """PyTorch's server; ended with its folder, unless released."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def release(self) -> Any:
        server, self._server = self._server, None
        return server

    def end(self) -> None:
        if self._server is not None:
            self._server.shutdown()


@contextlib.contextmanager
def _serving(make: Any) -> Iterator[tuple[str, _Server]]:
    with tempfile.TemporaryDirectory(
        prefix="otel-straggler-", ignore_cleanup_errors=True
    ) as folder:
        path = str(Path(folder) / "fr")
        server = _Server(make(path))
        try:
            yield path, server
        finally:
            server.end()


class _Connection(http.client.HTTPConnection):
    """To a socket of this machine, all within a time."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _ask(path: str, handler: str, ends_at_s: float) -> bytes:
    connection = _Connection(path, max(ends_at_s - time.monotonic(), 0.001))
    with contextlib.closing(connection):
        connection.request("POST", f"/handler/{handler}", headers={"Connection": "close"})
        response = connection.getresponse()
        body = response.read(MAX_BYTES + 1)
    if response.status != 200:
        raise UnavailableError(f"{handler} answers {response.status}: {body[:100]!r}")
    if len(body) > MAX_BYTES:
        raise UnavailableError(f"{handler} answers with more than {MAX_BYTES} bytes")
    return body


def _record_of(dump: Any, rank: int, backend: str, distributed: Any) -> FlightRecord:
    """With the groups that ``torch.distributed`` knows, where the recorder does not know them:
    gloo's are recorded before they have a name."""
    if backend != "nccl":
        dump = {**dump, "pg_config": _groups_of(distributed)}
    return flight_record_of(dump, rank, backend=backend, now_ns=time.time_ns())


def _groups_of(distributed: Any) -> dict[str, dict[str, Any]]:
    names = dict(distributed._world.pg_names)  # noqa: SLF001
    return {
        str(name): {
            "desc": getattr(group, "group_desc", ""),
            "ranks": distributed.get_process_group_ranks(group),
        }
        for group, name in names.items()
    }


def _merged(records: list[FlightRecord]) -> FlightRecord:
    """Of several recorders; their calls in order of age."""
    if len(records) == 1:
        return records[0]
    calls = chain.from_iterable(record.calls for record in records)
    first, *others = records
    for other in others:
        first = replace(
            first,
            groups=first.groups + other.groups,
            enqueued={**first.enqueued, **other.enqueued},
            completed={**first.completed, **other.completed},
            ignored={
                why: first.ignored.get(why, 0) + other.ignored.get(why, 0)
                for why in {**first.ignored, **other.ignored}
            },
        )
    by_age = sorted(calls, key=lambda call: math.inf if math.isnan(call.age_s) else call.age_s)
    return replace(first, calls=tuple(reversed(by_age)))


def _why_empty() -> str:
    if any(os.environ.get(name, "").strip() == "0" for name in _SIZES):
        return f"it is off: {' or '.join(_SIZES)} is 0"
    return "it is empty: this PyTorch does not record the backends in use, or not by default"
