"""With several nodes a fault uses what is known of a rank's own machine, and names it."""

from __future__ import annotations

import signal
from typing import Any

import msgspec
import pytest

from holdfast import catalogue
from holdfast.analysis.job import gpu_stall, phrases, stall
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene import surroundings
from holdfast.analysis.scene.scene import Scene
from holdfast.findings import Verdict
from tests.analysis.job.test_gpu_stall import OTHERS, STUCK, a_gpu
from tests.faults.collectives.test_gil_held import BUSY
from tests.run.scenes import (
    NOW,
    a_rank,
    a_scene,
    an_activity,
    changed,
    ended,
    held_up,
    on_nodes,
)
from tests.run.starving import a_processor, slower, starved

OOM = "Out of memory: Killed process 4002 (python)"


def with_node(scene: Scene, name: str, **changes: Any) -> Scene:
    nodes = tuple(
        msgspec.structs.replace(node, **changes) if node.name == name else node
        for node in scene.nodes
    )
    return msgspec.structs.replace(scene, nodes=nodes)


def asked(slug: str, scene: Scene) -> Verdict | None:
    answers = list(catalogue.by_slug(slug).ask_run(scene))
    assert all(isinstance(answer, Verdict) for answer in answers), answers
    return next((answer for answer in answers if isinstance(answer, Verdict)), None)


KILLED = on_nodes(a_scene([a_rank(0), a_rank(1), ended(2, -signal.SIGKILL), a_rank(3)]))


def test_the_kernel_log_and_the_counter_are_those_of_the_ranks_node() -> None:
    for of_b in ({"kernel_events": (OOM,)}, {"oom_kills": 1}):
        found = asked("host-oom", with_node(KILLED, "b", **of_b))
        assert found is not None
        assert "rank 2 (node b, pid 4002) was killed by the kernel's OOM killer" in found.reason
        # The same on another node is about another process with that pid.
        assert asked("host-oom", with_node(KILLED, "a", **of_b)) is None


def test_whether_an_oom_kill_could_be_seen_is_known_of_the_ranks_node() -> None:
    dark = with_node(KILLED, "b", oom_kills=-1, kernel_events=Unread(why="no permission"))
    found = asked("rank-killed", dark)
    assert found is not None
    assert "whether it was an OOM kill could not be read" in found.reason
    found = asked("rank-killed", with_node(KILLED, "a", oom_kills=-1))
    assert found is not None
    assert "no cgroup OOM kill" in found.reason


def test_a_crash_is_looked_up_in_the_log_of_its_node() -> None:
    line = "python[4002]: segfault at 0 ip 0 sp 0 error 4 in libfoo.so"
    scene = on_nodes(a_scene([a_rank(0), a_rank(1), ended(2, -signal.SIGSEGV), a_rank(3)]))
    seen = asked("native-crash", with_node(scene, "b", kernel_events=(line,)))
    assert seen is not None
    assert [(e.quote, e.host) for e in seen.evidence if e.source] == [(line, "b")]
    assert "`coredumpctl info 4002` on node b" in seen.fix
    missed = asked("native-crash", with_node(scene, "a", kernel_events=(line,)))
    assert missed is not None
    assert not any(e.source for e in missed.evidence)


def test_a_lack_of_cores_is_that_of_one_node() -> None:
    scene = on_nodes(slower({0: 1.0, 1: 1.0, 2: 0.2, 3: 0.3}, processor=None))
    assert asked("cpu-contention", scene) is None  # that node's processors were not read yet
    assert asked("cpu-contention", with_node(scene, "a", processor=a_processor())) is None
    found = asked("cpu-contention", with_node(scene, "b", processor=a_processor()))
    assert found is not None
    assert "the ranks on node b got 25 % of the CPU time they needed" in found.reason
    assert "2 cores, 2 ranks" in found.reason


def test_one_rank_that_lacks_a_core_is_named_with_its_node() -> None:
    scene = on_nodes(starved(held_up({3: {}}, seconds=5.0), {3: 0.2}))
    found = asked("cpu-contention", with_node(scene, "b", processor=a_processor()))
    assert found is not None
    assert "rank 3 on node b got 20 %" in found.reason


def test_the_gpu_is_one_of_the_ranks_node() -> None:
    gpus = (*OTHERS, a_gpu(2, 4002))
    own = stall.find(with_node(on_nodes(STUCK), "b", gpus=gpus))
    other = stall.find(with_node(on_nodes(STUCK), "a", gpus=gpus))
    assert own is not None
    assert other is not None
    assert "(GPU 2: 100 % busy, 180 of 700 W)" in gpu_stall.sentence(own)
    assert "GPU 2:" not in gpu_stall.sentence(other)


@pytest.mark.parametrize(
    ("size", "ranks", "one_machine", "several"),
    [
        (2, [3], "rank 3 (pid 4003)", "rank 3 (node b, pid 4003)"),
        (2, [2, 3], "ranks 2-3", "ranks 2-3 on node b"),
        (2, [1, 2, 3], "ranks 1-3", "ranks 1 (node a), 2-3 (node b)"),
        (1, [0, 1, 2], "ranks 0-2", "ranks 0 (node a), 1 (node b), 2 (node c)"),
        (1, [0, 1, 2, 3], "ranks 0-3", "ranks 0-3"),
    ],
)
def test_who(size: int, ranks: list[int], one_machine: str, several: str) -> None:
    assert phrases.who(a_scene(), ranks) == one_machine
    assert phrases.who(on_nodes(a_scene(), size), ranks) == several


def test_a_command_says_where_its_pid_is() -> None:
    scene = on_nodes(a_scene())
    assert phrases.pid_command(a_scene(), "kill -CONT", [1, 2]) == "`kill -CONT 4001 4002`"
    assert phrases.pid_command(scene, "kill -CONT", [1, 2]) == (
        "`kill -CONT 4001` on node a, `kill -CONT 4002` on node b"
    )


FROZEN = {"activity": an_activity(state="T"), "state_since": NOW - 4}


@pytest.mark.parametrize(
    ("slug", "scene", "fix"),
    [
        ("rank-stuck", held_up({2: {}}), "`py-spy dump --pid 4002` on node b"),
        ("gil-held", BUSY, "`py-spy dump --pid 4002` on node b"),
        ("rank-frozen", held_up({2: FROZEN}), "`kill -CONT 4002` on node b"),
    ],
)
def test_a_fix_with_a_pid_names_its_node(slug: str, scene: Scene, fix: str) -> None:
    alone, found = asked(slug, scene), asked(slug, on_nodes(scene))
    assert alone is not None
    assert found is not None
    assert fix in found.fix
    assert " on node " not in alone.fix + alone.reason


def test_a_rank_has_the_surroundings_of_its_node_or_of_the_scene() -> None:
    scene = with_node(on_nodes(a_scene(oom_kills=7)), "b", oom_kills=3)
    assert [surroundings.of_rank(scene, r).oom_kills for r in range(4)] == [7, 7, 3, 3]
    assert surroundings.of_rank(a_scene(oom_kills=7), 3).oom_kills == 7
    assert [v.rank for v in surroundings.on_its_machine(scene, 3)] == [2, 3]
    assert [v.rank for v in surroundings.on_its_machine(changed(a_scene(), 0), 3)] == [0, 1, 2, 3]
