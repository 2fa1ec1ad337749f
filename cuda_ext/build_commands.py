"""Where the package is built: in a folder of its own, which is gone afterwards.

setuptools builds in ``build/`` next to pyproject.toml, leaves it there, and takes from it what an
earlier build has made, with modules that no longer exist and an extension of older sources.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile

from setuptools.command.build import build


class Build(build):
    """``build`` in a new temporary folder, which is removed when the process ends."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.build_base = tempfile.mkdtemp(prefix="otel-straggler-build-")
        atexit.register(shutil.rmtree, self.build_base, ignore_errors=True)
