from __future__ import annotations

from typing import Any

import pytest

from holdfast.analysis.machine import GpuHolder, Unread
from holdfast.analysis.machine.gpus_in_use import MIB, why_not_to_try
from tests.faults.made_gpus import a_gpu

OTHER = (GpuHolder(pid=4711, memory=500 * MIB),)
USED = {"memory_used": 1100 * MIB, "memory_reserved": 600 * MIB}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"memory_used": 616 * MIB, "memory_reserved": 615 * MIB}, ""),
        ({"memory_used": 616 * MIB, "memory_reserved": None}, ""),  # an old driver's idle H100
        ({"mig": None, "busy": None}, ""),  # cards that do not have these
        ({"holders": OTHER}, "another program uses"),
        (USED, "holds memory"),  # its process is in another container
        ({"memory_used": 1100 * MIB, "memory_reserved": None}, "holds memory"),
        ({"busy": 3}, "busy"),
        ({"mig": True}, "MIG"),
        ({"compute_mode": "exclusive process"}, "one program only"),
        ({"compute_mode": ""}, "one program only"),
        ({"holders": Unread(why="not told")}, "not known"),
        ({"memory_used": None}, "not known"),
        ({"unread": "GPU is lost"}, "not known"),
    ],
)
def test_a_gpu_is_tried_only_when_no_program_could_notice(
    changes: dict[str, Any], reason: str
) -> None:
    why = why_not_to_try(a_gpu(**changes))
    assert (reason in why) if reason else why == ""


def test_a_gpu_that_could_not_be_asked_is_left_alone() -> None:
    assert "not known" in why_not_to_try(None)
