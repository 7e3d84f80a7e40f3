from __future__ import annotations

from tests.analysis.source.made_sources import python
from tests.faults.table import flags, leaves, lint_table

LOOP = """
import os
import torch

def train(model, args):
    for epoch in range(args.epochs):
        run(model)
        SAVE
"""


def loop(save: str, *, before: str = "") -> str:
    return before + LOOP.replace("SAVE", save)


STATE = "{'model': model.state_dict(), 'epoch': epoch}"

CLASS = """
import torch

class Loop:
    def __init__(self, model, path):
        self.model, self.path = model, path
        self.snapshot_path = path

    def _save(self, epoch):
        state = dict(model=self.model.state_dict(), epoch=epoch)
        with open(self.snapshot_path, "wb") as file:
            torch.save(state, file)

    def _resume(self):
        return torch.load(self.snapshot_path)

    def fit(self):
        epoch = 0
        while epoch < 10:
            self._save(epoch)
            epoch += 1
"""
RANKS = """
import torch, os
import torch.distributed as dist

def worker(rank, world):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    for step in range(100):
        if step % 10 == 0:
            GUARD
                torch.save(model.state_dict(), PATH)

torch.multiprocessing.spawn(worker, args=(2,), nprocs=2)
"""


def ranks(guard: str = "if step > 10:", path: str = "'model.pt'") -> str:
    return RANKS.replace("GUARD", guard).replace("PATH", path)


CLASS_WITH_FOLDER = """
import os
import torch
class Keeper:
    def __init__(self, model, folder, step):
        self.model = model
        self.path = {0}
    def save(self):
        torch.save(dict(model=self.model.state_dict()), self.path)
    def run(self):
        for step in range(9):
            self.save()
"""
test_lint = lint_table(
    "checkpoint-not-atomic",
    flags(
        "warning",
        python(
            CLASS_WITH_FOLDER.format("os.path.join(folder, 'last.pt')"),
        ),
        lines=[8],
        saying=["last.pt"],
    ),
    leaves(python(CLASS_WITH_FOLDER.format("os.path.join(folder, f'last-{step}.pt')"))),
    leaves(python(loop("torch.save(history, 'losses.pt')"))),
    leaves(python(loop("torch.save(weight.grad, 'seen.pt')").replace("weight", "p"))),
    flags("note", python(loop("torch.save(model, 'best.pt')")), lines=[7], saying=["best"]),
    flags(
        "warning",
        python(loop(f"torch.save({STATE}, 'checkpoint.pt')")),
        lines=[7],
        saying=["straight over `'checkpoint.pt'`", "os.replace", "no checkpoint is left"],
    ),
    flags(
        "warning",
        python(loop(f"torch.save(\n            {STATE},\n            f'{{args.out}}/last.pt')")),
        lines=[7],
        saying=["last.pt"],
    ),
    flags(
        "warning",
        python(
            loop(f"torch.save({STATE}, os.path.join(args.out, 'state.pt'))")
            + "\nstate = torch.load(os.path.join(args.out, 'state.pt'))\n"
        ),
        lines=[7],
        saying=["the file this script resumes from"],
    ),
    flags(
        "warning",
        python(
            "import torch\ndef keep(state, name='ckpt.pt'):\n    torch.save(state, name)\n"
            "for epoch in range(3):\n    keep({'epoch': epoch})\n"
        ),
        lines=[3],
        saying=["'ckpt.pt'"],
    ),
    flags("warning", python(CLASS), lines=[11], saying=["the file this script resumes from"]),
    flags(
        "note",
        python(loop("if better: torch.save(model.state_dict(), 'best.pt')")),
        lines=[7],
        saying=["the only copy"],
    ),
    flags(
        "warning",
        python(ranks()),
        lines=[9],
        saying=["every rank saves to `'model.pt'`", "dist.get_rank() == 0"],
    ),
    flags("warning", python(ranks(path="f'ckpt_{step}.pt'")), lines=[9], saying=["every rank"]),
    leaves(python(ranks(guard="if rank == 0:", path="f'ckpt_{step}.pt'"))),
    leaves(python(ranks(guard="if is_main_process():", path="f'ckpt_{step}.pt'"))),
    leaves(python(ranks(path="f'ckpt_{step}_{rank}.pt'"))),
    leaves(python(ranks(path="path"))),
    leaves(python(loop(f"torch.save({STATE}, f'model_{{epoch}}.pt')"))),
    leaves(python(loop(f"torch.save({STATE}, 'ckpt-%03d.pt' % epoch)"))),
    leaves(
        python(loop(f"torch.save({STATE}, 'last.pt.tmp'); os.replace('last.pt.tmp', 'last.pt')"))
    ),
    leaves(python(loop(f"torch.save({STATE}, new); os.rename(new, 'last.pt')"))),
    leaves(python(loop(f"os.replace('ckpt.pt', 'old.pt'); torch.save({STATE}, 'ckpt.pt')"))),
    leaves(
        python(loop(f"buffer = io.BytesIO(); torch.save({STATE}, buffer)", before="import io\n"))
    ),
    leaves(python(loop("pass") + "    torch.save(model.state_dict(), 'model.pt')\n")),
    leaves(python("import torch\ndef save(state, path):\n    torch.save(state, path)\n")),
    leaves(  # a cache is written once
        python("import torch\ntorch.save(vectors, args.cache)\nv = torch.load(args.cache)\n")
    ),
    leaves(python(loop("accelerator.save_state('last')"))),
)
