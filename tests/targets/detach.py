"""A rank with two helpers in sessions of their own; one is deaf to SIGTERM and prints a line at
SIGUSR1, one starts a child.

detach.py FOLDER ENDING       notes the helpers' pids in FOLDER/pids, waits for all ranks to have
                              done so, then ends: 'well', 'fail' or 'wait' (for its end)
"""

import os
import signal
import subprocess
import sys
import time

FOLDER, ENDING = sys.argv[1:]
WORLD = int(os.environ["WORLD_SIZE"])


def note(pid: int) -> None:
    handle = os.open(os.path.join(FOLDER, "pids"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{os.environ['RANK']} {pid}\n".encode())
    os.close(handle)


def noted() -> int:
    with open(os.path.join(FOLDER, "pids")) as file:
        return file.read().count("\n")


if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, lambda *_: print("still here", flush=True))
    note(os.getpid())
    while True:
        signal.pause()
helper = subprocess.Popen(["sh", "-c", "sleep 600 & wait"], start_new_session=True)
note(helper.pid)
attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
while noted() < 2 * WORLD * (attempt + 1):
    time.sleep(0.01)
if ENDING == "wait":
    signal.pause()
sys.stdout.flush()
os._exit(0 if ENDING == "well" or attempt else 3)
