"""The map of the house is generated, every room says what it is, and every room is tested."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.places import SOURCE, TESTS
from tools import write_house

ROOMS = write_house.rooms()
TESTED_ELSEWHERE = {
    "fault": "tests/test_catalogue.py",
    "run": "a folder of rooms",
    "rank/site": "tests/rank/test_delivery.py",
    "rank/witness/site": "tests/rank/witness/test_start.py",
    "env/timeouts": "tests/env/test_timeouts_in_force.py",
}
FOLDERS = {"analysis", "faults"}
"""of rooms, with nothing of their own"""


def name(room: Path) -> str:
    return str(room.relative_to(SOURCE))


def test_the_map_in_the_design_page_is_up_to_date() -> None:
    assert write_house.written() == write_house.PAGE.read_text(), "run `make docs`"


@pytest.mark.parametrize("room", ROOMS, ids=name)
def test_a_room_says_what_it_is_in_one_line(room: Path) -> None:
    assert 15 < len(write_house.purpose(room / "__init__.py")) < 120


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=name)
def test_a_file_says_what_it_is(file: Path) -> None:
    assert write_house.purpose(file)


def test_every_room_has_tests_of_its_own() -> None:
    bare = {name(room) for room in ROOMS if not list((TESTS / name(room)).glob("test_*.py"))}
    assert bare - FOLDERS == set(TESTED_ELSEWHERE)


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = {}
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name(file))
    assert {one: where for one, where in places.items() if len(where) > 1} == {}
