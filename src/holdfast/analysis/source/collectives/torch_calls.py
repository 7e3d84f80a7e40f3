"""Which calls talk to other ranks, and what they accept.

Read from torch/distributed/distributed_c10d.py of the releases 2.9 to 2.13: only the functions
named here take `timeout=`, and `barrier` does since 2.12. The frameworks' from accelerate 1.15,
DeepSpeed 0.19 and Horovod 0.28.
"""

from __future__ import annotations

from holdfast.analysis.source.program import Call, Program, dotted, once_per_program

ROOTS = (
    "torch.distributed",
    "torch.distributed.distributed_c10d",
    "torch.distributed.nn",
    "torch.distributed.nn.functional",
    "torch.distributed._functional_collectives",
    "deepspeed.comm",
    "deepspeed.comm.comm",
)
"""modules whose functions go by torch.distributed's names"""

COLLECTIVES = frozenset(
    [
        "all_gather",
        "all_gather_coalesced",
        "all_gather_into_tensor",
        "all_gather_into_tensor_coalesced",
        "all_gather_object",
        "all_gather_single",
        "all_gather_tensor",
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
        "reduce_scatter_single",
        "reduce_scatter_tensor",
        "reduce_scatter_tensor_coalesced",
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
AT_ONCE = frozenset(["isend", "irecv"])
"""calls that return a Work and do not wait for other ranks"""
NEW_GROUPS = frozenset(
    ["new_group", "new_subgroups", "new_subgroups_by_enumeration", "split_group"]
)
"""every rank of the job must call them, also those that are no member"""
GROUP_MAKERS = NEW_GROUPS | {"init_process_group", "destroy_process_group"}
"""every rank of the job must call them"""

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
BARRIER_TAKES_TIMEOUT = (2, 12)
"""the first torch whose barrier(timeout=…) exists"""

STORES = frozenset(["TCPStore", "FileStore", "HashStore", "PrefixStore"])

OF_FRAMEWORKS = {
    **{
        f"horovod.torch.{name}": op
        for name, op in {
            "allreduce": "all_reduce",
            "allreduce_": "all_reduce",
            "grouped_allreduce": "all_reduce",
            "grouped_allreduce_": "all_reduce",
            "allgather": "all_gather",
            "grouped_allgather": "all_gather",
            "allgather_object": "all_gather_object",
            "alltoall": "all_to_all",
            "barrier": "barrier",
            "broadcast": "broadcast",
            "broadcast_": "broadcast",
            "broadcast_object": "broadcast_object_list",
            "broadcast_optimizer_state": "broadcast",
            "broadcast_parameters": "broadcast",
            "reducescatter": "reduce_scatter",
        }.items()
    },
    **{
        f"accelerate.utils.{module}{name}": op
        for module in ("", "operations.")
        for name, op in {
            "broadcast": "broadcast",
            "broadcast_object_list": "broadcast_object_list",
            "gather": "all_gather",
            "gather_object": "all_gather_object",
            "pad_across_processes": "all_gather",
            "reduce": "all_reduce",
        }.items()
    },
    "accelerate.utils.wait_for_everyone": "barrier",
}
"""functions that do the same under another name"""

ACCELERATOR_METHODS = {
    "gather": "all_gather",
    "gather_for_metrics": "all_gather",
    "pad_across_processes": "all_gather",
    "reduce": "all_reduce",
    "wait_for_everyone": "barrier",
}
ACCELERATORS = frozenset(
    ["accelerate.Accelerator", "accelerate.accelerator.Accelerator", "accelerate.PartialState"]
)


def distributed(program: Program, call: Call) -> str:
    """'all_reduce' of a call of torch.distributed.all_reduce (or DeepSpeed's); '' of others."""
    if call.name:
        module, _, function = call.name.rpartition(".")
        return function if module in ROOTS else ""
    if not program.stars:
        return ""
    known = call.written in COLLECTIVES | POINT_TO_POINT | GROUP_MAKERS
    if known and call.written not in program.bound and set(program.stars) & set(ROOTS):
        return call.written
    return ""


@once_per_program
def torch_ops(program: Program) -> tuple[tuple[Call, str], ...]:
    """Every call of torch.distributed with its name there, in order of the text."""
    found = ((call, distributed(program, call)) for call in program.calls)
    return tuple((call, op) for call, op in found if op)


def exchange(program: Program, call: Call) -> str:
    """The collective or point-to-point operation of a call, a framework's included; '' of others.

    Accelerate's methods count where the file makes the Accelerator itself.
    """
    op = distributed(program, call)
    if op:
        return op if op in COLLECTIVES or op in POINT_TO_POINT else ""
    if call.name:
        return OF_FRAMEWORKS.get(call.name, "")
    if call.method in ACCELERATOR_METHODS and call.written.count("."):
        receiver = call.written.rpartition(".")[0]
        if receiver in _accelerators(program):
            return ACCELERATOR_METHODS[call.method]
    return ""


def _accelerators(program: Program) -> set[str]:
    """'accelerator', 'self.accelerator': what this file sets to an Accelerator that it makes."""
    if not any(name.startswith("accelerate") for name in program.imports.values()):
        return set()
    made = {call.node for call in program.called(*ACCELERATORS)}
    targets = (
        target
        for assign in program.assigns
        if assign.value in made
        for target in (assign.targets if hasattr(assign, "targets") else [assign.target])
    )
    return {name for target in targets if (name := dotted(target))}
