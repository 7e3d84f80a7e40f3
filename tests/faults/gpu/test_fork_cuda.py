from __future__ import annotations

from tests.analysis.logs.patterns.made import traceback, wreckage
from tests.analysis.source.made_sources import python
from tests.faults.table import explain_table, flags, leaves, lint_table, passes_over, recognises

TEXT = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must "
    "use the 'spawn' start method"
)
IN_A_CHILD = (
    "[rank0]: RuntimeError: Caught RuntimeError in DataLoader worker process 2.",
    "[rank0]: Original Traceback (most recent call last):",
    '[rank0]:   File "/work/data.py", line 44, in __getitem__',
    "[rank0]: RuntimeError: CUDA error (3): initialization error",
)

test_explain = explain_table(
    "fork-cuda",
    recognises(
        wreckage(
            "THCudaCheck FAIL file=/pytorch/aten/src/THC/THCGeneral.cpp line=50 error=3 : "
            "initialization error"
        ),
        sure=0.5,
        saying=["could not be initialized"],
    ),
    recognises(
        wreckage("RuntimeError: CUDA error (3): initialization error"),
        sure=0.5,
        saying=["could not be initialized"],
    ),
    passes_over(
        wreckage(
            "THCudaCheck FAIL file=/pytorch/aten/src/THC/THCGeneral.cpp line=405 error=2 : out of "
            "memory"
        )
    ),
    recognises(
        wreckage(
            *traceback(
                f"RuntimeError: {TEXT}",
                "/work/data.py:44 __getitem__",
                "/venv/torch/cuda/__init__.py:305 _lazy_init",
                rank=0,
            )
        ),
        sure=0.97,
        rank=0,
        what="data.py:44",
        saying=["forked after its parent had used CUDA", "at data.py:44", "spawn"],
    ),
    recognises(
        wreckage("[rank1]: RuntimeError: CUDA error: initialization error"),
        sure=0.5,
        rank=1,
        saying=["usually a process that was forked"],
    ),
    recognises(
        wreckage(
            "[rank0]: THCudaCheck FAIL file=THCGeneral.cpp line=50 error=3 : initialization error",
            *IN_A_CHILD,
        ),
        sure=0.75,
        rank=0,
        saying=["forked after its parent"],
    ),
    passes_over(wreckage("RuntimeError: CUDA error: out of memory")),
)

FORKED = """
import torch
import torch.multiprocessing as mp

def work(rank):
    x = torch.ones(2, device=f"cuda:{rank}")
    return x

def main():
    PARENT
    START
"""
START = "mp.Process(target=work, args=(0,)).start()"


def forked(parent: str, start: str = START) -> str:
    return FORKED.replace("PARENT", parent).replace("START", start)


DATASET = """
import torch
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __init__(self, images):
        self.images = IMAGES

    def __getitem__(self, n):
        ITEM

def train(model, images):
    MODEL
    loader = DataLoader(Images(images), batch_size=4, num_workers=2OPTIONS)
    for batch in loader:
        model(batch)
"""


def dataset(item: str, model: str = "model.cuda()", images: str = "images", more: str = "") -> str:
    text = DATASET.replace("ITEM", item).replace("MODEL", model)
    return text.replace("IMAGES", images).replace("OPTIONS", more)


CUDA = "return self.images[n].cuda()"

test_lint = lint_table(
    "fork-cuda",
    flags(
        "error",
        python("""
            import multiprocessing
            import torch
            def embed(row):
                return row.to("cuda").sum()
            def main(rows):
                table = torch.ones(3).cuda()
                with multiprocessing.get_context("fork").Pool(4) as pool:
                    return pool.map(embed, rows)
        """),
        lines=[4],
        saying=["embed() uses CUDA in a forked child", "selects fork"],
    ),
    flags(
        "error",
        python("""
            import torch
            import torch.multiprocessing as mp
            class Server:
                def __init__(self):
                    self.net = build().cuda()
                def work(self):
                    self.net(torch.ones(1, device="cuda"))
                def start(self):
                    mp.get_context("fork").Process(target=self.work).start()
        """),
        lines=[7],
        saying=["work() uses CUDA in a forked child"],
    ),
    flags(
        "error",
        python(forked("torch.cuda.set_device(0)")),
        lines=[5],
        saying=["work() uses CUDA in a forked child", "set_start_method('spawn')", "3.14"],
    ),
    flags(
        "error",
        python(
            forked(
                "dev = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
                "    model = build().to(dev)",
                "ctx = mp.get_context('fork')\n    ctx.Process(target=work, args=(1,)).start()",
            )
        ),
        lines=[5],
        saying=["selects fork"],
    ),
    flags(
        "error",
        python(forked("free, total = torch.cuda.mem_get_info()", "mp.Pool(2).map(work, range(2))")),
        lines=[5],
        saying=["Cannot re-initialize"],
    ),
    flags(
        "error",
        python(dataset(CUDA)),
        lines=[9],
        saying=[
            "Images.__getitem__() uses CUDA in a forked DataLoader worker",
            "return CPU tensors",
        ],
    ),
    flags("warning", python(dataset(CUDA, model="pass")), lines=[9], saying=["as soon as"]),
    flags(
        "error",
        python(dataset("return self.images[n]", images="images.to('cuda')")),
        lines=[6],
        saying=["Images.__getitem__()"],
    ),
    leaves(python(forked("n = torch.cuda.device_count() if torch.cuda.is_available() else 1"))),
    leaves(python(forked("torch.manual_seed(0)"))),
    leaves(python(forked("torch.cuda.set_device(0)", "mp.spawn(work, nprocs=2)"))),
    leaves(python(forked("mp.set_start_method('spawn'); torch.cuda.init()"))),
    leaves(python(forked(START, "torch.cuda.set_device(0)"))),  # afterwards
    leaves(python(forked("if single:\n        work_on(torch.ones(1).cuda())\n        return"))),
    leaves(python(forked("x = torch.ones(1).to(args.device)"))),
    leaves(python(forked("x = torch.ones(1).cuda()").replace('device=f"cuda:{rank}"', ""))),
    leaves(python(dataset("return self.images[n]"))),
    leaves(python(dataset(CUDA, more=", multiprocessing_context='spawn'"))),
    leaves(python(dataset(CUDA).replace("num_workers=2", "num_workers=0"))),
)
