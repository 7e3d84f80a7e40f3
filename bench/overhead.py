"""What `holdfast run` costs: a step, the launcher's processor time, the start.

Side by side in one session, medians, because timings on a shared machine are noisy.
`accelerate` and `ft_launcher` take part where they are installed: on the PATH, or in --peers
BIN_DIR.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

import psutil
import torch

from bench.jobs import TRAIN, job
from bench.launchers import LAUNCHERS, LEGEND, Launcher, missing, peers_folder
from bench.launchers import command as start_of
from holdfast.rank import delivery, heartbeat_page, own_page
from holdfast.rank.torch_hooks import after_optimizer_step

CALLS = 20_000
STARTS = 3
PYTHON_STARTS = 15
RANKS = 8
SETTLED = 10.0
"""seconds after the first step"""
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
    _, buffer = heartbeat_page.create()
    own_page.adopt(heartbeat_page.HeartbeatPage(buffer))
    optimizer = torch.optim.SGD(torch.nn.Linear(8, 8).parameters())
    empty = median_microseconds(lambda: empty_hook(optimizer, (), {}), calls=CALLS)
    ours = median_microseconds(lambda: after_optimizer_step(optimizer, (), {}), calls=CALLS)
    step = median_microseconds(a_small_step(), calls=2_000)
    print(
        f"a step in the hook         {ours:8.2f} µs   {ours / empty:5.1f} x an empty hook, ", end=""
    )
    print(
        f"{ours / step:.2%} of a step of {step:.0f} µs, {ours / 50_000:.4%} of 50 ms; limit 20 µs"
    )


def launchers(peers: str) -> None:
    """The share of a core that watching takes, once the ranks are at work."""
    for name, launcher, command in installed(peers, ranks=RANKS):
        try:
            share = share_of_a_core([*command, TRAIN, "100000"], launcher.environment)
        except RuntimeError as problem:
            print(f"{name}, {RANKS} ranks: {problem}", file=sys.stderr)
            continue
        limit = ", limit 2 %" if name == "holdfast run" else ""
        print(f"{f'{name}, {RANKS} ranks':<26} {share:8.2%}      of a core{limit}")


def share_of_a_core(command: Sequence[str], environment: Mapping[str, str]) -> float:
    with tempfile.TemporaryDirectory() as folder, job(
        command, folder=folder, environment=environment
    ) as running:  # fmt: skip
        first = running.wait_for("step 0", seconds=240)
        # What is done once, about the first step, belongs to the start, which is measured below.
        for _ in running.hear(until=first.at + SETTLED):
            pass
        watching = helpers(running.process.pid)
        before, began = seconds_of(watching), time.monotonic()
        for _ in running.hear(until=began + WATCHED):
            pass
        return (seconds_of(watching) - before) / (time.monotonic() - began)


def helpers(pid: int) -> list[psutil.Process]:
    """The launcher and those of its processes that are no part of the training."""
    launcher = psutil.Process(pid)
    family = [launcher, *launcher.children(recursive=True)]
    return [process for process in family if "RANK" not in process.environ()]


def seconds_of(processes: Sequence[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return float(sum(time.user + time.system for time in times))


def installed(peers: str, *, ranks: int) -> list[tuple[str, Launcher, list[str]]]:
    ways = [(name, way, start_of(way, ranks=ranks, peers=peers)) for name, way in LAUNCHERS.items()]
    return [(name, launcher, command) for name, launcher, command in ways if command]


def start(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float] | None:
    """Seconds to the first step, and to the end; None for one that does not start here."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        with job([*command, TRAIN, "2"], folder=folder, environment=environment) as running:
            try:
                first = running.wait_for("step 0")
                running.process.wait(timeout=60)
            except (RuntimeError, subprocess.TimeoutExpired) as problem:
                print(problem, file=sys.stderr)
                return None
            return first.at - began, time.monotonic() - began


def starts(peers: str) -> None:
    """In turns, so that a busy moment of the machine meets all."""
    took: dict[str, list[tuple[float, float]]] = {}
    for _ in range(STARTS):
        for name, launcher, command in installed(peers, ranks=2):
            if seconds := start(command, launcher.environment):
                took.setdefault(name, []).append(seconds)
    for index, what in enumerate(("to the first step", "to the end of 2 steps")):
        print(f"{what}, 2 ranks")
        bare = statistics.median(seconds[index] for seconds in took["torchrun"])
        for name, pairs in took.items():
            median = statistics.median(seconds[index] for seconds in pairs)
            print(f"  {name:<24} {median:8.2f} s    {median / bare:5.2f} x torchrun's")


def python_starts() -> None:
    """What the shim and the hook add to the start of one bare Python."""
    bare = [sys.executable, "-c", "pass"]
    fd, _buffer = heartbeat_page.create()
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
    peers = peers_folder()
    hook()
    python_starts()
    launchers(peers)
    starts(peers)
    for name, launcher in LAUNCHERS.items():
        if not start_of(launcher, ranks=1, peers=peers):
            print(f"{name:<26} {missing(launcher)}")
    print(LEGEND)
    return 0


if __name__ == "__main__":
    sys.exit(main())
