from __future__ import annotations

from typing import Any

import msgspec

from holdfast.analysis.machine import (
    GpuFabric,
    MachineFacts,
    NcclLibrary,
    NvidiaFacts,
    Software,
    Unread,
)
from holdfast.analysis.nodes import NodesFacts
from tests.analysis.logs.patterns.made import wreckage
from tests.faults import between
from tests.faults.machines import a_machine
from tests.faults.made_gpus import DRIVER, a_service, an_sxm_gpu, no_fabric, nvidia
from tests.faults.made_nodes import on_node, some_nodes
from tests.faults.table import (
    check_table,
    explain_table,
    not_applicable,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)


def libraries(*found: tuple[str, str]) -> MachineFacts:
    nccl = tuple(
        NcclLibrary(path=f"/lib{n}/libnccl.so.2", version=version, origin=origin)
        for n, (version, origin) in enumerate(found)
    )
    return a_machine(software=msgspec.structs.replace(a_machine().software, nccl=nccl))


OWN = ("2.29.7", "python package")

test_check = check_table(
    "version-skew",
    speaks(
        "warning",
        libraries(("2.21.5", "LD_PRELOAD"), OWN),
        saying=[
            "LD_PRELOAD replaces torch's own NCCL 2.29.7 with 2.21.5",
            "torch was built and tested with its own",
            "unset LD_PRELOAD",
        ],
    ),
    speaks(
        "note",
        libraries(OWN, ("2.21.5", "system")),
        saying=["2 versions", "load 2.29.7 (/lib0/libnccl.so.2)", "2.21.5: /lib1", "nccl-tests"],
        not_saying=["LD_PRELOAD"],
    ),
    speaks(
        "note",  # the preloaded one is torch's; another lies elsewhere
        libraries(("2.29.7", "LD_PRELOAD"), OWN, ("2.18.1", "system")),
        saying=["2 versions"],
    ),
    speaks(
        "note",
        libraries(("", "LD_LIBRARY_PATH"), OWN, ("2.18.1", "system")),
        saying=["of unknown version"],
    ),
    silent(a_machine()),
    silent(libraries(OWN, ("2.29.7", "system"))),
    # a version we could not read is no proof of a difference
    silent(libraries(OWN, ("", "system"))),
    skips(a_machine(software=Unread(why="slow disk")), saying=["slow disk"]),
    not_applicable(libraries(), saying=["no libnccl"]),
)

VERSION = "NCCL INFO NCCL version {}+cuda12.4"
CUT = "[rank1]: bootstrap.cc:100 NCCL WARN Message truncated : received 256 bytes instead of 4096"

test_explain = explain_table(
    "version-skew",
    recognises(
        wreckage(
            "RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (8, 9, 2) "
            "but found runtime version (8, 4, 0)."
        ),
        sure=0.95,
        what="cuDNN 8.4.0",
        saying=["built with cuDNN 8.9.2 and found 8.4.0"],
    ),
    recognises(
        wreckage(
            "Detected that PyTorch and torchvision were compiled with different CUDA major "
            "versions."
        ),
        sure=0.95,
        what="CUDA packages",
        saying=["from the same index"],
    ),
    recognises(
        wreckage(
            "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or "
            "directory"
        ),
        sure=0.75,
        what="libcudart.so.11.0",
        saying=["needs libcudart.so.11.0"],
    ),
    recognises(
        wreckage(
            "ImportError: /v/libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4, "
            "version libnvJitLink.so.12"
        ),
        sure=0.95,
        what="libcusparse",
        saying=["loaded CUDA library is too old"],
    ),
    passes_over(
        wreckage(
            "W tensorflow/dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'; "
            "dlerror: libcudart.so.11.0: cannot open shared object file"
        )
    ),
    passes_over(
        wreckage(
            "ImportError: libGL.so.1: cannot open shared object file: No such file or directory"
        )
    ),
    recognises(
        wreckage(
            "[rank4]: init.cc:1034 NCCL WARN Mismatched NCCL version detected : rank 4 version "
            "22304 rank 0 version 22109"
        ),
        sure=0.97,
        what="NCCL 2.23.4 beside 2.21.9",
        saying=["rank 4 has 2.23.4, rank 0 has 2.21.9"],
    ),
    recognises(
        wreckage("ImportError: /v/libtorch_cuda.so: undefined symbol: ncclCommWindowRegister"),
        sure=0.95,
        what="/v/libtorch_cuda.so",
        saying=["too old to have it", "LD_LIBRARY_PATH"],
    ),
    recognises(
        wreckage(
            "ImportError: flash_attn_2_cuda.cpython-310.so: undefined symbol: _ZN3c104cuda9Set"
        ),
        sure=0.85,
        what="flash_attn_2_cuda",
        saying=["built for another version of torch"],
    ),
    recognises(wreckage(CUT), sure=0.45, what="settings", saying=["different NCCL settings"]),
    recognises(
        wreckage(CUT, VERSION.format("2.18.5"), VERSION.format("2.21.5")),
        sure=0.9,
        what="NCCL 2.18.5 and 2.21.5",
        saying=["used versions 2.18.5 and 2.21.5"],
    ),
    passes_over(wreckage(VERSION.format("2.18.5"), VERSION.format("2.21.5"))),
    passes_over(wreckage("ImportError: libfoo.so: undefined symbol: _Z3foov")),
)


# --- between nodes -------------------------------------------------------------------------------

SOFTWARE = a_machine().software
assert isinstance(SOFTWARE, Software)
UNTOLD = Unread(why="late")
OTHER_NCCL = (NcclLibrary(path="/x/libnccl.so.2", version="2.27.3", origin="python package"),)


def having(name: str, facts: NodesFacts | None = None, **changes: Any) -> NodesFacts:
    software = msgspec.structs.replace(SOFTWARE, **changes)
    return on_node(facts or some_nodes(4), name, software=software)


RACK = GpuFabric(state="completed", status="success", clique=1, cluster="9c6f5af3-53bf")


def on_machine(
    name: str, facts: NodesFacts, *, driver: str = DRIVER, manager: str = "", imex: str = ""
) -> NodesFacts:
    """The driver and its services of one node."""
    fabric = no_fabric(
        nvswitches=4 if manager else 0,
        manager=a_service(version=manager),
        imex=a_service(version=imex),
    )
    gpus = [an_sxm_gpu(n, fabric=RACK) if imex else an_sxm_gpu(n) for n in range(4)]
    return on_node(facts, name, nvidia=nvidia(*gpus, module=driver), fabric=fabric)


def all_machines(**versions: str) -> NodesFacts:
    facts = some_nodes(4)
    for node in facts.nodes:
        facts = on_machine(node.name, facts, **versions)
    return facts


test_check_nodes = between.table(
    "version-skew",
    between.speaks(
        "note",
        on_machine("node-c", some_nodes(4), driver="580.65.06"),
        saying=["NVIDIA driver differs between nodes: node-c has 580.65.06", "`nvidia-smi`"],
        hosts=["node-c"],
    ),
    between.speaks(
        "warning",
        on_machine("node-c", some_nodes(4), driver="570.133.20"),
        saying=["node-c has 570.133.20, the others 580.95.05"],
    ),
    between.speaks(  # the manager follows its driver: said once
        "warning",
        on_machine("node-c", all_machines(manager=DRIVER), driver="570.1.2", manager="570.1.2"),
        saying=["NVIDIA driver differs"],
        not_saying=["fabric manager"],
    ),
    between.speaks(
        "warning",
        on_machine("node-c", all_machines(manager=DRIVER), manager="570.1.2"),
        saying=["fabric manager differs between nodes: node-c has 570.1.2"],
        hosts=["node-c"],
    ),
    between.speaks(
        "note",
        on_machine("node-c", all_machines(imex=DRIVER), imex="570.1.2"),
        saying=["IMEX differs between nodes", "a driver that fits"],
    ),
    between.silent(all_machines(manager=DRIVER)),
    between.silent(all_machines(imex=DRIVER)),
    between.silent(on_node(some_nodes(4), "node-c", nvidia=NvidiaFacts(present=False))),
    between.silent(on_node(some_nodes(4), "node-c", nvidia=UNTOLD, fabric=UNTOLD)),
    between.speaks(
        "error",
        having("node-c", torch="2.12.1"),
        saying=[
            "torch differs between nodes: node-c has 2.12.1, the others 2.13.0",
            "node-c: torch 2.12.1",
            "collect_env",
        ],
        hosts=["node-c"],
    ),
    between.speaks("warning", having("node-c", torch="2.13.1"), saying=["2.13.1"]),
    between.speaks(  # torch is missing; its CUDA and NCCL are not said to be missing too
        "error",
        having("node-c", torch="", torch_cuda="", nccl=()),
        saying=["torch differs between nodes: node-c has none installed, the others 2.13.0"],
        hosts=["node-c"],
    ),
    between.speaks(
        "error",
        having("node-c", nccl=OTHER_NCCL),
        saying=["NCCL differs", "2.27.3, the others 2.29.7", "Mismatched NCCL version"],
        hosts=["node-c"],
    ),
    between.speaks(
        "error",
        having("node-c", torch_cuda="", nccl=()),
        saying=["CUDA of torch differs between nodes: node-c has none (CPU build)"],
    ),
    between.speaks("warning", having("node-c", torch_cuda="12.8"), saying=["12.8"]),
    between.speaks("warning", having("node-c", python="3.12.1"), saying=["Python differs"]),
    between.speaks("note", having("node-c", python="3.11.9"), saying=["patch release makes no"]),
    between.speaks(
        "note",
        having("node-c", packages={"transformers": "4.50.0"}),
        saying=["transformers differs between nodes: node-c has 4.50.0, the others none installed"],
    ),
    between.speaks(  # two nodes: none is the odd one
        "error",
        having("node-b", some_nodes(2), torch="2.12.1"),
        saying=["torch differs between nodes: 2.12.1 on node-b, 2.13.0 on node-a"],
        hosts=[""],
    ),
    between.silent(some_nodes(4)),
    between.silent(having("node-c", executable="/opt/venv/bin/python")),
    between.skips(on_node(some_nodes(4), "node-c", software=Unread(why="late")), saying=["late"]),
    between.not_applicable(some_nodes(1), saying=["one node"]),
)
