"""A healthy DDP script in which rank 0 waits for something outside while the others wait for it:
quiet_waits.py WHICH SECONDS

The process shows no activity at all while it waits: no CPU, no I/O, no socket traffic.
"""

import fcntl
import http.client
import http.server
import os
import pdb  # noqa: T100
import subprocess
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WHICH, SECONDS = sys.argv[1], float(sys.argv[2])
STEPS_BEFORE = STEPS_AFTER = 40


def ask_a_server() -> None:
    """One answer at the end, no byte before: a model server, a judge, a remote evaluation."""

    class Slow(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(SECONDS)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    line = http.client.HTTPConnection("127.0.0.1", server.server_port)
    line.request("GET", "/")
    line.getresponse().read()
    server.shutdown()


def run_a_command() -> None:
    """An upload, a copy, `srun`: what it does cannot be seen from here."""
    subprocess.run(["sleep", str(SECONDS)], check=True)


def join_a_thread() -> None:
    thread = threading.Thread(target=time.sleep, args=(SECONDS,))
    thread.start()
    thread.join()


def wait_for_a_lock() -> None:
    """Held by another process, as a data preparation of another job would."""
    with (
        tempfile.NamedTemporaryFile() as file,
        subprocess.Popen(["flock", file.name, "sleep", str(SECONDS)]),
    ):
        time.sleep(0.5)
        fcntl.flock(file, fcntl.LOCK_EX)


def read_a_pipe() -> None:
    ours, theirs = os.pipe()
    command = ["sh", "-c", f"sleep {SECONDS}; echo go"]
    with subprocess.Popen(command, stdout=theirs):
        os.close(theirs)
        os.read(ours, 1)
    os.close(ours)


def debug() -> None:
    """Its user looks at something; the table types `continue` in the end."""
    pdb.set_trace()  # noqa: T100


def save_in_a_thread() -> None:
    """To a disk that takes a piece now and then, while the main thread waits for the last one."""

    def write() -> None:
        end = time.monotonic() + SECONDS
        with tempfile.TemporaryFile() as file:
            while time.monotonic() < end:
                file.write(os.urandom(65536))
                file.flush()
                os.fsync(file.fileno())
                time.sleep(SECONDS / 4)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()


def nothing() -> None:
    """For the cases in which the odd thing happens outside."""


WAITS = {
    "command": run_a_command,
    "debugger": debug,
    "lock": wait_for_a_lock,
    "nothing": nothing,
    "pipe": read_a_pipe,
    "save-thread": save_in_a_thread,
    "server": ask_a_server,
    "thread": join_a_thread,
}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS_BEFORE + STEPS_AFTER):
        if step == STEPS_BEFORE and dist.get_rank() == 0:
            WAITS[WHICH]()
        time.sleep(0.03)
        optimizer.zero_grad()
        model(torch.randn(8, 64)).pow(2).mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
