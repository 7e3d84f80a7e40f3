"""How long `holdfast lint` takes beside `python -m compileall` on the same tree.

compileall reads, parses and compiles every file and writes it; lint reads and parses them too, and
then asks its rules. Both run as a user would start them, one process each, in turns.

    python -m bench.lint_speed [TREE] [--laps N]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", nargs="?", help="default: the installed torch/distributed")
    parser.add_argument("--laps", type=int, default=3)
    arguments = parser.parse_args()
    tree = arguments.tree or _torch_distributed()
    compiled: list[float] = []
    linted: list[float] = []
    for _ in range(arguments.laps):
        compiled.append(_compile(tree))
        linted.append(_lint(tree))
    files = sum(name.endswith(".py") for _, _, names in os.walk(tree) for name in names)
    one, other = statistics.median(compiled), statistics.median(linted)
    print(f"{files} Python files, median of {arguments.laps} laps")
    print(f"python -m compileall  {one:6.1f} s   1.00x")
    print(f"holdfast lint         {other:6.1f} s   {other / one:.2f}x   (limit 3)")
    return 0


def _torch_distributed() -> str:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SystemExit("torch is not installed: name a tree")
    return os.path.join(os.path.dirname(spec.origin), "distributed")


def _compile(tree: str) -> float:
    """Into a folder of its own: the tree stays as it is, and nothing is there already."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        return _timed([sys.executable, "-m", "compileall", "-q", "-f", tree], environment)


def _lint(tree: str) -> float:
    command = [sys.executable, "-m", "holdfast", "lint", "--fail-on", "never", tree]
    return _timed(command, dict(os.environ))


def _timed(command: list[str], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
    seconds = time.perf_counter() - began
    assert done.returncode in (0, 1), f"{command} ended with {done.returncode}"
    return seconds


if __name__ == "__main__":
    raise SystemExit(main())
