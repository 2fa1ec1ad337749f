"""A page with the three charts and no collector: static files over loopback."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STATIC = HERE.parents[1] / "otel_straggler" / "page" / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'"
)
"""What the collector allows its page: nothing inline, nothing from elsewhere."""


class _Files(SimpleHTTPRequestHandler):
    """`/static/...` from the package, all else from this folder."""

    extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".js": "text/javascript"}  # noqa: RUF012

    def translate_path(self, path: str) -> str:
        name = path.partition("?")[0].lstrip("/")
        result = STATIC / name[7:] if name.startswith("static/") else HERE / name
        return str(result if result.suffix in {".js", ".css", ".html"} else HERE / "nothing")

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


@contextmanager
def served() -> Iterator[str]:
    """The address of the page, as long as the context lasts."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Files))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/charts_page.html"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
