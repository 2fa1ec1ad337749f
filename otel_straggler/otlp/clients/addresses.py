"""Which proxy leads to a URL, and whether C++ can reach an endpoint itself."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from otel_straggler import semconv
from otel_straggler._version import __version__
from otel_straggler.config import Endpoint
from otel_straggler.secret import reveal

_OURS = {"content-type", "content-length", "content-encoding", "transfer-encoding"}
"""Headers that only the transport can know."""


Address = tuple[str, str, bytes, str]
"""Host, port, the head of every request but for Content-Length and the empty line, and the header
of a scorer; see ``Target`` in http_connection.hpp."""


def why_not_native(endpoint: Endpoint) -> str:
    """Why requests to ``endpoint`` need Python; empty if they do not."""
    if not endpoint.is_enabled:
        return ""
    if endpoint.protocol != "http/protobuf":
        return f"the protocol is {endpoint.protocol}"
    url = urlsplit(endpoint.url)
    if url.scheme != "http":
        return f"the scheme is {url.scheme}"
    if endpoint.compression != "none":
        return f"the compression is {endpoint.compression}"
    if url.username is not None:
        return "the URL holds a user"
    if proxy_of(endpoint.url):
        return "the environment names a proxy"
    return "" if _address(endpoint, url) else "the URL or a header cannot be sent as it is"


def address_of(endpoint: Endpoint) -> Address:
    """Of an endpoint for which :func:`why_not_native` is empty."""
    address = _address(endpoint, urlsplit(endpoint.url))
    return address or ("", "", b"", semconv.SCORER_HEADER.lower())  # of one that is switched off


def _address(endpoint: Endpoint, url: SplitResult) -> Address | None:
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    headers = {"Host": url.netloc, "User-Agent": f"otel-straggler/{__version__}"}
    headers |= {name: value for name, value in endpoint.headers if name.lower() not in _OURS}
    lines = [f"POST {target} HTTP/1.1", "Content-Type: application/x-protobuf"]
    lines += [f"{name}: {reveal(value)}" for name, value in _last_of_each(headers).items()]
    try:
        host = (url.hostname or "").encode("idna").decode()
        head = [line.encode("latin-1") for line in lines]
        port = url.port or 80
    except (UnicodeError, ValueError):
        return None
    if not host or any(set(line) & set(b"\r\n\0") for line in head) or " " in target:
        return None
    return host, str(port), b"\r\n".join(head) + b"\r\n", semconv.SCORER_HEADER.lower()


def _last_of_each(headers: dict[str, str]) -> dict[str, str]:
    """Names of headers know no case; the user's word comes last and counts."""
    spelt = {name.lower(): name for name in headers}
    return {spelt[low]: headers[spelt[low]] for low in spelt}


def proxy_of(url: str) -> str:
    """The proxy that the environment names for a URL; empty if there is none.

    As `requests` and curl decide it: networks such as ``10.0.0.0/8`` may stand in no_proxy.
    """
    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
    if not proxy or _is_bypassed(parts, proxies.get("no", "")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_bypassed(parts: SplitResult, no_proxy: str) -> bool:
    host = parts.hostname or ""
    if proxy_bypass(host) or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return True
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(ip in network for network in map(_network, no_proxy.split(",")) if network)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        return None


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
