from __future__ import annotations

from holdfast.analysis.scene.checkpoints import CheckpointAccount
from tests.analysis.source.made_sources import python
from tests.faults.checkpoints.test_restart_from_zero import resumed
from tests.faults.table import flags, leaves, lint_table, notices, overlooks, run_table
from tests.run.scenes import a_scene, ended, words

LOST = words(
    "ResumeRefused",
    "data position lost: 1000 samples then, 900 now; samples would be skipped or seen twice",
    hint="start with the same data",
    slugs=("data-position-lost",),
)

test_run = run_table(
    "data-position-lost",
    notices(
        a_scene([ended(0, 1, said=LOST), ended(1, 1, said=LOST)]),
        ranks=[0, 1],
        certain=True,
        fatal=True,
        saying=["1000 samples then, 900 now", "start with the same data"],
    ),
    notices(
        a_scene(attempt=1, checkpoints=CheckpointAccount(resumed=(resumed(40, data="unknown"),))),
        ranks=[],
        certain=False,
        saying=["resumed at step 40 without a saved data position", "holdfast.Sampler"],
    ),
    overlooks(a_scene()),
    overlooks(
        a_scene(attempt=1, checkpoints=CheckpointAccount(resumed=(resumed(40, data="global"),)))
    ),
    overlooks(
        a_scene(attempt=1, checkpoints=CheckpointAccount(resumed=(resumed(40),)))
    ),  # it did not tell
    overlooks(
        a_scene(attempt=1, checkpoints=CheckpointAccount(resumed=(resumed(0, data="unknown"),)))
    ),
)

EPOCHS = """
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def train(model, data, epochs):
    sampler = DistributedSampler(dataSHUFFLE)
    loader = DataLoader(data, sampler=sampler)
    for epoch in range(epochs):
        SET
        for batch in loader:
            model(batch)
"""


def shuffled(shuffle: str = "", *, first: str = "model.train()") -> str:
    return EPOCHS.replace("SHUFFLE", shuffle).replace("SET", first)


APART = """
import torch.utils.data as tud

def one_epoch(loader):
    for i, (x, y) in enumerate(loader):
        step(x, y)

class Fit:
    def __init__(self, data):
        self.sampler = tud.DistributedSampler(
            data,
            shuffle=True,
        )
        self.loader = tud.DataLoader(data, sampler=self.sampler)

    def run(self):
        for _ in range(30):
            one_epoch(self.loader)
"""
ASKED = """
from torch.utils.data import DataLoader, DistributedSampler

def loader_of(data):
    return DataLoader(data, sampler=DistributedSampler(data))

def BY(data):
    loader = loader_of(data)
    for epoch in range(9):
        for batch in loader:
            step(batch)
"""
MID = """
import torch

def main(loader):
    state = torch.load("ckpt.pt")
    model.load_state_dict(state["model"])
    for epoch in range(state["epoch"], 10):
        for n, batch in enumerate(loader):
            step(batch)
            if n % 100 == 0:
                torch.save({"model": model.state_dict(), "epoch": epoch}, "ckpt.pt")
"""

OWN = """
    import holdfast
    from torch.utils.data import DataLoader

    sampler = holdfast.Sampler(dataset, global_batch_size=8, micro_batch_size=2)
    loader = DataLoader(dataset, batch_sampler=sampler)
    ckpt = holdfast.Checkpoint("ckpts", holdfast.State(model=model, data=sampler))
    ckpt.resume()
    for number, batch in enumerate(LOADER):
        loss(model, batch).backward()
        if CONDITION:
            optimizer.step()
        ckpt.step()
"""


def own(loader: str = "sampler.follow(loader)", condition: str = "number % 4 == 3") -> str:
    return OWN.replace("LOADER", loader).replace("CONDITION", condition)


DRAWN = """
import os, torch
rank = int(os.environ["RANK"])
model = torch.nn.Linear(3, 3); o = torch.optim.Adam(model.parameters())
torch.manual_seed(1337 + rank)

def get_batch():
    return torch.randint(9, (4,))
if os.path.exists('ckpt.pt'):
    state = torch.load('ckpt.pt')
    model.load_state_dict(state['m'])
    state = None
for step in range(100):
    loss = model(get_batch())
    loss.backward()
    o.step()
    state = {'m': model.state_dict(), 'o': o.state_dict(), 'step': step}
    torch.save(state, 'ckpt.pt')
"""
"""as nanoGPT does it"""

test_lint = lint_table(
    "data-position-lost",
    flags(
        "error",
        python(own()),
        lines=[12],
        saying=["ckpt.step() runs after every micro-batch", "number % 4 == 3", "twice"],
    ),
    flags(
        "error",
        python(own("loader", "True")),
        lines=[8],
        saying=["does not follow sampler", "sampler.follow(loader)"],
    ),
    leaves(python(own(condition="torch.isfinite(norm)"))),  # a step that is skipped, and counts
    leaves(python(own().replace("        ckpt.step()", "            ckpt.step()"))),
    leaves(python(own("loader", "True").replace("batch_sampler=sampler", "batch_size=8"))),
    leaves(python(own("tqdm(sampler.follow(loader))", "True"))),
    leaves(python(own("loader", "True").replace(".backward()", ".item()"))),  # an evaluation
    flags(
        "warning",
        python(shuffled()),
        lines=[6],
        saying=["sampler.set_epoch(epoch)", "same order", "line 8"],
    ),
    flags(
        "warning",
        python(shuffled().replace("for epoch in range(epochs)", "while step < last")),
        lines=[6],
        saying=["line 8"],
    ),
    flags("warning", python(APART), lines=[9], saying=["self.sampler.set_epoch(epoch)"]),
    flags("note", python(MID), lines=[10], saying=["seen twice", "StatefulDataLoader"]),
    leaves(python(MID.replace("step(batch)", "step(batch) if n >= state['skip'] else None"))),
    leaves(python(MID.replace("            if n % 100 == 0:\n                ", "        "))),
    leaves(python(shuffled(first="sampler.set_epoch(epoch)"))),
    leaves(python(shuffled(first="loader.sampler.set_epoch(epoch)"))),
    leaves(python(shuffled(", shuffle=False"))),
    leaves(python(shuffled().replace("sampler =", "val_sampler ="))),  # whatever its order
    leaves(python(shuffled().replace("Sampler(data", "Sampler(parts['test']"))),
    leaves(python(ASKED.replace("BY", "run_validation"))),
    flags("warning", python(ASKED.replace("BY", "run")), lines=[4], saying=["same order"]),
    flags(
        "warning",
        python(shuffled().replace("sampler =", "latest =")),
        lines=[6],
        saying=["latest."],
    ),
    leaves(python(shuffled(", shuffle=args.shuffle"))),
    leaves(python(shuffled().replace("range(epochs)", "range(1)"))),
    leaves(python("import lightning\n" + shuffled())),
    leaves(python("from accelerate import Accelerator\n" + shuffled())),
    leaves(  # a library that makes loaders
        python(
            "from torch.utils.data import DistributedSampler, DataLoader\ndef loader(data):\n"
            "    return DataLoader(data, sampler=DistributedSampler(data))\n"
        )
    ),
    flags(
        "warning",
        python(DRAWN),
        lines=[7],
        saying=["drawn again", "from the seed of line 4", "`'ckpt.pt'`", "torch.get_rng_state()"],
    ),
    leaves(python(DRAWN.replace("1337 + rank", "1337 + state['step']"))),
    leaves(python(DRAWN.replace("torch.manual_seed(1337 + rank)", ""))),  # another one each time
    leaves(python(DRAWN.replace("'o': o.", "'rng': torch.get_rng_state(), 'o': o."))),
    leaves(python(DRAWN.replace("get_batch", "mask"))),
    leaves(python(DRAWN.replace("(9, (4,))", "(9, (4,), generator=g)"))),
    leaves(python(DRAWN.replace("    loss.backward()\n", ""))),
    leaves(python(DRAWN.replace("model.load_state_dict(state['m'])", "pass"))),
)
