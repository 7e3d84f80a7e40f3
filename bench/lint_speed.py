"""How long `holdfast lint` takes beside `python -m compileall` on the same tree.

compileall reads, parses and compiles every file and writes it; lint reads and parses them too, and
then asks its rules. Both run as a user would start them, in turns; lint shares a large tree among
the cores, compileall does not unless told to, so the processor time is shown too.

    python -m bench.lint_speed [TREE] [--laps N]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
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
    compiled, linted = [], []
    for _ in range(arguments.laps):
        compiled.append(_compile(tree))
        linted.append(_lint(tree))
    files = sum(name.endswith(".py") for _, _, names in os.walk(tree) for name in names)
    print(f"{files} Python files, median of {arguments.laps} laps")
    for kind, what in enumerate(("elapsed", "processor")):
        one = statistics.median(lap[kind] for lap in compiled)
        other = statistics.median(lap[kind] for lap in linted)
        limit = "(limit 3)" if what == "elapsed" else ""
        print(
            f"{what:10} compileall {one:6.1f} s   holdfast lint {other:6.1f} s   "
            f"{other / one:.2f}x   {limit}".rstrip()
        )
    return 0


def _torch_distributed() -> str:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SystemExit("torch is not installed: name a tree")
    return os.path.join(os.path.dirname(spec.origin), "distributed")


def _compile(tree: str) -> tuple[float, float]:
    """Into a folder of its own: the tree stays as it is, and nothing is there already."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        return _timed([sys.executable, "-m", "compileall", "-q", "-f", tree], environment)


def _lint(tree: str) -> tuple[float, float]:
    command = [sys.executable, "-m", "holdfast", "lint", "--fail-on", "never", tree]
    return _timed(command, dict(os.environ))


def _timed(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds that passed, and seconds of processor time of the command and its children."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    quiet = subprocess.DEVNULL
    done = subprocess.run(command, env=environment, stdout=quiet, stderr=quiet, check=False)
    elapsed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode in (0, 1), f"{command} ended with {done.returncode}"
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return elapsed, spent


if __name__ == "__main__":
    raise SystemExit(main())
