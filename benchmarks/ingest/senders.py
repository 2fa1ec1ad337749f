"""Four senders at once, over HTTP or gRPC, each waiting for its answer."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # this process starts others

CONNECTIONS = 4
SERVICE = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_BACK_OFF_S = 0.02


def send(protocol: str, address: str, bodies: list[bytes], *, is_zipped: bool) -> None:
    """Send all; each rank's requests stay in order: rank n sends over connection n mod 4.

    Args:
        protocol: "http" or "grpc".
        address: host:port.
        bodies: of requests. With gRPC they are plain, and gRPC compresses.
        is_zipped: whether HTTP's are compressed, or gRPC is to compress.

    Raises:
        RuntimeError: something else than "taken" or "come back later" was answered.
    """
    errors: list[Exception] = []
    send_some = _http if protocol == "http" else _grpc

    def work(some: list[bytes]) -> None:
        try:
            send_some(address, some, is_zipped)
        except Exception as error:  # noqa: BLE001  raised in the thread that waits
            errors.append(error)

    threads = [
        threading.Thread(target=work, args=(bodies[n::CONNECTIONS],)) for n in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Connection:
    """A kept HTTP connection; each request waits for its answer."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def post(self, signal: str, body: bytes) -> None:
        """Send a request of "traces" or "metrics", again while the receiver is busy."""
        request = _framed(body, signal=signal)
        _until_taken(lambda: _http_answer(self._socket, request))


def _http(address: str, bodies: list[bytes], is_zipped: bool) -> None:
    host, _, port = address.rpartition(":")
    further = "Content-Encoding: gzip\r\n" if is_zipped else ""
    with socket.create_connection((host, int(port))) as connection:
        for body in bodies:
            request = _framed(body, further)
            _until_taken(lambda request=request: _http_answer(connection, request))  # type: ignore[misc]


def _framed(body: bytes, further: str = "", signal: str = "traces") -> bytes:
    head = (
        f"POST /v1/{signal} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
        f"{further}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _http_answer(connection: socket.socket, request: bytes) -> bool:
    """Whether it was taken; False if the receiver is busy."""
    connection.sendall(request)
    answer = connection.recv(4096)
    if answer.startswith((b"HTTP/1.1 429", b"HTTP/1.1 503")):
        return False
    if not answer.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"a request was answered {answer!r}")
    return True


def _grpc(address: str, bodies: list[bytes], is_zipped: bool) -> None:
    import grpc

    own_connection = [("grpc.use_local_subchannel_pool", 1)]
    how = grpc.Compression.Gzip if is_zipped else grpc.Compression.NoCompression
    with grpc.insecure_channel(address, own_connection, how) as channel:
        export = channel.unary_unary(SERVICE)
        for body in bodies:
            _until_taken(lambda body=body: _grpc_answer(export, body))  # type: ignore[misc]


def _grpc_answer(export: Callable[..., object], body: bytes) -> bool:
    import grpc

    try:
        export(body, timeout=60)
    except grpc.RpcError as error:
        if error.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE):
            return False
        raise
    return True


def _until_taken(try_once: Callable[[], bool]) -> None:
    while not try_once():
        time.sleep(_BACK_OFF_S)
