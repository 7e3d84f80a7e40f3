"""`accelerate launch`: its own names for torchrun's options, and torchrun's lines on its screen."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from holdfast.analysis.job import typed_options
from holdfast.drill.runners.runner import ToStart
from holdfast.drill.runners.torchrun import Torchrun
from holdfast.errors import ConfigError

ITS_NAMES = {
    "--nproc-per-node": "--num_processes",
    "--master-addr": "--main_process_ip",
    "--master-port": "--main_process_port",
    "--max-restarts": "--max_restarts",
    "--monitor-interval": "--monitor_interval",
    "--rdzv-backend": "--rdzv_backend",
    "--rdzv-conf": "--rdzv_conf",
    "--log-dir": "--log_dir",
    "--role": "--role",
    "--tee": "--tee",
    "--no-python": "--no_python",
    "--module": "--module",
    "-m": "--module",
}
ALWAYS = {"--standalone", "--nnodes"}
"""it meets alone, on one machine, unless it is told otherwise"""


class Accelerate(Torchrun):
    name = "accelerate"

    def command(self, start: ToStart) -> list[str]:
        if find_spec("accelerate") is None:
            raise ConfigError("accelerate is not installed", hint="pip install accelerate")
        # `--cpu` would start one plain process.
        launch = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch",
                  "--multi_gpu"]  # fmt: skip
        return [*launch, *_translated([*start.restarts, *start.options]), *start.script]


def _translated(options: list[str]) -> list[str]:
    words: list[str] = []
    for one in typed_options.before_the_script(options):
        if one.name in ALWAYS and one.value in ("", "1", "1:1"):
            continue
        if one.name not in ITS_NAMES:
            raise ConfigError(
                f"accelerate launch has no counterpart of {' '.join(one.words)}",
                hint="leave it out, or choose --runner torchrun",
            )
        words += [ITS_NAMES[one.name], *([one.value] if one.value else [])]
    return words


RUNNER = Accelerate()
