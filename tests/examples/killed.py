"""Run an example twice: EXAMPLE FOLDER RANK:STEP. In the first attempt that rank is killed there.

The second time is undisturbed and has a folder of its own. In the same process, because libraries
that take ten seconds to import are then imported once less.
"""

import importlib.util
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

EXAMPLE, FOLDER = sys.argv[1], Path(sys.argv[2])
RANK, STEP = map(int, sys.argv[3].split(":"))
PATIENCE = 60.0
steps = 0


def count(*_: Any) -> None:
    global steps  # noqa: PLW0603
    steps += 1
    if steps == STEP:
        # A death before anything is safe would prove nothing.
        end = time.monotonic() + PATIENCE
        while not list(FOLDER.rglob("step-*/manifest.json")) and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)


if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == str(RANK):
    register_optimizer_step_post_hook(count)
specification = importlib.util.spec_from_file_location("example", EXAMPLE)
assert specification is not None
assert specification.loader is not None
example = importlib.util.module_from_spec(specification)
specification.loader.exec_module(example)
if hasattr(example, "main"):  # makes the group first; trainers do that by themselves
    dist.init_process_group("gloo")
example.train(str(FOLDER))
example.train(str(FOLDER.with_name("undisturbed")))
dist.destroy_process_group()
