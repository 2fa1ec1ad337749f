"""The page's modules as one script, in the order in which a browser would run them.

That is possible without a parser because the modules keep to rules: only
``import { a, b } from "./x.js";``, only ``export function|async function|const|class``, top-level
names that are unique over all modules, and nothing that is loaded later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from otel_straggler.errors import InputError, describe
from otel_straggler.page.javascript import Code, ScriptError, code_of

_IMPORT: Final = re.compile(
    r"""import\s*\{(\s*[\w$]+(?:\s*,\s*[\w$]+)*\s*,?\s*)\}\s*from\s*["']\./([\w-]+(?:/[\w-]+)*\.js)["']\s*;"""
)
_EXPORT: Final = re.compile(r"export\s+(?=(?:async\s+function|function|const|class)\b)")
_WORD: Final = re.compile(r"\b(?:import|export)\b")
_DECLARATION: Final = re.compile(
    r"\b(?:(?:async\s+)?function\s*\*?|class|const|let|var)(?=[\s{\[*])\s*([\w$]*)"
)
_NAME: Final = re.compile(r"[\w$]+")
_LOOK_BACK: Final = 40
_REMEDY: Final = "docs/operate/live-page.md has the rules for the page's modules."


@dataclass(frozen=True, slots=True)
class Module:
    """One file.

    Attributes:
        name: file name below ``js``.
        script: without its imports, and without the word ``export``; as many lines as before.
        imports: (module, names, line) in order.
        exports: names.
        declared: every top-level name, with its line.
    """

    name: str
    script: str
    imports: tuple[tuple[str, tuple[str, ...], int], ...]
    exports: frozenset[str]
    declared: dict[str, int]


def one_script(entry: str, read: Callable[[str], str | None]) -> str:
    """The script of a module and all that it imports.

    Args:
        entry: name of the first module.
        read: gives the text of a module, None if there is no such file.

    Raises:
        InputError: a module is missing or breaks a rule; the sentence names file and line.
    """
    ordered = _in_order(entry, read)
    _check_imports(ordered)
    _check_unique(ordered.values())
    return "".join(f"// {m.name}\n{m.script.rstrip()}\n" for m in ordered.values())


def _in_order(entry: str, read: Callable[[str], str | None]) -> dict[str, Module]:
    """Each module after all that it imports."""
    ordered: dict[str, Module] = {}
    under_way: list[str] = []

    def visit(name: str, importer: str, line: int) -> None:
        if name in ordered:
            return
        if name in under_way:
            circle = " -> ".join([*under_way[under_way.index(name) :], name])
            _refuse(importer, line, f"modules in a circle: {circle}", "imports that point one way")
        text = read(name)
        if text is None:
            _refuse(importer, line, f"an import of {name}", "a module that is there")
        under_way.append(name)
        module = read_module(name, text)
        for needed, _, at_line in module.imports:
            visit(needed, name, at_line)
        under_way.pop()
        ordered[name] = module

    visit(entry, "the page", 0)
    return ordered


def _check_imports(modules: dict[str, Module]) -> None:
    for module in modules.values():
        for needed, names, line in module.imports:
            for name in names:
                if name not in modules[needed].exports:
                    wanted = ", ".join(sorted(modules[needed].exports)) or "nothing"
                    value = f"an import of {name} from {needed}"
                    _refuse(module.name, line, value, f"what it exports: {wanted}")


def _check_unique(modules: Iterable[Module]) -> None:
    seen: dict[str, tuple[str, int]] = {}
    for module in modules:
        for name, line in module.declared.items():
            if name in seen:
                other, at_line = seen[name]
                value = f"a second top-level name {name}"
                expected = f"another name than in {other}, line {at_line}"
                _refuse(module.name, line, value, expected)
            seen[name] = (module.name, line)


# --- one module --------------------------------------------------------------------------------


def read_module(name: str, text: str) -> Module:
    """
    Raises:
        InputError: it breaks a rule.
    """
    try:
        code = code_of(text)
    except ScriptError as error:
        _refuse(name, _line(text, error.at), str(error), "a script that can be read")
    _check_markup(name, text)
    kept = list(text)
    imports: list[tuple[str, tuple[str, ...], int]] = []
    exported_at: list[int] = []
    for word in _WORD.finditer(code.text):
        at, line = word.start(), _line(text, word.start())
        if code.text[at - 1 : at] == ".":  # a property of that name
            continue
        if word.group() == "import":
            found = _import_at(name, text, at, line)
            imports.append((found.group(2), tuple(_NAME.findall(found.group(1))), line))
            _blank(kept, at, found.end())
        else:
            exported_at.append(_exported_at(name, text, code, at, line))
            _blank(kept, at, exported_at[-1])
    declared = dict(_declared(name, text, code))
    exports = frozenset(_declared_at(code, at) for at in exported_at)
    return Module(name, "".join(kept), tuple(imports), exports, declared)


def _import_at(name: str, text: str, at: int, line: int) -> re.Match[str]:
    found = _IMPORT.match(text, at)
    if found is None:
        expected = 'import { a, b } from "./x.js"; and nothing else that is loaded'
        _refuse(name, line, _beginning(text, at), expected)
    return found


def _exported_at(name: str, text: str, code: Code, at: int, line: int) -> int:
    """Where what is exported begins."""
    found = _EXPORT.match(text, at)
    if found is None or code.depth[at]:
        expected = "export before a function, async function, const or class"
        _refuse(name, line, _beginning(text, at), expected)
    return found.end()


def _declared(name: str, text: str, code: Code) -> Iterator[tuple[str, int]]:
    seen: set[str] = set()
    for found in _DECLARATION.finditer(code.text):
        at, declared = found.start(), found.group(1)
        if code.depth[at] or not _begins_a_statement(code.text, at):
            continue
        line = _line(text, at)
        if not declared or declared in seen or _has_a_second(code, found):
            _refuse(name, line, _beginning(text, at), "one new top-level name in a declaration")
        seen.add(declared)
        yield declared, line


def _begins_a_statement(code: str, at: int) -> bool:
    """``const a = function b() {}`` declares no b."""
    before = re.sub(r"\bexport\s*$", "", code[max(0, at - _LOOK_BACK) : at]).rstrip(" \t")
    return not before or before[-1] in "\n;}"


def _has_a_second(code: Code, found: re.Match[str]) -> bool:
    """``const a = 1, b = 2;``"""
    if not found.group().startswith(("const", "let", "var")):
        return False
    for at in range(found.end(), len(code.text)):
        if code.depth[at] == 0 and code.text[at] in ",;":
            return code.text[at] == ","
    return False


def _declared_at(code: Code, at: int) -> str:
    found = _DECLARATION.match(code.text, at)
    return "" if found is None else found.group(1)


def _check_markup(name: str, text: str) -> None:
    """What would end the element that holds the script."""
    found = re.search(r"</script|<!--|<script", text, re.IGNORECASE)
    if found is not None:
        line = _line(text, found.start())
        _refuse(name, line, found.group(), "a script that may stand in a page: write it in parts")


def _blank(kept: list[str], start: int, end: int) -> None:
    for at in range(start, end):
        if kept[at] != "\n":
            kept[at] = ""


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _beginning(text: str, at: int) -> str:
    return text[at:].partition("\n")[0][:80]


def _refuse(name: str, line: int, value: str, expected: str) -> NoReturn:
    where = f"{name}, line {line}" if line else name
    raise InputError(describe(where=where, value=value, expected=expected, remedy=_REMEDY))
