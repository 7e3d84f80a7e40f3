from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import CudaFacts, GpuFabric, Unread
from holdfast.analysis.machine.nvlink_fabric import of_machine
from tests.faults.made_gpus import an_sxm_gpu, cuda, nvidia

STATES = st.sampled_from(
    ["not supported", "not started", "in progress", "completed", "unknown (7)"]
)
ON_GPU = st.tuples(STATES, st.sampled_from(["success", "timeout"]), st.sampled_from([0, 46, 802]))


@given(st.lists(ON_GPU, min_size=1, max_size=8), st.booleans())
def test_what_cuda_meets_decides_and_what_was_not_tried_is_judged_by_its_state(
    machine: list[tuple[str, str, int]], tried: bool
) -> None:
    gpus = [
        an_sxm_gpu(n, fabric=GpuFabric(state=state, status=status if state == "completed" else ""))
        for n, (state, status, _) in enumerate(machine)
    ]
    probes = tuple(
        msgspec.structs.replace(probe, code=machine[probe.index][2])
        for probe in cuda(len(machine)).probes
    )
    facts: CudaFacts | Unread = Unread(why="late")
    if tried:
        facts = cuda(len(machine), probes=probes)
    state = of_machine(nvidia(*gpus), facts)
    for n, (shown, status, code) in enumerate(machine):
        registering = shown in ("not started", "in progress")
        in_trouble = registering or (shown == "completed" and status != "success")
        assert (n in state.broken) == (
            (tried and code == 802) or (in_trouble and not (tried and code == 0))
        )
        assert not (n in state.working and n in state.broken)
