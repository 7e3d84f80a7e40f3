"""A configuration as flat text that is the same in every process: no torch, no I/O.

    texts({"opt": {"lr": 0.1}, "on": {"b", "a"}, "func": main})
        -> {"opt.lr": "0.1", "on": "{'a', 'b'}", "func": "__main__.main"}

What has no lasting text (`<Logger object at 0x7f…>` is another one at the next start) gets a text
that says so, and is not compared: a refused restart in the night helps no user.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import hashlib
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from holdfast.errors import ConfigError
from holdfast.redaction import is_secret_name, redact

NOT_COMPARED = "not compared: "
"""begins the text of a value that the comparison leaves out; why follows"""
NO_TEXT = f"{NOT_COMPARED}no lasting text"
PER_RANK = f"{NOT_COMPARED}differs between ranks"
LONGEST_TEXT = 4096
"""characters; longer ones are kept as their digest, for every manifest holds them"""
_DEEPEST = 32
_MOST_ELEMENTS = 1000
_UNREADABLE = object()
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}")
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, type)


class _NoLastingText(Exception):  # noqa: N818 - no error: the value is left out
    """This value would be another text in the next process."""


def texts(config: object) -> dict[str, str]:
    """Of a mapping, a namespace or a dataclass; nested ones by dots."""
    if config is None:
        return {}
    fields = _fields(config)
    if fields is None:
        try:
            fields = vars(config)
        except TypeError:
            raise ConfigError(
                f"config must be a mapping, a namespace or a dataclass, got {type(config).__name__}"
            ) from None
    first, again = _flat(fields, ()), _flat(fields, ())
    return {key: text if again.get(key) == text else NO_TEXT for key, text in first.items()}


def is_compared(text: str) -> bool:
    return not text.startswith(NOT_COMPARED)


def without_lasting_text(found: Mapping[str, str]) -> list[str]:
    return sorted(key for key, text in found.items() if text == NO_TEXT)


def _flat(fields: Mapping[Any, Any], inside: tuple[int, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    inside = (*inside, id(fields))
    for key, value in _items(fields):
        inner = _fields(value)
        if inner and id(inner) not in inside and len(inside) < _DEEPEST:
            found |= {f"{key}.{name}": text for name, text in _flat(inner, inside).items()}
        else:
            found[str(key)] = _top_text(str(key), value)
    return found


def _items(fields: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    for key in fields:
        found: object = _UNREADABLE
        with contextlib.suppress(Exception):  # OmegaConf: a value that must be given and is not
            found = fields[key]
        yield key, found


def _top_text(key: str, value: object) -> str:
    try:
        text = str.__str__(value) if isinstance(value, str) else _text(value, 0)
    except Exception:  # noqa: BLE001 - a repr may raise anything; what holds itself is too deep
        return NO_TEXT
    return text if len(text) <= LONGEST_TEXT and not _is_secret(key, text) else _digest(text)


def _is_secret(key: str, text: str) -> bool:
    return is_secret_name(key) or redact(text) != text


def is_same(one: str, other: str) -> bool:
    """Also where one of them is the digest: which values are secrets has changed over time."""
    return one == other or one == _digest(other) or other == _digest(one)


def _digest(text: str) -> str:
    """That it changed may be shown; what it was may not, or is too long to."""
    return f"sha256:{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:12]}"


def _fields(value: object) -> Mapping[Any, Any] | None:
    """The named parts of what is a configuration in itself; None for any other value."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return {each.name: getattr(value, each.name, None) for each in dataclasses.fields(value)}
    names = getattr(type(value), "__struct_fields__", None)  # msgspec
    if names is None:
        names = getattr(type(value), "model_fields", None)  # pydantic
    if names is None and hasattr(type(value), "__attrs_attrs__"):
        names = [each.name for each in type(value).__attrs_attrs__]  # type: ignore[attr-defined]
    if names is not None:
        return {name: getattr(value, name, None) for name in names}
    return vars(value) if type(value).__name__ in ("Namespace", "SimpleNamespace") else None


def _text(value: object, depth: int) -> str:
    """As repr, but the same for equal values in any process."""
    if depth > _DEEPEST:
        raise _NoLastingText
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        return repr(value)
    if isinstance(value, enum.Enum):
        return str(value) if value.name is None else f"{type(value).__name__}.{value.name}"
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, functools.partial):
        return f"partial{_text((value.func, value.args, value.keywords), depth + 1)}"
    if isinstance(value, _FUNCTIONS):
        return f"{value.__module__}.{value.__qualname__}"
    return _container_text(value, depth + 1) or _other_text(value, depth + 1)


def _container_text(value: object, depth: int) -> str:
    """'' for what is no container."""
    fields = _fields(value)
    if fields is not None:
        items = sorted(
            (_text(key, depth), _digest(text) if is_secret_name(str(key)) else text)
            for key, item in _items(fields)
            if (text := _text(item, depth))
        )
        return "{" + ", ".join(f"{key}: {item}" for key, item in items) + "}"
    if isinstance(value, Set):
        return "{" + ", ".join(sorted(_text(item, depth) for item in value)) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(_text(item, depth) for item in value) + ")"
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, range)):
        return "[" + ", ".join(_text(item, depth) for item in value) + "]"
    return ""


def _other_text(value: object, depth: int) -> str:
    kind = type(value)
    if kind.__module__.partition(".")[0] in ("numpy", "torch"):
        if kind.__name__ in ("device", "dtype", "layout", "Size"):
            return str(value)
        if _elements(value) <= _MOST_ELEMENTS:  # scalars: NumPy 2 prints them otherwise than 1
            return _text(value.tolist(), depth)  # type: ignore[attr-defined]
    text = repr(value)
    if _ADDRESS.search(text):
        raise _NoLastingText
    return text


def _elements(value: object) -> float:
    """Of a scalar, an array or a tensor; infinitely many for anything else."""
    count = getattr(value, "size", None)
    count = count() if callable(count) else count
    if isinstance(count, tuple):  # torch's, a shape
        count = math.prod(count)
    return count if isinstance(count, int) and hasattr(value, "tolist") else math.inf
