from __future__ import annotations

import argparse

import pytest

from holdfast.analysis.nodes import NodesFacts
from holdfast.cli import check_survey
from tests.faults.made_nodes import absent, some_nodes


@pytest.mark.parametrize(
    ("facts", "fail_on", "code"),
    [
        (some_nodes(3), "warning", 0),
        (absent(some_nodes(3), "node-d", "timed out"), "warning", 1),
        (absent(some_nodes(3), "", "did not join"), "error", 1),
        (absent(some_nodes(3), "node-d", "timed out"), "never", 0),
    ],
)
def test_a_missing_node_fails_a_check_that_looks_for_something_else(
    facts: NodesFacts, fail_on: str, code: int
) -> None:
    """`--only` leaves out node-lost, and all that is left may be fine."""
    assert check_survey.exit_code(argparse.Namespace(fail_on=fail_on), [], facts) == code
