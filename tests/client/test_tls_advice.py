"""What to do about TLS that failed, for each way in which OpenSSL and its users say so."""

import pytest

from otel_straggler.otlp.clients.tls import tls_advice

VERIFY = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {} (_ssl.c:1006)"


@pytest.mark.parametrize(
    ("reported", "advice"),
    [
        (VERIFY.format("unable to get local issuer certificate"), "name it"),
        (VERIFY.format("self-signed certificate in certificate chain"), "name it"),
        (VERIFY.format("certificate has expired"), "Renew its certificate."),
        (
            VERIFY.format("IP address mismatch, certificate is not valid for '127.0.0.1'."),
            "Use the name that its certificate is for.",
        ),
        (
            "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)",
            "It speaks no TLS on that port: begin the address with http://.",
        ),
        (
            "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required",
            "If it wants a certificate: show it",
        ),
        ("Remote end closed connection without response", "If it wants a certificate: show it"),
        (
            "EOF occurred in violation of protocol (_ssl.c:2427)",
            "If it wants a certificate: show it",
        ),
        ("[Errno 111] Connection refused", ""),
        ("timed out", ""),
    ],
)
def test_each_failure_has_its_way_out(reported: str, advice: str) -> None:
    """And what is not TLS's is left to others."""
    assert tls_advice("https://a:1/v1", reported, ca="name it", own="show it") == advice


def test_a_connection_that_is_cut_without_tls_may_want_it() -> None:
    """A server of TLS drops who does not shake hands."""
    reported = "Remote end closed connection without response"
    advice = tls_advice("http://a:1", reported, ca="", own="")
    assert advice == "If it speaks TLS, begin the address with https://."
    assert tls_advice("http://a:1", "Connection refused", ca="", own="") == ""
