"""NVIDIA's `ft_launcher`: torchrun's options, and torchrun's lines on its screen."""

from __future__ import annotations

import os
import shutil
import sys

from holdfast.drill.runners.runner import ToStart
from holdfast.drill.runners.torchrun import Torchrun
from holdfast.errors import ConfigError

PROGRAM = "ft_launcher"
DEFAULTS = "--ignore-missing-fault-tol-cfg"
"""Its own settings, where none were typed. Heartbeats are for the script to send."""


class FtLauncher(Torchrun):
    name = "ft_launcher"

    def command(self, start: ToStart) -> list[str]:
        path = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "")))
        program = shutil.which(PROGRAM, path=path)
        if program is None:
            raise ConfigError(
                "ft_launcher is not installed", hint="pip install nvidia-resiliency-ext"
            )
        typed = any(word.startswith(("--ft-", "--fault-tol-cfg")) for word in start.options)
        settings = [] if typed else [DEFAULTS]
        return [program, *self.meets(start), *settings, *start.restarts,
                *start.options, *start.script]  # fmt: skip


RUNNER = FtLauncher()
