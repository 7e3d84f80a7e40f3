"""How a script joins its group."""

from __future__ import annotations

import pytest

from holdfast.analysis.source.collectives import group_timeouts, init_calls
from holdfast.analysis.source.program import Program
from tests.analysis.source.made_sources import python


def program(text: str) -> Program:
    found = python(f"import torch.distributed as dist\n{text}\n").program
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("call", "backend"),
    [
        ("dist.init_process_group('NCCL')", "nccl"),
        ("dist.init_process_group(backend='cpu:gloo,cuda:nccl')", "cpu:gloo,cuda:nccl"),
        ("dist.init_process_group()", ""),
        ("dist.init_process_group(args.backend)", "unknown"),
    ],
)
def test_backend(call: str, backend: str) -> None:
    script = program(call)
    (init,) = init_calls.init_calls_of(script)
    assert init_calls.backend(script, init) == backend


def test_a_call_with_what_is_left_out_is_not_known() -> None:
    for call in ("dist.init_process_group(...)", "dist.init_process_group(**options)"):
        (init,) = init_calls.init_calls_of(program(call))
        assert not init.known


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("90:30", 5430), ("1:30:00", 5400), ("2-0", 172800), ("soon", None)],
)
def test_times_of_slurm(text: str, seconds: int | None) -> None:
    assert group_timeouts.slurm_seconds(text) == seconds
