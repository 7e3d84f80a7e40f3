"""A process that the kernel is taking apart, before anybody was told of its end."""

from __future__ import annotations

import os
import subprocess
import sys

from holdfast.run.launch import terminate


def test_one_that_lives_and_one_that_is_not_yet_told() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert not terminate.is_leaving(child.pid)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and not taken note of
        assert terminate.is_leaving(child.pid)
    assert terminate.is_leaving(child.pid), "gone altogether"
