"""Which calls are collectives, and what they accept.

Read from torch 2.13.0 (torch/distributed/distributed_c10d.py and its __all__): only functions
named here take `timeout=`; `barrier` since 2.13 (pytorch/pytorch, distributed_c10d.py of 2.12
has none).
"""

from __future__ import annotations

from holdfast.source.program import Call, Program

ROOTS = (
    "torch.distributed.",
    "torch.distributed.distributed_c10d.",
    "deepspeed.comm.",
    "deepspeed.comm.comm.",
)

COLLECTIVES = frozenset(
    [
        "all_gather",
        "all_gather_coalesced",
        "all_gather_into_tensor",
        "all_gather_object",
        "all_reduce",
        "all_reduce_coalesced",
        "all_to_all",
        "all_to_all_single",
        "barrier",
        "broadcast",
        "broadcast_object_list",
        "gather",
        "gather_object",
        "monitored_barrier",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "scatter",
        "scatter_object_list",
        "_all_gather_base",
        "_reduce_scatter_base",
    ]
)
"""every member of the group must call them"""

POINT_TO_POINT = frozenset(
    [
        "send",
        "recv",
        "isend",
        "irecv",
        "batch_isend_irecv",
        "send_object_list",
        "recv_object_list",
    ]
)
GROUP_MAKERS = frozenset(
    [
        "init_process_group",
        "new_group",
        "new_subgroups",
        "new_subgroups_by_enumeration",
        "split_group",
        "destroy_process_group",
    ]
)
"""every rank of the job must call them (new_group: also those that are no member)"""

TAKES_TIMEOUT = frozenset(
    [
        "init_process_group",
        "new_group",
        "new_subgroups",
        "new_subgroups_by_enumeration",
        "split_group",
        "monitored_barrier",
    ]
)
BARRIER_TAKES_TIMEOUT = (2, 13)
"""the first torch whose barrier(timeout=…) exists"""


def distributed(program: Program, call: Call) -> str:
    """'all_reduce' of a call of torch.distributed.all_reduce (or DeepSpeed's); '' of others."""
    root, _, last = call.name.rpartition(".")
    if f"{root}." in ROOTS:
        return last
    star = not call.name and call.written in COLLECTIVES | POINT_TO_POINT | GROUP_MAKERS
    if star and call.written not in program.bound and "torch.distributed" in program.stars:
        return call.written
    return ""


def is_collective(program: Program, call: Call) -> bool:
    return distributed(program, call) in COLLECTIVES
