"""How long `holdfast --help` and `holdfast check` take, beside bare Python and torchrun --help.

Medians of several runs in one session, because timings on a shared machine are noisy.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

RUNS = 9
BIN = os.path.dirname(sys.executable)
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "holdfast --help": [f"{BIN}/holdfast", "--help"],
    "holdfast check": [f"{BIN}/holdfast", "check", "--fail-on", "never"],
    "torchrun --help": [f"{BIN}/torchrun", "--help"],
}


def median_seconds(command: list[str]) -> float:
    def once() -> float:
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - began

    once()  # the first run also reads the disk
    return statistics.median(once() for _ in range(RUNS))


def main() -> int:
    seconds = {name: median_seconds(command) for name, command in COMMANDS.items()}
    python = seconds["python -c pass"]
    for name, value in seconds.items():
        print(f"{name:<18} {value:7.3f} s   {value / python:6.1f} x bare python")
    ratio = seconds["holdfast check"] / seconds["torchrun --help"]
    print(f"\nholdfast check takes {ratio:.2f} x the time torchrun needs to print its help")
    return 0


if __name__ == "__main__":
    sys.exit(main())
