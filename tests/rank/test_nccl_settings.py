from __future__ import annotations

import pytest

from holdfast.rank.nccl_settings import aborts


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, True),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}, True),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}, True),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, False),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": " 0 "}, False),
        ({"NCCL_ASYNC_ERROR_HANDLING": "0"}, False),
        ({"NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}, True),
        ({"TORCH_NCCL_BLOCKING_WAIT": "1"}, False),
        ({"NCCL_BLOCKING_WAIT": "true"}, False),
        ({"TORCH_NCCL_BLOCKING_WAIT": "0"}, True),
    ],
)
def test_whether_torch_ends_a_process_at_the_timeout(
    environment: dict[str, str], *, expected: bool
) -> None:
    assert aborts(environment) is expected
