"""No page in a browser can change anything or send telemetry (DNS rebinding, forms, fetch)."""

from __future__ import annotations

from typing import Any

import pytest

from otel_straggler.collector.ingest.http import OtlpHttp

JSON = {"Content-Type": "application/json"}
MAINTENANCE = b'{"node": "n", "seconds": 60, "reason": "r"}'


def _send(kit: Any, live: Any, listener: str, path: str, **headers: str) -> int:
    body = MAINTENANCE if listener == "metrics" else b"{}"
    own = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {**JSON, **own}
    status: int = kit.ask(live.addresses[listener], "POST", path, body, sent).status
    return status


BOTH = pytest.mark.parametrize(
    ("listener", "path"),
    [
        ("metrics", "/v1/maintenance"),
        ("otlp_http", "/v1/traces"),
        ("otlp_http", "/v1/metrics"),
        ("otlp_http", "/v1/logs"),
    ],
)


@BOTH
def test_a_rebound_name_is_refused(live: Any, kit: Any, listener: str, path: str) -> None:
    """A page of evil.example whose name now leads here is of the same origin to its browser."""
    port = live.addresses[listener].rpartition(":")[2]
    host = f"evil.example:{port}"
    assert _send(kit, live, listener, path, Host=host, Origin=f"http://{host}") == 403
    assert _send(kit, live, listener, path, Host=host) == 403
    assert _send(kit, live, listener, path) == 200


@BOTH
def test_a_page_of_another_origin_is_refused(live: Any, kit: Any, listener: str, path: str) -> None:
    """Also one of this machine at another port, and one without a name."""
    for origin in ("http://evil.example", "http://10.1.2.3", "null", "http://127.0.0.1:1", ""):
        assert _send(kit, live, listener, path, Origin=origin) == 403, origin
    assert _send(kit, live, listener, path, Sec_Fetch_Site="cross-site") == 403
    own = f"http://{live.addresses[listener]}"
    assert _send(kit, live, listener, path, Origin=own, Sec_Fetch_Site="same-origin") == 200


@BOTH
def test_what_a_form_can_send_is_refused(live: Any, kit: Any, listener: str, path: str) -> None:
    """A browser sends these to any origin without asking it first."""
    types = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")
    for content_type in (*types, "text/plain; x=application/json", ""):
        assert _send(kit, live, listener, path, Content_Type=content_type) == 415, content_type


def test_a_configured_name_of_a_proxy_is_an_own_origin(start: Any, kit: Any) -> None:
    """The proxy may have changed the Host."""
    live = start(metrics__allowed_hosts=("straggler.example.org",))
    origin = "https://straggler.example.org"
    assert _send(kit, live, "metrics", "/v1/maintenance", Origin=origin) == 200
    host = "straggler.example.org"
    assert _send(kit, live, "metrics", "/v1/maintenance", Origin=origin, Host=host) == 200


def test_on_the_network_a_service_may_have_any_name_but_a_page_none(start: Any, kit: Any) -> None:
    """As straggler.monitoring.svc; a browser is known by its Origin there."""
    live = start()
    app: OtlpHttp = live.collector._servers._otlp
    app._checks_host = False
    host = "straggler.monitoring.svc:4318"
    assert _send(kit, live, "otlp_http", "/v1/traces", Host=host) == 200
    assert _send(kit, live, "otlp_http", "/v1/traces", Host=host, Origin=f"http://{host}") == 403
