"""The map at the top of a room names every file in it, and none that is gone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

HOUSE = Path(__file__).parent.parent / "src" / "holdfast"
ROOMS = (".", "lint", "lint/shell", "settings", "settings/clock_faces", "source")
ELSEWHERE = {"settings": {"judged.py", "env.py"}}
"""files of other rooms that a map sends its reader to"""


@pytest.mark.parametrize("room", ROOMS)
def test_the_map_is_complete(room: str) -> None:
    folder = HOUSE / room
    map_ = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    named = set(re.findall(r"(?<![\w/.])\w+\.py\b|\b\w+/(?=\s)", map_))
    files = {path.name for path in folder.glob("*.py") if not path.name.startswith("__")}
    rooms = {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}
    assert files | rooms <= named, f"{room}/__init__.py does not name {(files | rooms) - named}"
    gone = {name for name in named - files - ELSEWHERE.get(room, set()) if name.endswith(".py")}
    assert not gone, f"{room}/__init__.py names {gone}"
