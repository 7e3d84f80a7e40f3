"""Elements of an SVG or HTML document as text; everything from outside is escaped."""

from __future__ import annotations

import html

from holdfast.view.text import harmless


def escaped(words: str) -> str:
    """Text from outside in a document: it adds no element, and no letter runs backwards."""
    return html.escape(harmless(words))


def element(name: str, inside: str = "", /, **attributes: object) -> str:
    """`inside` is markup already. `class_` and `stroke_width` are written `class`, `stroke-width`.

    None leaves an attribute out; numbers are rounded to a tenth of a pixel. What comes from outside
    goes through `harmless` first.
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{said}>{inside}</{name}>"


def text_of(name: str, words: str, /, **attributes: object) -> str:
    """An element with text from outside in it."""
    return element(name, escaped(words), **attributes)


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else html.escape(str(value))


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
