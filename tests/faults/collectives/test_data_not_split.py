from __future__ import annotations

from holdfast.analysis.source.source import Source
from tests.analysis.source.made_sources import python
from tests.faults.table import flags, leaves, lint_table

SCRIPT = """
import torch, torchvision
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
dist.init_process_group()
class Words(Dataset):
    def __getitem__(self, at): return self.words[at]
data = torchvision.datasets.MNIST("data")
model = DDP(torch.nn.Linear(3, 3))
train_loader = DataLoader(data, batch_size=8, shuffle=True)
for batch in train_loader:
    model(batch).sum().backward()
"""


def script(old: str = "", new: str = "") -> Source:
    assert old in SCRIPT
    return python(SCRIPT.replace(old, new) if old else SCRIPT)


def with_data(made: str) -> Source:
    return script('torchvision.datasets.MNIST("data")', made)


LOADER = "train_loader = DataLoader(data, batch_size=8, shuffle=True)"
said = ["no sampler deals it out", "DDP (line 9)", "DistributedSampler(data)"]
test_lint = lint_table(
    "data-not-split",
    flags("warning", script(), lines=[10], saying=said),
    flags("warning", with_data("Words()"), lines=[10], saying=said),
    flags("warning", with_data("torch.utils.data.TensorDataset(x)"), lines=[10], saying=said),
    flags(
        "warning",
        script("data, batch_size=8, shuffle=True", "data, 8, True"),
        lines=[10],
        saying=said,
    ),
    flags("note", with_data("build(args)"), lines=[10], saying=["no sampler"]),  # who knows what
    flags(
        "warning",
        script("train_loader = DataLoader", "if args.small: pass\nloader = DataLoader"),
        lines=[11],
        saying=said,
    ),
    # dealt out in another way
    leaves(script(", shuffle=True", ", sampler=DistributedSampler(data)")),
    leaves(script(", shuffle=True", ", shuffle=True, batch_sampler=mine")),
    leaves(script(", shuffle=True", ", shuffle=sampler is None")),
    leaves(script(", shuffle=True", ", **options")),
    leaves(script(", shuffle=True", "")),
    leaves(with_data("Words(rank=dist.get_rank())")),
    leaves(with_data("torch.utils.data.Subset(whole, mine)")),
    leaves(with_data("split_dataset_by_node(whole)")),
    leaves(with_data("load(f'part-{rank}.bin')")),
    leaves(script("MNIST(", "MNIST(dist.get_rank(), ")),
    leaves(
        python(
            SCRIPT.replace('torchvision.datasets.MNIST("data")', "Words()").replace(
                "self.words[at]", "self.words[at * self.ranks + dist.get_rank()]"
            )
        )
    ),
    leaves(script("import torch, torchvision", "import torch, torchvision, accelerate")),
    leaves(script("import torch, torchvision", "import torch, torchvision, lightning")),
    leaves(script("import torch, torchvision", "from transformers import Trainer")),
    leaves(script(LOADER, f"{LOADER}\ntrain_loader = fabric.setup_dataloaders(train_loader)")),
    leaves(script(LOADER, f"{LOADER}\nmodel, train_loader = engine.prepare(model, train_loader)")),
    leaves(script(LOADER, f"if world_size == 1:\n    {LOADER}\nelse:\n    train_loader = own()")),
    # no data-parallel training
    leaves(script("model = DDP(torch.nn.Linear(3, 3))", "model = torch.nn.Linear(3, 3)")),
    leaves(script("DDP(torch.nn.Linear(3, 3))", "DDP(net, process_group=replicas)")),
    leaves(script(".sum().backward()", "")),
    # for evaluation, or made up
    leaves(script("train_loader", "val_loader")),
    leaves(script("DataLoader(data", "DataLoader(test_set")),
    leaves(
        script(
            LOADER,
            f"def evaluation():\n    {LOADER}\n    return train_loader\n"
            "def evaluate(): return evaluation()\ntrain_loader = evaluate()",
        )
    ),
    leaves(with_data("torchvision.datasets.FakeData()")),
)
