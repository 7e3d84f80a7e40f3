"""Checkpoints of a real job of two ranks, for the tests of all rooms."""

from __future__ import annotations

import pytest

from tests.checkpoint.reading.two_ranks import TwoRanks, launch


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> TwoRanks:
    return launch(tmp_path_factory.mktemp("two-ranks"))
