"""What `holdfast run` costs: a step, the launcher's processor time, the start.

Side by side in one session, medians, because timings on a shared machine are noisy.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

import psutil

from bench.jobs import HOLDFAST, TORCHRUN, TRAIN, job
from holdfast import beat_page
from holdfast.rank import delivery, own
from holdfast.rank.torch_hooks import after_optimizer_step

CALLS = 20_000
STARTS = 3
PYTHON_STARTS = 15
RANKS = 8
WATCHED = 20.0
"""seconds over which the launcher's processor time is measured"""


def empty_hook(_optimizer: object, _args: object, _kwargs: object) -> None:
    return


def median_microseconds(call: Callable[[], object], *, calls: int) -> float:
    took = []
    for _ in range(calls):
        began = time.perf_counter_ns()
        call()
        took.append(time.perf_counter_ns() - began)
    return statistics.median(took) / 1000


def a_small_step() -> Callable[[], object]:
    """About the smallest training step there is, on one core."""
    import torch  # noqa: PLC0415 - takes seconds

    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(8, 64)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        optimizer.step()

    return step


def hook() -> None:
    _, buffer = beat_page.create()
    own.adopt(beat_page.Page(buffer))
    optimizer = object()
    empty = median_microseconds(lambda: empty_hook(optimizer, (), {}), calls=CALLS)
    ours = median_microseconds(lambda: after_optimizer_step(optimizer, (), {}), calls=CALLS)
    step = median_microseconds(a_small_step(), calls=2_000)
    print(
        f"a step in the hook         {ours:8.2f} µs   {ours / empty:5.1f} x an empty hook, ", end=""
    )
    print(
        f"{ours / step:.2%} of a step of {step:.0f} µs, {ours / 50_000:.4%} of 50 ms; limit 20 µs"
    )


def launcher() -> None:
    """The share of a core that watching takes, once the ranks are at work."""
    with tempfile.TemporaryDirectory() as folder, job(
        [*HOLDFAST, f"--nproc-per-node={RANKS}", TRAIN, "100000"], folder=folder
    ) as running:  # fmt: skip
        running.wait_for("step 0", seconds=240)
        process = psutil.Process(running.process.pid)
        before, began = process.cpu_times(), time.monotonic()
        for _ in running.hear(until=began + WATCHED):
            pass
        after, ended = process.cpu_times(), time.monotonic()
    spent = after.user + after.system - before.user - before.system
    print(
        f"the launcher, {RANKS} ranks      {spent / (ended - began):8.2%}      of a core, limit 2 %"
    )


def start(command: Sequence[str]) -> tuple[float, float]:
    """Seconds to the first step, and to the end."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        with job([*command, "--nproc-per-node=2", TRAIN, "2"], folder=folder) as running:
            first = running.wait_for("step 0")
            running.process.wait(timeout=60)
            return first.at - began, time.monotonic() - began


def starts() -> None:
    """In turns, so that a busy moment of the machine meets both."""
    pairs = [(start(HOLDFAST), start([*TORCHRUN, "--standalone"])) for _ in range(STARTS)]
    for index, name in enumerate(("to the first step", "to the end of 2 steps")):
        ours = statistics.median(holdfast[index] for holdfast, _ in pairs)
        bare = statistics.median(torchrun[index] for _, torchrun in pairs)
        print(f"{name:<26} {ours:8.2f} s    {ours / bare:5.2f} x torchrun's {bare:.2f} s, 2 ranks")


def python_starts() -> None:
    """What the shim and the hook add to the start of one bare Python."""
    bare = [sys.executable, "-c", "pass"]
    fd, _buffer = beat_page.create()
    with tempfile.TemporaryDirectory() as folder:
        watched = delivery.environment(
            os.environ,
            page=f"/proc/{os.getpid()}/fd/{fd}",
            words=f"{folder}/words",
            socket=f"{folder}/socket",
            launcher_pid=os.getpid(),
        )
        python, shim, both = median_starts(
            (bare, dict(os.environ)),
            (delivery.command(bare), dict(os.environ)),
            (delivery.command(bare), watched),
        )
    for name, value in (("python with the shim", shim), ("and with the hook", both)):
        print(f"{name:<26} {value * 1000:8.0f} ms   {value / python:5.1f} x bare python's ", end="")
        print(f"{python * 1000:.0f} ms")


def median_starts(*ways: tuple[list[str], dict[str, str]]) -> list[float]:
    """In turns, as above."""
    took: list[list[float]] = [[] for _ in ways]
    for _ in range(PYTHON_STARTS):
        for seconds, (command, environment) in zip(took, ways, strict=True):
            began = time.perf_counter()
            subprocess.run(command, env=environment, check=True)
            seconds.append(time.perf_counter() - began)
    return [statistics.median(seconds) for seconds in took]


def main() -> int:
    for part in (hook, python_starts, launcher, starts):
        part()
    return 0


if __name__ == "__main__":
    sys.exit(main())
