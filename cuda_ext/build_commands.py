"""How the package is built: in a folder of its own, which is gone afterwards, on all cores.

setuptools builds in ``build/`` next to pyproject.toml, leaves it there, and takes from it what an
earlier build has made, with modules that no longer exist and an extension of older sources. It also
compiles one file after another, while somebody waits for ``pip install .``.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from setuptools import Extension
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext


class Build(build):
    """``build`` in a new temporary folder, which is removed when the process ends."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.build_base = tempfile.mkdtemp(prefix="otel-straggler-build-")
        atexit.register(shutil.rmtree, self.build_base, ignore_errors=True)


class BuildExt(build_ext):
    """``build_ext`` that compiles the files of an extension at the same time, one on each core."""

    def build_extension(self, ext: Extension) -> None:
        one_after_the_other = self.compiler.compile

        def compile_all(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
                each = pool.map(lambda source: one_after_the_other([source], **options), sources)
                return [compiled for objects in each for compiled in objects]

        self.compiler.compile = compile_all
        try:
            super().build_extension(ext)
        finally:
            self.compiler.compile = one_after_the_other
