"""Another program listens on the job's master port."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from holdfast.analysis.drill.host_acts import TakePort
from holdfast.drill.acts.registry import Carrier, carries_out
from holdfast.drill.stage import CannotInjectHere, Stage

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LISTENER = """
import socket, sys
with socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True):
    print("ready", flush=True)
    sys.stdin.read()
"""


@carries_out(TakePort)
class TakePortCarrier(Carrier):
    def prepare(self, act: TakePort, stage: Stage) -> None:  # noqa: ARG002 - as the others
        port = _free_port()
        self.listener = subprocess.Popen(
            [sys.executable, "-c", _LISTENER, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        stage.afterwards(self._end)
        assert self.listener.stdout is not None
        if self.listener.stdout.readline() != "ready\n":
            raise CannotInjectHere(f"port {port} could not be taken")
        stage.flags += ["--master-port", str(port)]
        stage.checks_first = True

    def lift(self, act: TakePort, stage: Stage) -> None:  # noqa: ARG002
        self._end()

    def _end(self) -> None:
        if self.listener.poll() is None:
            self.listener.communicate()  # it ends with its input: with us, too


def _free_port() -> int:
    """Below those that the kernel hands out: no connection takes it between two starts."""
    first = int(RANGE.read_text().split()[0])
    for port in range(first - 1, max(first - 2000, 1024), -1):
        with socket.socket(socket.AF_INET6) as tried:
            try:
                tried.bind(("::", port))
            except OSError:
                continue
            return port
    raise CannotInjectHere("no free port was found below the ephemeral range")
