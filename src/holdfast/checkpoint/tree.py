"""Any state dict <-> a typed tree that JSON can hold. No pickle, no torch, no I/O.

What JSON knows stands for itself: null, true, numbers, text, and an array for a list. Everything
else is an object with exactly one key, its kind:

    {"dict": {…}}, {"pairs": [[key, value], …]}    a dict with text keys, with any keys
    {"tuple": […]}, {"set": […]}, {"bytes": "…"}   and so on, see _DECODERS

Tensors and arrays are not handled here: the caller gives a function that turns them into more
kinds (tensors.py). Everything is restored exactly: -0.0, the bits of a NaN,
integers of any size, the order of keys. What cannot be is refused, with its path in the state.
"""

from __future__ import annotations

import base64
import math
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from holdfast.errors import ConfigError, EnvironmentFailure

Node = Any
"""what msgspec.json encodes: None, bool, int, float, str, list, dict"""
Path = tuple[object, ...]
"""the keys that lead to a value, from the root of the state"""
EncodeLeaf = Callable[[object, Path], "Node | None"]
"""`{kind: body}` for what the tree does not know by itself; None for what it does not either"""
DecodeLeaf = Callable[[str, Node], object]
"""from kind and body; raises LookupError for a kind it does not know"""

DEEPEST = 100
"""levels; far beyond any state dict, far below Python's limit of recursion"""
_SAFE_INTEGER = 1 << 53
"""beyond it some readers of JSON round"""
_FACTORIES: dict[str, Callable[[], Any] | None] = {
    "": None,
    **{kind.__name__: kind for kind in (int, float, str, bool, list, dict, set, tuple)},
}


_NOT_OURS = (
    ValueError, TypeError, LookupError, AttributeError, RuntimeError, ArithmeticError, MemoryError,
    struct.error,
)  # fmt: skip


class DamagedTreeError(EnvironmentFailure):
    """The tree of a checkpoint is not one that we wrote."""


def place(path: Path) -> str:
    """`state["extras"]["sampler"]`, as the user would write it."""
    return "state" + "".join(f"[{key!r}]".replace("'", '"') for key in path)


def encode(value: object, leaf: EncodeLeaf, path: Path = ()) -> Node:
    """Raises ConfigError, naming the place, for what no checkpoint can hold."""
    return _Encoder(leaf).node(value, path, DEEPEST)


def decode(node: Node, leaf: DecodeLeaf) -> Any:
    """Raises DamagedTreeError, and nothing else, for a tree that we did not write."""
    try:
        return _Decoder(leaf).value(node, DEEPEST)
    except _NOT_OURS as odd:
        raise DamagedTreeError(f"the saved state is damaged: {odd}") from odd


def to_json(node: Node) -> bytes:
    return msgspec.json.encode(node)


def from_json(text: bytes) -> Node:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as odd:
        raise DamagedTreeError(f"the saved state is damaged: {odd}") from odd


class _Encoder:
    def __init__(self, leaf: EncodeLeaf) -> None:
        self.leaf = leaf

    def node(self, value: object, path: Path, depth: int) -> Node:
        if depth == 0:
            raise ConfigError(
                f"{place(path[:3])}… is nested deeper than {DEEPEST} levels: does it hold itself?"
            )
        # Exact types: an enum is an int and a named tuple is a tuple, but neither would come
        # back as what it was.
        write = _ENCODERS.get(type(value))
        if write is not None:
            return write(self, value, path, depth - 1)
        node = self.leaf(value, path)
        if node is None:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise ConfigError(
                f"{place(path)} is a {kind.removeprefix('builtins.')}: {_advice(value)}"
            )
        return node

    def items(self, values: Iterable[object], path: Path, depth: int) -> list[Node]:
        return [self.node(value, (*path, i), depth) for i, value in enumerate(values)]

    def pairs(self, value: dict[Any, Any], path: Path, depth: int) -> list[Node]:
        return [
            [self.node(key, path, depth), self.node(item, (*path, key), depth)]
            for key, item in value.items()
        ]

    def mapping(self, value: dict[Any, Any], path: Path, depth: int) -> Node:
        if all(type(key) is str and _encodable(key) for key in value):
            return {"dict": {k: self.node(v, (*path, k), depth) for k, v in value.items()}}
        return {"pairs": self.pairs(value, path, depth)}

    def ordered(self, value: OrderedDict[Any, Any], path: Path, depth: int) -> Node:
        """A module's state dict keeps the versions of its parts in this attribute."""
        metadata = self.node(getattr(value, "_metadata", None), (*path, "_metadata"), depth)
        return {"ordered": [self.pairs(value, path, depth), metadata]}

    def factory(self, value: defaultdict[Any, Any], path: Path, depth: int) -> Node:
        make = value.default_factory
        name = getattr(make, "__name__", "")
        if _FACTORIES.get(name) is not make:
            raise ConfigError(f"{place(path)} has a custom default: give it as a plain dict")
        return {"defaultdict": [name, self.pairs(value, path, depth)]}

    def any_order(self, value: Iterable[object], path: Path, depth: int) -> list[Node]:
        """Sorted by their text: the same set gives the same file in every process."""
        return sorted(self.items(value, path, depth), key=to_json)


def _advice(value: object) -> str:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return "give it as a plain tuple or dict"
    if isinstance(value, (int, str, float)):
        return "give its plain value"
    return "give it state_dict() and load_state_dict()"


def _encodable(text: str) -> bool:
    """Names of files that are no UTF-8 come as lone surrogates, which JSON cannot hold."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _text(_: _Encoder, value: Any, *_rest: object) -> Node:
    return value if _encodable(value) else {"text": _base64(value.encode("utf-8", "surrogatepass"))}


def _integer(_: _Encoder, value: Any, *_rest: object) -> Node:
    return value if -_SAFE_INTEGER <= value <= _SAFE_INTEGER else {"int": hex(value)}


def _bits(value: float) -> str:
    return struct.pack(">d", value).hex()


def _float(_: _Encoder, value: Any, *_rest: object) -> Node:
    return value if math.isfinite(value) else {"float": _bits(value)}


def _base64(value: bytes | bytearray) -> str:
    return base64.b64encode(value).decode()


_ENCODERS: dict[type, Callable[[_Encoder, Any, Path, int], Node]] = {
    type(None): lambda *_: None,
    bool: lambda _, v, *__: v,
    int: _integer,
    float: _float,
    str: _text,
    list: lambda e, v, p, d: e.items(v, p, d),
    dict: lambda e, v, p, d: e.mapping(v, p, d),
    tuple: lambda e, v, p, d: {"tuple": e.items(v, p, d)},
    OrderedDict: lambda e, v, p, d: e.ordered(v, p, d),
    Counter: lambda e, v, p, d: {"counter": e.pairs(v, p, d)},
    defaultdict: lambda e, v, p, d: e.factory(v, p, d),
    deque: lambda e, v, p, d: {"deque": [v.maxlen, e.items(v, p, d)]},
    set: lambda e, v, p, d: {"set": e.any_order(v, p, d)},
    frozenset: lambda e, v, p, d: {"frozenset": e.any_order(v, p, d)},
    complex: lambda _, v, *__: {"complex": [_bits(v.real), _bits(v.imag)]},
    bytes: lambda _, v, *__: {"bytes": _base64(v)},
    bytearray: lambda _, v, *__: {"bytearray": _base64(v)},
}


class _Decoder:
    def __init__(self, leaf: DecodeLeaf) -> None:
        self.leaf = leaf

    def value(self, node: Node, depth: int) -> Any:
        if depth == 0:
            raise ValueError(f"nested deeper than {DEEPEST} levels")
        if isinstance(node, list):
            return self.items(node, depth - 1)
        if not isinstance(node, dict):
            return node
        if len(node) != 1:
            raise ValueError(f"a node with {len(node)} kinds")
        [(kind, body)] = node.items()
        read = _DECODERS.get(kind)
        return read(self, body, depth - 1) if read else self.leaf(kind, body)

    def items(self, nodes: list[Node], depth: int) -> list[Any]:
        if not isinstance(nodes, list):
            raise TypeError(f"an array was expected, not {nodes!r:.40}")
        return [self.value(node, depth) for node in nodes]

    def pairs(self, nodes: list[Node], depth: int) -> list[tuple[Any, Any]]:
        return [(self.value(key, depth), self.value(item, depth)) for key, item in nodes]

    def ordered(self, body: Node, depth: int) -> OrderedDict[Any, Any]:
        pairs, metadata = body
        value = OrderedDict(self.pairs(pairs, depth))
        if metadata is not None:
            value._metadata = self.value(metadata, depth)  # type: ignore[attr-defined]  # noqa: SLF001
        return value


def _unbase64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _unbits(text: str) -> float:
    [value] = struct.unpack(">d", bytes.fromhex(text))
    return float(value)


_DECODERS: dict[str, Callable[[_Decoder, Any, int], Any]] = {
    "int": lambda _, b, __: int(b, 16),
    "float": lambda _, b, __: _unbits(b),
    "text": lambda _, b, __: _unbase64(b).decode("utf-8", "surrogatepass"),
    "bytes": lambda _, b, __: _unbase64(b),
    "bytearray": lambda _, b, __: bytearray(_unbase64(b)),
    "complex": lambda _, b, __: complex(_unbits(b[0]), _unbits(b[1])),
    "dict": lambda s, b, d: {key: s.value(node, d) for key, node in b.items()},
    "pairs": lambda s, b, d: dict(s.pairs(b, d)),
    "ordered": lambda s, b, d: s.ordered(b, d),
    "counter": lambda s, b, d: Counter(dict(s.pairs(b, d))),
    "defaultdict": lambda s, b, d: defaultdict(
        _FACTORIES[b[0]] if b[0] else None, s.pairs(b[1], d)
    ),
    "tuple": lambda s, b, d: tuple(s.items(b, d)),
    "set": lambda s, b, d: set(s.items(b, d)),
    "frozenset": lambda s, b, d: frozenset(s.items(b, d)),
    "deque": lambda s, b, d: deque(s.items(b[1], d), b[0]),
}
