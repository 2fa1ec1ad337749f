"""Keys that stand twice in a YAML file: the last alone would hold, and nobody would be told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from otel_straggler.errors import ConfigError, describe


def refuse_repeated_keys(text: str, where: str) -> None:
    """Cost: the file is parsed once. Needs PyYAML.

    Raises:
        ConfigError: a mapping has a key twice; names both lines.
        yaml.YAMLError: it is no YAML.
    """
    import yaml

    for mapping in _mappings(yaml.compose(text, Loader=yaml.SafeLoader), set()):
        lines: dict[str, int] = {}
        for key, _ in mapping.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in lines:
                raise ConfigError(
                    describe(
                        where=f"{where}:{line}",
                        value=key.value,
                        expected=f"each key once, and line {lines[key.value]} has it",
                        remedy="Put what is under both under one of them.",
                    )
                )
            lines[key.value] = line


def _mappings(node: Any, seen: set[int]) -> Iterator[Any]:
    """The mappings of a node and of all within it, each once: aliases may go in circles."""
    import yaml

    if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        yield node
        for pair in node.value:
            for part in pair:
                yield from _mappings(part, seen)
        return
    for part in node.value:
        yield from _mappings(part, seen)
