"""A healthy DDP script in which one rank does something long while the others wait for it.

quiet_pauses.py STEPS [WHAT:RANK:STEP:SECONDS …]      STEP 0 is before the first step
"""

import os
import socket
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from quiet_waits import WAITS  # type: ignore[import-not-found]
from torch.nn.parallel import DistributedDataParallel

PIECE = 64 * 1024


def evaluate(seconds: float) -> None:
    """Real work: forward passes over a set that only this rank has."""
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    end = time.monotonic() + seconds
    with torch.no_grad():
        while time.monotonic() < end:
            model(torch.randn(128, 256))


def compile_model(seconds: float) -> None:
    """Dynamo and AOT autograd at work, on one new function after the other."""
    end = time.monotonic() + seconds
    size = 2
    while time.monotonic() < end:
        torch._dynamo.reset()
        model = torch.nn.Sequential(*(torch.nn.Linear(size, size) for _ in range(8)))
        torch.compile(model, backend="aot_eager")(torch.ones(1, size)).sum().backward()
        size += 1


def save_checkpoint(seconds: float) -> None:
    """To a disk that takes a piece only now and then; every piece is really on it."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryFile() as file:
        while time.monotonic() < end:
            file.write(os.urandom(PIECE))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.4)


def download(seconds: float) -> None:
    """Over a line that is slow: a few bytes every half second."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_serve, args=(server, seconds), daemon=True).start()
        with socket.create_connection(server.getsockname()) as line:
            while line.recv(PIECE):
                pass


def _serve(server: socket.socket, seconds: float) -> None:
    line, _ = server.accept()
    end = time.monotonic() + seconds
    with line:
        while time.monotonic() < end:
            line.sendall(b"x" * 500)
            time.sleep(0.5)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


WORK = {
    "compile": compile_model,
    "download": download,
    "evaluate": evaluate,
    "save": save_checkpoint,
    "sleep": sleep,
    **WAITS,
}


def main() -> None:
    torch.set_num_threads(1)
    steps = int(sys.argv[1])
    pauses = [pause.split(":") for pause in sys.argv[2:]]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 64), torch.nn.Linear(64, 1)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        for what, who, when, seconds in pauses:
            if (rank, step) == (int(who), int(when)):
                WORK[what](float(seconds))
        time.sleep(0.03)
        optimizer.zero_grad()
        model(torch.randn(8, 64)).pow(2).mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
