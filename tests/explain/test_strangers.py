"""Logs of other programs: errors are in them, and none of them is a fault of a training job."""

from __future__ import annotations

import random

import pytest

from holdfast import catalogue
from holdfast.explain.diagnose import diagnose
from holdfast.explain.gather import gather_bytes
from tests.explain import strangers

FAULTS = [entry.fault for entry in catalogue.entries()]


@pytest.mark.parametrize("name", strangers.ALL)
def test_nothing_is_found_in_a_strangers_log(name: str) -> None:
    lines = strangers.ALL[name].splitlines()
    assert found_in(lines) == []
    if name != "other-languages":  # a stack must stay below its exception
        mixed = random.Random(name).sample(lines * 3, len(lines) * 3)
        assert found_in(mixed) == []


def found_in(lines: list[str]) -> list[tuple[str, str]]:
    found = diagnose(gather_bytes({"app.log": "\n".join(lines).encode()}), FAULTS)
    return [(one.slug, one.reason) for one in found.diagnoses]
