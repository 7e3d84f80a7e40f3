"""Does the backend that a script asks for fit its tensors, and does it exist?

Read from torch 2.13.0: distributed_c10d.py (Backend: names are not case-sensitive, an unknown one
is looked up among plugins, then refused: 'Unknown c10d backend type'); NCCL has no CPU tensors.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator

from holdfast.analysis.source.collectives.init_calls import (
    InitCall,
    backend,
    init_calls_of,
    only_backend,
)
from holdfast.analysis.source.collectives.torch_calls import COLLECTIVES, distributed
from holdfast.analysis.source.processes import gpu_placement
from holdfast.analysis.source.program import Call, Program
from holdfast.analysis.source.source_problem import SourceProblem

BUILT_IN = ("nccl", "gloo", "mpi", "ucc", "xccl", "fake")
PLUGINS = frozenset(
    [
        "hccl",
        "ccl",
        "cncl",
        "mccl",
        "eccl",
        "smddp",
        "xla",
        "threaded",
        "dummy",
        "undefined",
        "rccl",
    ]
)
"""other names that real backends go by, so that they are not taken for misspelt ones"""
ALIKE = 0.7
OF_OBJECTS = ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list")
"""they move what they send by themselves"""
DDP = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
)
ELSEWHERE = re.compile(r"(?i)cuda|gpu|device|accelerat|\.to\(|xpu|hpu|npu|import \*")
"""words of a script that may put something onto a GPU"""


def problems(program: Program, *, complete: bool) -> Iterator[SourceProblem]:
    joined = init_calls_of(program)
    if not joined:
        return
    for init in joined:
        yield from _misspelt(program, init)
    only = only_backend(program)
    if only == "nccl":
        found = list(_tensors_on_cpu(program))
        yield from found or (_nothing_on_gpu(program) if complete else ())
    elif only == "gloo":
        yield from _gloo_for_gpus(program, joined[0])


def _misspelt(program: Program, init: InitCall) -> Iterator[SourceProblem]:
    said = backend(program, init)
    if said in ("", "unknown") or "register_backend" in program.text:
        return
    for part in said.split(","):
        word = part.rpartition(":")[2].strip()
        close = difflib.get_close_matches(word, BUILT_IN, n=1, cutoff=ALIKE)
        if word in BUILT_IN or word in PLUGINS or not close:
            continue
        yield SourceProblem(
            "error",
            f"unknown backend '{word}': init_process_group refuses it",
            f"torch has {', '.join(BUILT_IN[:5])} and what a plugin registers; nothing in this "
            "script registers it",
            f"`init_process_group('{close[0]}')`",
            program.place(init.given("backend") or init.call.node),
        )


def _tensors_on_cpu(program: Program) -> Iterator[SourceProblem]:
    for call in program.calls:
        name = distributed(program, call)
        if name not in COLLECTIVES or name in OF_OBJECTS or _has_group(call):
            continue
        tensor = next(
            (one for one in call.node.args[:2] if gpu_placement.on_cpu(program, one)), None
        )
        if tensor is not None:
            shown = ast.unparse(tensor)
            yield SourceProblem(
                "error",
                f"{call.written} gets `{shown}`, a CPU tensor, but the group's backend is NCCL",
                "NCCL takes GPU tensors only; this raises RuntimeError: No backend type "
                "associated with device type cpu",
                "create it on the GPU (`device='cuda'`, after torch.cuda.set_device), or use a "
                "backend for each device: `init_process_group('cpu:gloo,cuda:nccl')`",
                program.place(tensor),
            )


def _nothing_on_gpu(program: Program) -> Iterator[SourceProblem]:
    wrapped = program.called(*DDP)
    if ELSEWHERE.search(program.text) or not wrapped:
        return
    yield SourceProblem(
        "warning",
        f"{wrapped[0].written} gets a model on the CPU, but the group's backend is NCCL",
        "nothing in this script moves a model or tensor to a GPU, and NCCL takes GPU tensors only",
        "`model.to(f'cuda:{local_rank}')` before wrapping it, or `init_process_group('gloo')`",
        program.place(wrapped[0].node),
    )


def _has_group(call: Call) -> bool:
    return call.starred or call.keyword("group") is not None or len(call.node.args) > 2


def _gloo_for_gpus(program: Program, init: InitCall) -> Iterator[SourceProblem]:
    wrapped = program.called(*DDP)
    on_gpu = any(
        isinstance(ids := call.keyword("device_ids"), ast.List) and ids.elts for call in wrapped
    )
    if not on_gpu or "is_available" in program.text:
        return
    yield SourceProblem(
        "note",
        "Gloo synchronises the gradients of a model on GPUs",
        "it works, but copies every gradient through CPU memory; NCCL sends from GPU to GPU",
        "`init_process_group('nccl')`, or leave the backend out: torch 2.6 and later choose by "
        "the device",
        program.place(init.given("backend") or init.call.node),
    )
