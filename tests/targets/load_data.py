"""A rank with DataLoader workers; each worker tells what it inherited, and takes a step."""

import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset


def take_a_step() -> None:
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    torch.optim.SGD([parameter], lr=0.1).step()


class Told(Dataset[str]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> str:
        for _ in range(3):
            take_a_step()
        own = sys.modules.get("holdfast.rank.own_page")
        page = getattr(own, "page", None)
        return f"{os.getpid()} page={page} " + " ".join(k for k in os.environ if "HOLDFAST_" in k)


for way in ("fork", "spawn"):
    if __name__ == "__main__":
        loader = DataLoader(Told(), num_workers=1, batch_size=None, multiprocessing_context=way)
        for line in loader:
            print(way, line, flush=True)
if __name__ == "__main__":
    take_a_step()
    if len(sys.argv) > 1:
        kept = iter(DataLoader(Told(), num_workers=1, batch_size=None, persistent_workers=True))
        print("worker", next(kept).split()[0], flush=True)
        sys.stdin.read()
