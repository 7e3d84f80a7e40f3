"""The hook: started by sitecustomize in the rank's own process, before its script."""

from __future__ import annotations

import atexit
import faulthandler
import os
from collections.abc import Callable
from typing import Any

from holdfast.rank import (
    agent_store,
    claim,
    exit_calls,
    finite_numbers,
    gloo_threads,
    heartbeat_page,
    heartbeat_thread,
    own_page,
    prctl,
    replica_check,
    script_saves,
    spawned,
    torch_import,
)
from holdfast.rank import events as rank_events
from holdfast.rank.delivery import crash_file
from holdfast.rank.last_words import LastWordsWriter
from holdfast.rank.step_counter import StepCounter
from holdfast.rank.torch_hooks import install
from holdfast.rank.worker_server import WorkerServer


def start(*, page: str, words: str, socket: str, launcher: str, events: str = "") -> None:
    """Without a page nothing could be seen: that fails as a whole. The rest is each for itself: a
    folder that cannot be written must not cost the steps."""
    own_page.adopt(heartbeat_page.HeartbeatPage(heartbeat_page.attach(page)))
    port = os.environ.get("MASTER_PORT", "")
    server = _watch_the_rank(port, page, words, socket, launcher, events)
    torch_import.expect(begins=heartbeat_thread.start, done=lambda t: install(t, server))


def start_below_a_wrapper(said: dict[str, str], take_back: Callable[[], object]) -> None:
    """In a process that may be the rank, started by the shell, the profiler or the launcher that
    the command names: if it imports torch, it is. What it was given stays in the environment
    until then, for the one that does."""
    began: list[WorkerServer] = []

    def begins() -> None:
        if not _is_place(said["PLACE"]):
            take_back()
            began.append(start_spawned(_for_members(said), expect_torch=False))
            return
        if buffer := heartbeat_page.attach_unclaimed(said["PAGE"]):
            take_back()
            own_page.adopt(heartbeat_page.HeartbeatPage(buffer))
            fields = (said[name] for name in ("PAGE", "WORDS", "SOCKET", "LAUNCHER", "EVENTS"))
            began.append(_watch_the_rank(_port(said["PLACE"]), *fields))
            heartbeat_thread.start()

    def done(torch: Any) -> None:
        for server in began:
            install(torch, server, spawned_process=own_page.page is None)

    torch_import.expect(begins=begins, done=done)


def _is_place(place: str) -> bool:
    own = [os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE")]
    return place.split("/")[:2] == own


def _port(place: str) -> str:
    """Of our store: a wrapper may have set another, where there is no store."""
    return place.rpartition("/")[2]


def _for_members(said: dict[str, str]) -> dict[str, str]:
    names = {"page": "PAGE", "words": "WORDS", "socket": "SOCKET", "launcher": "LAUNCHER"}
    given = {name: said[upper] for name, upper in names.items()}
    return {**given, "pid": said["RANK_PID"], "port": _port(said["PLACE"])}


def _watch_the_rank(
    port: str, page: str, words: str, socket: str, launcher: str, events: str
) -> WorkerServer:
    claim.remember(os.environ)
    agent_store.remember(port)
    server = WorkerServer(socket)
    said = {"page": page, "words": words, "socket": socket, "launcher": launcher}
    said |= {"pid": str(os.getpid()), "port": port}
    _each_for_itself(
        lambda: rank_events.adopt(events),
        lambda: prctl.let_trace(int(launcher)),
        lambda: keep_crashes(crash_file(words)),
        lambda: _follow_the_end(LastWordsWriter(words), server),
        lambda: spawned.remember(said, _watcher(server)),
    )
    return server


def start_spawned(said: dict[str, str], *, expect_torch: bool = True) -> WorkerServer:
    """In a process that a rank spawned: nothing is watched before it enters a group."""
    server = WorkerServer("")
    spawned.remember(said, _watcher(server))
    agent_store.remember(said["port"])
    if expect_torch:
        torch_import.expect(
            begins=lambda: None, done=lambda t: install(t, server, spawned_process=True)
        )
    return server


def _watcher(server: WorkerServer) -> Callable[[str, str], None]:
    """What starts the hook in a process that a rank started, once it enters a group."""

    def watch_this(words: str, socket: str) -> None:
        server.move(socket)
        own_page.steps = StepCounter()
        claim.given_nothing()
        _each_for_itself(
            lambda: keep_crashes(crash_file(words)),
            lambda: _follow_the_end(LastWordsWriter(words), server),
            heartbeat_thread.start,
        )

    return watch_this


def _each_for_itself(*parts: Callable[[], object]) -> None:
    for part in parts:
        try:
            part()
        except Exception as problem:  # noqa: BLE001, PERF203
            own_page.complain(problem)


def _follow_the_end(writer: LastWordsWriter, server: WorkerServer) -> None:
    atexit.register(_end, os.getpid(), writer, server)
    exit_calls.follow(writer)


def keep_crashes(path: str) -> None:
    """Stacks of a crash go to a file of ours: stderr is the script's, and so is its choice."""
    if faulthandler.is_enabled():
        return
    # Kept open for good: faulthandler writes to the descriptor when all else is broken.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    faulthandler.enable(file=descriptor)


def _end(pid: int, writer: LastWordsWriter, server: WorkerServer) -> None:
    """Registered first, so called last, when the script's own functions have run."""
    if os.getpid() != pid:
        return
    try:
        writer.note_unheard()
        finite_numbers.finish()
        replica_check.finish()
        script_saves.finish()
        if own_page.page is not None:
            own_page.page.leaving()
            own_page.page.phase("exit")  # from here on a silent beat means nothing
        server.stop()
        heartbeat_thread.stop()
        gloo_threads.wait_until_idle()
    except Exception as problem:  # noqa: BLE001
        own_page.complain(problem)
