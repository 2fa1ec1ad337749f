"""YAML files of settings: read safely, with errors that name the line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from otel_straggler.errors import ConfigError, InputError, UnavailableError
from otel_straggler.regular_files import read_small_text
from otel_straggler.strict_json import MAX_DEPTH, SMALL_BYTES

_MAX_VALUES: Final = 100_000


def read_yaml(path: Path, *, see: str, what: str = "--config") -> object:
    """The document of a YAML file; None if it is empty.

    Args:
        see: where all settings are listed; what: it is; both for errors.

    Raises:
        ConfigError: it cannot be read, is no YAML, or has a key twice.
        UnavailableError: PyYAML is not installed.
    """
    text = read_yaml_text(path, what)
    return parse_yaml(text, str(path), f"See {see} for every setting.", what)


def read_yaml_text(path: Path, what: str, max_bytes: int = SMALL_BYTES) -> str:
    """Raises:
    ConfigError: it cannot be read.
    """
    try:
        return read_small_text(path, max_bytes, follow=True)
    except (OSError, InputError) as error:
        remedy = f"Check the path and its permissions ({error})."
        raise ConfigError.of(what, str(path), "a readable UTF-8 file", remedy) from None


def parse_yaml(content: str, where: str, remedy: str, what: str = "--config") -> object:
    """The document; None if there is none.

    Raises:
        ConfigError: it is no YAML, has a key twice, or is nested without end.
        UnavailableError: PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError as error:
        msg = (
            f"{what} needs the package PyYAML, which is not installed. "
            "Install it with: pip install PyYAML, or: pip install 'otel-straggler[collector]'"
        )
        raise UnavailableError(msg) from error
    try:
        return _load_yaml(content, where)
    except ConfigError:
        raise
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", -1) + 1
        problem = getattr(error, "problem", None) or "cannot be read"
        if "'\\t'" in problem:
            problem += " (indent with blanks, not with tabs)"
    except (ValueError, TypeError, RecursionError) as error:  # of dates, digits, and nesting
        line = 0
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    at = f"{where}:{line}" if line else where
    raise ConfigError(f"{at}: not YAML: {problem}; expected 'key: value' lines. {remedy}")


def _load_yaml(content: str, where: str) -> object:
    """The document; ConfigError for a mapping with a key twice, yaml.YAMLError for no YAML."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_document(self) -> Any:
            node = super().compose_document()
            _count_values(node, {}, 0)
            return node

        def compose_mapping_node(self, anchor: Any) -> Any:
            node = super().compose_mapping_node(anchor)
            lines: dict[str, int] = {}
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                line = key.start_mark.line + 1
                if key.value in lines:
                    raise ConfigError.of(
                        f"{where}:{line}",
                        key.value,
                        f"each key once, and line {lines[key.value]} has it",
                        "Put what is under both under one of them.",
                    )
                lines[key.value] = line
            return node

    return yaml.load(content, Loader)  # noqa: S506  it is a SafeLoader


def _count_values(node: Any, known: dict[int, int], depth: int) -> int:
    """Values of a document, those of an alias as often as it is used.

    Raises:
        ValueError: more than 100,000, nested too deeply, or an alias of what it is in.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if id(node) not in known:
        known[id(node)] = 0
        inner = node.value if isinstance(node.value, list) else []
        each = [one for pair in inner for one in (pair if isinstance(pair, tuple) else (pair,))]
        known[id(node)] = 1 + sum(_count_values(one, known, depth + 1) for one in each)
    if not 0 < known[id(node)] <= _MAX_VALUES:
        raise ValueError("aliases of aliases without end, or more than 100,000 values")
    return known[id(node)]
