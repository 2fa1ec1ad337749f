"""A certificate for localhost, signed by itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def make_certificate(folder: Path, *, days: int, untried: str) -> Path:
    """The folder with ``cert.pem``, ``key.pem`` and, for who shows both, ``both.pem``.

    Args:
        folder: where they are to be.
        days: how long the certificate is good.
        untried: what was not tried where there is no openssl; under CI that is a failure.
    """
    openssl = shutil.which("openssl")
    if openssl is None:
        sentence = f"openssl is not installed: {untried} was not tried"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", str(days), "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
        ],
        check=True,
        capture_output=True,
    )
    both = (folder / "key.pem").read_text() + (folder / "cert.pem").read_text()
    (folder / "both.pem").write_text(both)
    return folder
