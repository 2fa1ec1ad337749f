"""Protobuf messages as trees of fields, to encode them in every way that is allowed."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

_GROUP, _GROUP_END = 3, 4
_UNKNOWN = range(100, 120)


@dataclass
class Node:
    """One field: ``inner`` is a message, bytes, a varint, or (``fixed``) a number as bytes."""

    number: int
    inner: Any
    fixed: bool = False
    fields: dict[int, Any] | None = None
    """Of a message: what its fields are, by number."""
    name: str = ""
    """Of a message: its type."""

    def encode(self, rng: random.Random) -> bytes:
        """The message of the root; numbers are padded now and then."""
        return self.content(rng)

    def content(self, rng: random.Random) -> bytes:
        if isinstance(self.inner, list):
            return b"".join(field.as_field(rng) for field in self.inner)
        return bytes(self.inner)

    def as_field(self, rng: random.Random) -> bytes:
        if isinstance(self.inner, int):
            return varint(self.number << 3, rng, 5) + varint(self.inner, rng, 10)
        content = self.content(rng)
        if self.fixed:
            return varint(self.number << 3 | (1 if len(content) == 8 else 5), rng, 5) + content
        return varint(self.number << 3 | 2, rng, 5) + varint(len(content), rng, 5) + content


def varint(value: int, rng: random.Random, longest: int) -> bytes:
    """As short as it can be, or padded with zeros."""
    parts = [value & 0x7F]
    while value := value >> 7:
        parts.append(value & 0x7F)
    while rng.random() < 0.05 and len(parts) < longest:
        parts.append(0)
    return bytes([*(part | 0x80 for part in parts[:-1]), parts[-1]])


def tree_of(message: Any, number: int = 0) -> Node:
    """A message of protobuf as a tree."""
    fields: list[Node] = []
    for field, value in message.ListFields():
        is_single = isinstance(value, (str, bytes, int, float)) or hasattr(value, "ListFields")
        fields += [_node(field, one) for one in ([value] if is_single else value)]
    kind = message.DESCRIPTOR
    return Node(number, fields, fields=dict(kind.fields_by_number), name=kind.name)


def _node(field: Any, value: Any) -> Node:
    kind = field.type
    if kind == FieldDescriptor.TYPE_MESSAGE:
        return tree_of(value, field.number)
    if kind == FieldDescriptor.TYPE_STRING:
        return Node(field.number, value.encode())
    if kind == FieldDescriptor.TYPE_BYTES:
        return Node(field.number, value)
    if kind == FieldDescriptor.TYPE_DOUBLE:
        return Node(field.number, struct.pack("<d", value), fixed=True)
    if kind in (FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64):
        return Node(field.number, struct.pack("<Q", value % 2**64), fixed=True)
    if kind == FieldDescriptor.TYPE_FIXED32:
        return Node(field.number, struct.pack("<I", value), fixed=True)
    if kind == FieldDescriptor.TYPE_SINT32:
        return Node(field.number, (value << 1 ^ value >> 31) % 2**32)
    return Node(field.number, int(value) % 2**64)


def disturb(node: Node, rng: random.Random) -> None:
    """Change how a tree is encoded, all the way down; it stays a valid message of its type."""
    if node.fields is None:
        return
    for field in node.inner:
        disturb(field, rng)
    if rng.random() < 0.2:
        rng.shuffle(node.inner)
    if rng.random() < 0.1 and node.name != "AnyValue":  # newer kinds of values
        node.inner.insert(rng.randint(0, len(node.inner)), unknown(rng))
    if node.inner and rng.random() < 0.1:
        _split(node, rng.choice(node.inner), rng)
    if node.inner and rng.random() < 0.05:
        node.inner.insert(rng.randint(0, len(node.inner)), rng.choice(node.inner))
    if rng.random() < 0.05:
        _add_wrong_type(node, rng)


def _split(node: Node, field: Node, rng: random.Random) -> None:
    """A message in two parts, which a single field puts together and a repeated one does not."""
    if isinstance(field.inner, list) and not field.fixed:
        at = rng.randint(0, len(field.inner))
        node.inner.append(Node(field.number, field.inner[at:], False, field.fields, field.name))
        field.inner = field.inner[:at]


def pack_some(node: Node, rng: random.Random) -> None:
    """Put numbers of repeated fields together, some in one packed field and some not at all."""
    packed: list[Node] = []
    for field in node.inner:
        if isinstance(field.inner, list):
            pack_some(field, rng)
        before = packed[-1] if packed else field
        if _is_packable(node, field) and before.number == field.number and rng.random() < 0.7:
            if before is not field and isinstance(before, _Packed):
                before.inner.append(field)
                continue
            packed.append(_Packed(field.number, [field]))
        else:
            packed.append(field)
    node.inner = packed


def _is_packable(node: Node, field: Node) -> bool:
    is_repeated = node.fields is not None and node.fields[field.number].default_value == []
    return is_repeated and (field.fixed or isinstance(field.inner, int))


class _Packed(Node):
    """Numbers without their tags."""

    def content(self, rng: random.Random) -> bytes:
        return b"".join(
            varint(n.inner, rng, 10) if isinstance(n.inner, int) else n.inner for n in self.inner
        )


def _add_wrong_type(node: Node, rng: random.Random) -> None:
    """A known number with a type that is not its own counts as unknown."""
    assert node.fields is not None
    number = rng.choice(list(node.fields))
    kind = node.fields[number].type
    if kind in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_STRING):
        node.inner.append(Node(number, rng.randrange(2**64)))
    elif node.fields[number].default_value == []:
        return  # repeated numbers may be packed: that type is their own too
    elif kind in (FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_DOUBLE):
        node.inner.append(Node(number, b"\xff" * 3))


class _Group(Node):
    def as_field(self, rng: random.Random) -> bytes:
        ends = [varint(self.number << 3 | kind, rng, 5) for kind in (_GROUP, _GROUP_END)]
        return ends[0] + self.content(rng) + ends[1]


def unknown(rng: random.Random, depth: int = 3) -> Node:
    number = rng.choice(_UNKNOWN)
    kind = rng.randrange(5 if depth else 4)
    if kind == 0:
        return Node(number, rng.randrange(2**64))
    if kind == 1:
        return Node(number, rng.randbytes(rng.choice([0, 3, 200])))
    if kind == 2:
        return Node(number, rng.randbytes(8), fixed=True)
    if kind == 3:
        return Node(number, rng.randbytes(4), fixed=True)
    return _Group(number, [unknown(rng, depth - 1) for _ in range(rng.randrange(3))])


def mangle(body: bytearray, rng: random.Random) -> None:
    """Change a few bytes, take some away, or put some in."""
    if not body:
        return
    at = rng.randrange(len(body))
    kind = rng.randrange(4)
    if kind == 0:
        body[at] = rng.randrange(256)
    elif kind == 1:
        body[at] ^= 1 << rng.randrange(8)
    elif kind == 2:
        del body[at : at + rng.choice([1, 1, 8, 200])]
    else:
        body[at:at] = rng.randbytes(rng.choice([1, 2, 8]))
