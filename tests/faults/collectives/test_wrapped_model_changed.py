from __future__ import annotations

from holdfast.analysis.source.source import Source
from tests.analysis.source.made_sources import python
from tests.faults.table import Remark, flags, leaves, lint_table

HEAD = """
import torch, torchvision
from zoo import Net as Imported, build
from torch.nn.parallel import DistributedDataParallel as DDP
class Net(torch.nn.Module): pass
class Placed(torch.nn.Module):
    def __init__(self): self.cuda()
"""


def script(*lines: str) -> Source:
    return python(HEAD + "\n".join(lines))


def moved(status: str, *lines: str, at: int) -> Remark:
    said = ["after it was wrapped in line", "no longer averaged"]
    return flags(status, script(*lines), lines=[6 + at], saying=said)


def twice(*lines: str, at: int) -> Remark:
    return flags("warning", script(*lines), lines=[6 + at], saying=["a second time", "twice"])


test_lint = lint_table(
    "wrapped-model-changed",
    moved("error", "model = DDP(Net())", "model.to('cuda')", at=2),
    moved("error", "model = Net()", "model = DDP(model)", "model = model.cuda()", at=3),
    moved("error", "net = Net()", "model = DDP(net)", "net.to(device='cuda:0')", at=3),
    moved("error", "model = DDP(torch.nn.Linear(3, 3)).to('cuda')", at=1),
    moved("error", "m = DDP(torchvision.models.resnet18(), device_ids=[0])", "m.half()", at=2),
    moved("error", "m = DDP(Net())", "m.module.to(dtype=torch.bfloat16)", at=2),
    moved("error", "m = Net()", "if many:", "    m = DDP(m)", "m.cuda()", at=4),
    moved("error", "m = DDP(Net())", "if gpu:", "    m.cuda()", at=3),
    moved("error", "for k in range(3):", "    m = DDP(Net())", "    m.cuda()", at=3),
    moved("warning", "m = DDP(Imported())", "m.cuda()", at=2),  # it may place itself
    leaves(script("m = DDP(Net().to('cuda'))", "m.to('cuda')")),  # changes nothing
    leaves(script("m = Net()", "m.cuda()", "m = DDP(m)", "m.cuda()")),
    leaves(script("m = DDP(Net(), device_ids=[0])", "m.to('cuda')")),  # it was there
    leaves(script("m = DDP(Net(device))", "m.cuda()")),
    leaves(script("m = DDP(build(args))", "m.cuda()")),
    leaves(script("m = DDP(Placed())", "m.float()")),
    leaves(script("m = DDP(Net())", "m.to('cpu')", "m.cpu()", "m.float()", "m.to(device)")),
    leaves(script("m = DDP(Net())", "for b in data:", "    m(b)", "m.half()")),  # for export
    leaves(script("m = DDP(Net())", "train(m)", "m.half()")),
    leaves(script("m = DDP(Net())", "m = Net()", "m.cuda()")),
    leaves(script("m = Net()", "if many:", "    m = DDP(m)", "else:", "    m.cuda()")),
    leaves(script("m = Net()", "if many:", "    m = DDP(m)", "if not many:", "    m.cuda()")),
    leaves(script("m = DDP(Net())", "def f(m):", "    m.cuda()")),
    leaves(script("torch.set_default_device('cuda')", "m = DDP(Net())", "m.cuda()")),
    leaves(script("m = DDP(Net())", "batch.cuda()", "loss.to('cuda')")),
    twice("model = DDP(build())", "model = DDP(model)", at=2),
    twice("model = DDP(DDP(build()))", at=1),
    twice("if many:", "    m = DDP(build())", "m = DDP(m)", at=3),
    leaves(script("if a:", "    m = DDP(m)", "else:", "    m = DDP(m, device_ids=[0])")),
    leaves(script("if a:", "    m = DDP(m)", "if b:", "    m = DDP(m)")),
    leaves(script("m = DDP(build())", "m = build()", "m = DDP(m)")),
    leaves(script("m = DDP(build())", "m = DDP(m.module)")),
    leaves(script("a = DDP(x)", "b = DDP(y)")),
    leaves(script("for k in range(2):", "    m = DDP(m)")),
)
