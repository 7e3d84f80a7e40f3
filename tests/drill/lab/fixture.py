"""For tests: a lab, or a skip that says why there is none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from holdfast.drill.lab import Lab, LabUnavailableError


@contextlib.contextmanager
def lab_or_skip() -> Iterator[Lab]:
    """For fixtures of a whole file; one test takes `lab`."""
    try:
        made = Lab()
    except LabUnavailableError as problem:
        pytest.skip(str(problem))
    with made:
        yield made


@pytest.fixture
def lab() -> Iterator[Lab]:
    with lab_or_skip() as made:
        yield made
