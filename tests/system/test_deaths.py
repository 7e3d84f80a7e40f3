"""Real children, killed in a known order."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from holdfast.system.deaths import UNKNOWN, DeathWatch
from tests.system.sockets import wait_for

Child = subprocess.Popen[bytes]


@contextlib.contextmanager
def children(count: int) -> Iterator[list[Child]]:
    """`sleep` starts in a millisecond; closing its input does not end it."""
    started = [subprocess.Popen(["sleep", "600"]) for _ in range(count)]
    try:
        yield started
    finally:
        for child in started:
            child.kill()
        for child in started:
            child.wait()


@contextlib.contextmanager
def watching(started: list[Child], *, pidfds: bool = True) -> Iterator[DeathWatch]:
    watch = DeathWatch(pidfds=pidfds)
    try:
        for child in started:
            watch.watch(child.pid)
        yield watch
    finally:
        watch.close()


def kill_and_see_dead(pid: int, number: int = signal.SIGKILL) -> None:
    """Returns when the kernel says it is over; the child stays to be reaped."""
    os.kill(pid, number)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_the_order_is_the_kernels_even_when_no_thread_listens_meanwhile() -> None:
    with children(12) as started, watching(started) as watch:
        order = [child.pid for child in started]
        random.shuffle(order)
        with watch._lock:  # neither thread may collect: all become ready before the first look
            for pid in order:
                kill_and_see_dead(pid)
        assert [pid for pid, _ in watch.deaths()] == order


def test_times_tell_deaths_two_milliseconds_apart() -> None:
    with children(10) as started, watching(started) as watch:
        order = [child.pid for child in started]
        random.shuffle(order)
        killed = {}
        for pid in order:
            kill_and_see_dead(pid)
            killed[pid] = time.monotonic()
            time.sleep(0.002)
        wait_for(lambda: len(watch.deaths()) == len(order))
        found = watch.deaths()
        assert [pid for pid, _ in found] == order
        times = [death.at for _, death in found]
        assert times == sorted(set(times))
        # Noticed while the main thread was elsewhere, not when it asked.
        assert all(death.at - killed[pid] < 1.0 for pid, death in found)


@pytest.mark.parametrize("pidfds", [True, False])
def test_codes_are_as_subprocess_gives_them_and_stay_for_their_owner(pidfds: bool) -> None:
    with children(1) as started:
        started.append(subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]))
        started.append(subprocess.Popen(["true"]))
        started.append(subprocess.Popen(["sleep", "600"]))
        killed, failed, fine, terminated = started
        with watching(started, pidfds=pidfds) as watch:
            killed.kill()
            terminated.terminate()
            wait_for(lambda: len(watch.deaths()) == 4, seconds=30)
            codes = {pid: death.code for pid, death in watch.deaths()}
            assert codes == {killed.pid: -9, failed.pid: 3, fine.pid: 0, terminated.pid: -15}
            assert [child.wait(timeout=10) for child in started] == [-9, 3, 0, -15]
            assert codes == {pid: death.code for pid, death in watch.deaths()}


def test_a_multithreaded_process_is_dead_when_its_last_thread_is() -> None:
    code = (
        "import threading, time\n"
        "for _ in range(8): threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "print(flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            with watching([child]) as watch:
                assert watch.deaths() == []
                child.kill()
                wait_for(watch.deaths, seconds=30)
                assert watch.deaths()[0][1].code == -9
        finally:
            child.kill()


def test_a_status_that_its_owner_took_first_is_asked_from_the_owner() -> None:
    with children(2) as (known, unknown):
        watch = DeathWatch()
        try:
            watch.watch(known.pid, lambda: known.returncode)
            watch.watch(unknown.pid)
            with watch._lock:  # the owner is quicker than we are
                for child in (known, unknown):
                    child.kill()
                    child.wait(timeout=10)
            assert [death.code for _, death in watch.deaths()] == [-9, UNKNOWN]
        finally:
            watch.close()


def test_one_that_is_long_gone_cannot_be_watched() -> None:
    with children(1) as (child,), watching([]) as watch:
        child.kill()
        child.wait()
        with pytest.raises(ProcessLookupError):
            watch.watch(child.pid)


@pytest.mark.parametrize("pidfds", [True, False])
def test_closing_leaves_no_descriptor_and_no_thread(pidfds: bool) -> None:
    def ours() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name == "holdfast-deaths"]

    before = len(os.listdir("/proc/self/fd"))
    with children(3) as started, watching(started, pidfds=pidfds) as watch:
        kill_and_see_dead(started[0].pid)
        assert ours() == ["holdfast-deaths"]
        watch.close()
        assert ours() == []
        watch.close()
    assert len(os.listdir("/proc/self/fd")) == before
