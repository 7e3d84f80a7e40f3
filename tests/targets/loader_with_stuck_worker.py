"""A DataLoader whose only worker waits for ever in the dataset.

argv: a folder; the worker notes its pid in worker.pid there.
"""

import os
import signal
import sys

from torch.utils.data import DataLoader, Dataset


class Stuck(Dataset[int]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        with open(f"{sys.argv[1]}/worker.new", "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))
        os.replace(f"{sys.argv[1]}/worker.new", f"{sys.argv[1]}/worker.pid")
        signal.pause()
        return index


for _ in DataLoader(Stuck(), num_workers=1):
    pass
