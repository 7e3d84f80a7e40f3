from __future__ import annotations

from holdfast.remains.nouns import Line, Raised
from holdfast.signals import Frame
from tests.faults.table import passes_over, recognise_table, recognises
from tests.remains.made import wreckage

TEXT = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must "
    "use the 'spawn' start method"
)
LINE = Line(text=f"RuntimeError: {TEXT}", source="job.log", number=1, rank=0)
RAISED = Raised(
    kind="RuntimeError",
    text=TEXT,
    line=LINE,
    frames=(
        Frame(function="_lazy_init", file="/venv/torch/cuda/__init__.py", line=305),
        Frame(function="__getitem__", file="/work/data.py", line=44),
    ),
)

IN_A_CHILD = Raised(
    kind="RuntimeError", text="Caught RuntimeError in DataLoader worker process 2.", line=LINE
)

test_recognise = recognise_table(
    "fork-cuda",
    recognises(
        wreckage(
            "THCudaCheck FAIL file=/pytorch/aten/src/THC/THCGeneral.cpp line=50 error=3 : "
            "initialization error"
        ),
        sure=0.5,
        saying=["could not be initialised"],
    ),
    recognises(
        wreckage("RuntimeError: CUDA error (3): initialization error"),
        sure=0.5,
        saying=["could not be initialised"],
    ),
    passes_over(
        wreckage(
            "THCudaCheck FAIL file=/pytorch/aten/src/THC/THCGeneral.cpp line=405 error=2 : out of "
            "memory"
        )
    ),
    recognises(
        wreckage(f"[rank0]: RuntimeError: {TEXT}", raised=(RAISED,)),
        sure=0.97,
        rank=0,
        what="data.py:44",
        saying=["forked after its parent had used CUDA", "at data.py:44", "spawn"],
    ),
    recognises(
        wreckage("[rank1]: RuntimeError: CUDA error: initialization error"),
        sure=0.5,
        rank=1,
        saying=["mostly a process that was forked"],
    ),
    recognises(
        wreckage(
            "[rank0]: THCudaCheck FAIL file=THCGeneral.cpp line=50 error=3 : initialization error",
            raised=(IN_A_CHILD,),
        ),
        sure=0.75,
        rank=0,
        saying=["forked after its parent"],
    ),
    passes_over(wreckage("RuntimeError: CUDA error: out of memory")),
)
