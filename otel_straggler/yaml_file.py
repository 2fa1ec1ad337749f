"""YAML files of settings: read safely, with errors that name the line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from otel_straggler.errors import ConfigError, UnavailableError


def read_yaml(path: Path, *, see: str, what: str = "--config") -> object:
    """The document of a YAML file; None if it is empty.

    Args:
        see: where all settings are listed; what: it is; both for errors.

    Raises:
        ConfigError: it cannot be read, is no YAML, or has a key twice.
        UnavailableError: PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError as error:
        msg = (
            f"{what} needs the package PyYAML, which is not installed. "
            "Install it with: pip install 'otel-straggler[collector]'"
        )
        raise UnavailableError(msg) from error
    try:
        return _load_yaml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        remedy = f"Check the path and its permissions ({error})."
        raise ConfigError.of(what, str(path), "a readable UTF-8 file", remedy) from None
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", -1) + 1
        problem = getattr(error, "problem", None) or "cannot be read"
        if "'\\t'" in problem:
            problem += " (indent with blanks, not with tabs)"
        else:  # a name of an alias or a tag may be a password that begins with * or !
            problem = re.sub(r"(?<= )'[^']{2,}'", "'...'", problem)
        raise ConfigError(
            f"{path}:{line}: not YAML: {problem}; expected 'key: value' lines. "
            f"See {see} for every setting."
        ) from None


def _load_yaml(content: str, where: str) -> object:
    """The document; ConfigError for a mapping with a key twice, yaml.YAMLError for no YAML."""
    import yaml

    class Loader(yaml.SafeLoader):
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
