"""How the package is built: the files of an extension are compiled at the same time."""

from __future__ import annotations

import threading
from typing import Any

import pytest

pytest.importorskip("setuptools", reason="setuptools is not installed: it would show how we build")
from setuptools import Distribution, Extension
from setuptools.command import build_ext as of_setuptools

from cuda_ext.build_commands import BuildExt


class Compiler:
    """A compiler whose calls wait for each other: one after the other none would end."""

    def __init__(self, n_at_once: int) -> None:
        self.meeting = threading.Barrier(n_at_once)

    def compile(self, sources: list[str], **options: Any) -> list[str]:
        self.meeting.wait(timeout=20)
        if sources == ["broken.cpp"]:
            raise ValueError("broken.cpp does not compile")
        return [source.replace(".cpp", options["suffix"]) for source in sources]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> BuildExt:
    """`build_ext`, whose original only compiles and keeps what came of it."""

    def build_extension(self: Any, ext: Extension) -> None:
        ext.objects = self.compiler.compile(ext.sources, suffix=".o")

    monkeypatch.setattr(of_setuptools.build_ext, "build_extension", build_extension)
    made = BuildExt(Distribution())
    made.compiler = Compiler(2)
    return made


def test_two_files_are_compiled_at_the_same_time_and_linked_in_their_order(
    command: BuildExt,
) -> None:
    """With the same options; afterwards the compiler is what it was."""
    extension = Extension("native", ["a.cpp", "b.cpp"])
    command.build_extension(extension)
    assert extension.objects == ["a.o", "b.o"]
    assert command.compiler.compile.__func__ is Compiler.compile


def test_a_file_that_does_not_compile_is_the_error_of_the_build(command: BuildExt) -> None:
    """setuptools then leaves the extension out, as it is optional."""
    with pytest.raises(ValueError, match=r"broken\.cpp does not compile"):
        command.build_extension(Extension("native", ["broken.cpp", "b.cpp"]))
    assert command.compiler.compile.__func__ is Compiler.compile
