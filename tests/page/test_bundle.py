"""The page as one file: what its modules may be, and that nothing in it can break out."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.errors import InputError
from otel_straggler.page.bundle import DATA_ID, bundle, json_in_html
from otel_straggler.page.javascript import ScriptError, code_of
from otel_straggler.page.modules import one_script

from .in_node import node_program

HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>otel-straggler</title>
<link rel="icon" href="page/icon.svg">
<link rel="stylesheet" href="page/style.css">
<link rel="stylesheet" href="page/charts.css">
<script type="module" src="page/js/main.js"></script>
</head>
<body><a href="https://example.org/docs">docs</a></body>
</html>
"""
FILES = {
    "index.html": HTML,
    "icon.svg": "<svg/>",
    "style.css": 'body { background: url("data:image/png;base64,AA==") }',
    "charts.css": "canvas { width: 100% }",
    "js/main.js": 'import { greet } from "./greet.js";\ngreet();\n',
    "js/greet.js": "export function greet() { document.title = 'hello'; }\n",
}
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--",
    "<script>",
    "]]>",
    "\u2028\u2029",
    "\ud800",
    "\x00",
    "&lt;",
    "'\"\\",
    "</SCRIPT ",
]


def made(data: Any = None, **changes: str) -> str:
    files = FILES | {name.replace("__", "/").replace("_", "."): t for name, t in changes.items()}

    def read(name: str) -> bytes | None:
        return files[name].encode() if name in files else None

    return bundle(data, title="a run", read=read)


def script_of(**modules: str) -> str:
    return one_script("main.js", lambda name: modules.get(name.removesuffix(".js")))


class Elements(HTMLParser):
    """Every element with its attributes and text, as a browser would separate them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self._is_open = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))
        self._is_open = True

    def handle_endtag(self, tag: str) -> None:
        self._is_open = False

    def handle_data(self, data: str) -> None:
        if self._is_open:
            tag, attributes, text = self.found[-1]
            self.found[-1] = (tag, attributes, text + data)

    def of(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, text) for name, attributes, text in self.found if name == tag]


# --- one file -----------------------------------------------------------------------------------


def test_everything_is_in_the_file_and_nothing_is_asked_for() -> None:
    """Styles, scripts and the icon; a link that a person follows may stay."""
    elements = Elements(made({"run": 1}))
    assert [text for _, text in elements.of("style")] == [FILES["style.css"], FILES["charts.css"]]
    (icon,) = [attributes["href"] for attributes, _ in elements.of("link")]
    assert icon == "data:image/svg+xml;base64," + base64.b64encode(b"<svg/>").decode()
    (data, script) = elements.of("script")
    assert data == ({"type": "application/json", "id": DATA_ID}, '{"run":1}')
    assert script[0] == {"type": "module"}
    assert "document.title" in script[1]
    assert elements.of("title")[0][1].strip() == "a run"


def test_the_policy_names_the_hashes_of_what_may_run() -> None:
    """Computed here from the text between the tags, as a browser does; it comes before them."""
    page = made({"a": HOSTILE})
    elements = Elements(page)
    (policy,) = [
        attributes["content"]
        for attributes, _ in elements.of("meta")
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None

    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    parts = dict(part.split(" ", 1) for part in policy.split("; "))
    (script,) = [text for attributes, text in elements.of("script") if "id" not in attributes]
    assert parts == {
        "default-src": "'none'",
        "script-src": hashed(script),
        "style-src": " ".join(hashed(text) for _, text in elements.of("style")),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert page.index("http-equiv") < page.index("<style") < page.index("<script")


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_can_end_the_element_that_holds_the_data(text: str) -> None:
    """As a value, as a key, and in the title; it is the same text again when it is read."""
    page = made({text: [text]})
    elements = Elements(page)
    assert len(elements.of("script")) == 2
    (held,) = [body for attributes, body in elements.of("script") if "id" in attributes]
    assert json.loads(held) == {text: [text]}
    assert held.isascii()
    assert not re.search("[<>&]", held)
    titled = bundle({}, title="</title><script>", read=lambda n: FILES[n].encode())
    assert len(Elements(titled).of("script")) == 2


def test_nan_is_refused() -> None:
    """It is no JSON, so the page could not read it."""
    with pytest.raises(ValueError, match="JSON"):
        json_in_html({"a": float("nan")})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"style_css": "\n@import 'x.css';"}, "style.css, line 2: got '@import'"),
        ({"style_css": "a { background: url(/page/x.png) }"}, "url"),
        ({"style_css": "a { content: '</style>' }"}, "</style"),
        ({"index_html": HTML.replace("<body>", '<body><img src="page/x.png">')}, "src="),
        ({"index_html": HTML.replace("<body>", '<link rel="preload" href="x">')}, "href="),
        ({"index_html": HTML.replace('<meta charset="utf-8">', "")}, "charset"),
        ({"index_html": HTML.replace('type="module"', "")}, "a script of the page"),
        ({"index_html": HTML.replace("icon.svg", "other.svg")}, "other.svg"),
        ({"index_html": HTML.replace("style.css", "other.css")}, "other.css"),
    ],
)
def test_a_page_that_would_load_something_is_refused(changes: dict[str, str], told: str) -> None:
    """The sentence names the file and what stands there."""
    with pytest.raises(InputError, match=re.escape(told)):
        made({}, **changes)


def test_the_pages_own_files_keep_the_rules() -> None:
    """The package's page becomes one file."""
    elements = Elements(bundle({"runs": {}}, title="own"))
    assert len(elements.of("script")) == 2


# --- modules ------------------------------------------------------------------------------------


def test_modules_come_after_what_they_import_and_once() -> None:
    """In the order in which a browser would run them."""
    script = script_of(
        main='import {\n  a,\n  b,\n} from "./one.js";\nimport { c } from "./two.js";\na(b, c);\n',
        one='import { c } from "./two.js";\nexport const b = c + 1;\nexport function a() {}\n',
        two="export const c = 1;\n",
    )
    assert script == (
        "// two.js\nconst c = 1;\n// one.js\n\nconst b = c + 1;\nfunction a() {}\n"
        "// main.js\n\n\n\n\n\na(b, c);\n"
    )


BROKEN = {
    "default import": ('\nimport a from "./one.js";', "main.js, line 2"),
    "renamed": ('import { a as b } from "./one.js";', "import { a, b }"),
    "star": ('import * as one from "./one.js";', "import { a, b }"),
    "for its effects": ('import "./one.js";', "import { a, b }"),
    "another site": ('import { a } from "https://x.org/one.js";', "import { a, b }"),
    "later": ('const one = await import("./one.js");', "nothing else that is loaded"),
    "meta": ("const here = import.meta.url;", "nothing else that is loaded"),
    "list of exports": ("const x = 1;\nexport { x };", "main.js, line 2"),
    "default": ("export default function x() {}", "export before a function"),
    "re-export": ('export { a } from "./one.js";', "export before a function"),
    "let": ("export let x = 1;", "export before a function"),
    "missing": ('import { a } from "./three.js";', "an import of three.js"),
    "not exported": ('import { hidden } from "./one.js";', "what it exports: a"),
    "same name": ('import { a } from "./one.js";\nconst hidden = 2;', "main.js, line 2"),
    "imported name again": ('import { a } from "./one.js";\nlet a = 2;', "one.js, line 1"),
    "two at once": ("const x = 1, y = 2;", "one new top-level name"),
    "taken apart": ("const { x, y } = window;", "one new top-level name"),
    "circle": ('import { back } from "./back.js";', "in a circle: main.js -> back.js -> main.js"),
    "end of element": ('const x = "</Script>";', "</Script"),
    "comment": ("// <!-- \n", "<!--"),
    "string": ('const x = "abc;\n', "main.js, line 1"),
    "bracket": ("function x() {\n", "never closed"),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_an_error_that_names_file_and_line(rule: str) -> None:
    """And what was expected."""
    text, told = BROKEN[rule]
    with pytest.raises(InputError, match=re.escape(told)):
        script_of(
            main=text,
            one="export function a() {}\nconst hidden = 1;\n",
            back='import { x } from "./main.js";\nexport function back() {}\n',
        )


def test_words_in_strings_comments_and_inner_scopes_are_no_modules_edges() -> None:
    """They stay as they are."""
    text = (
        "// import { x } from 'y'\n/* export\nconst b = 1 */\n"
        "const a = 'import \\' export';\n"
        "const t = `export ${[1].map((b) => `import ${b}`)} { `;\n"
        "const r = /[/'\"`{]import/g;\n"
        "const q = 4 / 2 / 1;\n"
        "function f() { const a = 1; const { b, c } = {}; return a.import / b; }\n"
    )
    assert script_of(main=text) == f"// main.js\n{text}"


def test_code_is_told_from_text() -> None:
    """Comments, strings, templates and regular expressions are blanks of the same length."""
    script = "a(`x${ {b: '}'} }y`, /\\/[/]/, 1 / 2) // c"
    code = code_of(script)
    assert len(code.text) == len(script)
    assert re.sub(" +", " ", code.text) == "a( { {b: ' '} } `, / /, 1 / 2) "
    for broken in ("'a\n'", "`a", "/* a", "(]", "}", "f(", "a = /b"):
        with pytest.raises(ScriptError):
            code_of(broken)


def test_the_pages_own_modules_are_one_script_that_parses(tmp_path: Path) -> None:
    """A real engine reads the whole without a word."""
    page = bundle({}, title="own")
    (script,) = [text for attributes, text in Elements(page).of("script") if "id" not in attributes]
    file = tmp_path / "page.mjs"
    file.write_text(script)
    node = node_program("whether the script is JavaScript")
    done = subprocess.run(
        [node, "--check", file], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
