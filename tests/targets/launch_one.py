"""A launcher of one rank: starts it, tells its pid, and waits for ever."""

import os
import signal
import subprocess
import sys

from holdfast.rank import delivery, heartbeat_page

fd, page = heartbeat_page.create()
folder = sys.argv[1]
environment = delivery.environment(
    os.environ,
    page=f"/proc/{os.getpid()}/fd/{fd}",
    words=f"{folder}/words.json",
    socket=f"{folder}/socket",
    launcher_pid=os.getpid(),
)
rank = subprocess.Popen(delivery.command(sys.argv[2:]), env=environment)
print("rank", rank.pid, flush=True)
signal.pause()
