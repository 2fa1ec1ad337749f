"""What is code in a JavaScript file: enough of the language to find its modules' edges, no more."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_OPENING: Final = "([{"
_CLOSING: Final = ")]}"
_BEFORE_A_VALUE: Final = re.compile(
    r"(?:^|[-(,=:\[!&|?{};+*%<>~^]|\b(?:return|typeof|case|in|of|delete|void|throw|new|else|do"
    r"|instanceof|await|yield))\s*$"
)
"""After this a slash begins a regular expression; after anything else it divides."""
_LOOK_BACK: Final = 20
_MARK: Final = re.compile(r"[\'\"`/()\[\]{}]")
"""What more than plain code may begin with."""


class ScriptError(ValueError):
    """Text that is no script as far as it was read; ``at`` is where, counted in characters."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.at = at


@dataclass(slots=True)
class Code:
    """A script of which only code is left.

    Attributes:
        text: as long as the script; comments and the insides of strings, templates and regular
            expressions are blanks, ends of lines stay.
        depth: for each character, how many brackets are open there.
    """

    text: str
    depth: list[int] = field(default_factory=list)


def code_of(script: str) -> Code:
    """
    >>> code_of("a = 'b{'; // c").text.rstrip()
    "a = '  ';"

    Raises:
        ScriptError: a string, template, comment or bracket does not end.

    Cost: O(length).
    """
    return _Reader(script).read()


class _Reader:
    def __init__(self, script: str) -> None:
        self._script = script
        self._kept = [" " if character != "\n" else "\n" for character in script]
        self._depth = [0] * len(script)
        self._open: list[int] = []
        """Where brackets were opened; a template's ``${`` is its dollar sign."""
        self._at = 0

    def read(self) -> Code:
        while self._at < len(self._script):
            self._step()
        if self._open:
            raise ScriptError("this bracket is never closed", self._open[-1])
        return Code("".join(self._kept), self._depth)

    def _step(self) -> None:
        """Plain code, if any, and what comes after it."""
        script = self._script
        mark = _MARK.search(script, self._at)
        at = len(script) if mark is None else mark.start()
        self._kept[self._at : at] = script[self._at : at]
        self._skip_to(at)
        if mark is None:
            return
        character = mark.group()
        if script.startswith("//", at):
            self._skip_to(_end(script, "\n", at))
        elif script.startswith("/*", at):
            self._skip_to(_required(script, "*/", at + 2, at) + 2)
        elif character in "'\"":
            self._skip_inside(_end_of_string(script, at))
        elif character == "`":
            self._template(at)
        elif character == "/" and self._begins_a_value(at):
            self._skip_inside(_end_of_regex(script, at))
        elif character == "}" and self._open and script[self._open[-1]] == "$":
            self._open.pop()
            self._kept[at] = "}"
            self._template(at)
        else:
            self._keep(character)

    def _keep(self, character: str) -> None:
        if character in _CLOSING:
            if not self._open or _CLOSING.index(character) != _OPENING.index(
                self._script[self._open[-1]]
            ):
                raise ScriptError("this bracket was never opened", self._at)
            self._open.pop()
        self._kept[self._at] = character
        self._depth[self._at] = len(self._open)
        if character in _OPENING:
            self._open.append(self._at)
        self._at += 1

    def _template(self, start: int) -> None:
        """From a backtick, or the end of an expression, to the next expression or its end."""
        at = start + 1
        while at < len(self._script):
            if self._script[at] == "\\":
                at += 2
                continue
            if self._script[at] == "`":
                self._kept[at] = "`"
                self._skip_to(at + 1)
                return
            if self._script.startswith("${", at):
                self._kept[at + 1] = "{"
                self._skip_to(at + 2)
                self._open.append(at)
                return
            at += 1
        raise ScriptError("this template never ends", start)

    def _begins_a_value(self, at: int) -> bool:
        """Comments before the slash are blanks already."""
        before = "".join(self._kept[max(0, at - _LOOK_BACK) : at])
        return _BEFORE_A_VALUE.search(before) is not None

    def _skip_inside(self, last: int) -> None:
        """Up to and with ``last``; the first and last characters stay, as marks of a value."""
        self._kept[self._at] = self._script[self._at]
        self._kept[last] = self._script[last]
        self._skip_to(last + 1)

    def _skip_to(self, at: int) -> None:
        self._depth[self._at : at] = [len(self._open)] * (at - self._at)
        self._at = at


def _end(script: str, mark: str, at: int) -> int:
    found = script.find(mark, at)
    return len(script) if found < 0 else found


def _required(script: str, mark: str, at: int, start: int) -> int:
    found = script.find(mark, at)
    if found < 0:
        raise ScriptError("this comment never ends", start)
    return found


def _end_of_string(script: str, start: int) -> int:
    at, quote = start + 1, script[start]
    while at < len(script) and script[at] != "\n":
        if script[at] == quote:
            return at
        at += 2 if script[at] == "\\" else 1
    raise ScriptError("this string does not end in its line", start)


def _end_of_regex(script: str, start: int) -> int:
    at, is_in_class = start + 1, False
    while at < len(script) and script[at] != "\n":
        character = script[at]
        if character == "/" and not is_in_class:
            return at
        is_in_class = character == "[" or (is_in_class and character != "]")
        at += 2 if character == "\\" else 1
    raise ScriptError("this regular expression does not end in its line", start)
