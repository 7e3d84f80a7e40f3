"""How a training script breaks on command: `SCRIPT STEPS [FAULT RANK]`.

The fault comes once, in the first attempt, in the middle of step 20 of that rank; the moment goes
into the file named by DDP_FAULT_TIME_FILE, if there is one.
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

STEPS = int(sys.argv[1])
FAULT, CULPRIT = (sys.argv[2], int(sys.argv[3])) if len(sys.argv) > 3 else ("", -1)
AT = 20


class Breakage:
    """Asked between two layers, again and again; breaks when it is time."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        self.step = 0
        first_attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        self.due = first_attempt and dist.get_rank() == CULPRIT
        self.slow = False

    def maybe(self) -> None:
        if self.slow:
            time.sleep(0.15)
        if self.due and self.step == AT:
            self.due = False
            if "DDP_FAULT_TIME_FILE" in os.environ:
                with open(os.environ["DDP_FAULT_TIME_FILE"], "w") as file:
                    file.write(str(time.time()))
            self.slow = FAULT == "slow"
            break_it(self.group)


def break_it(group: dist.ProcessGroup | None) -> None:
    if FAULT == "sleep":
        time.sleep(10_000)
    elif FAULT == "exception":
        raise ValueError("the batch is empty")
    elif FAULT == "exit":
        os._exit(0)
    elif FAULT == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif FAULT == "size":
        dist.all_reduce(torch.ones(7), group=group)
    elif FAULT == "group":
        dist.all_reduce(torch.ones(1))  # of all ranks, where no other rank comes
