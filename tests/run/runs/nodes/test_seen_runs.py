"""Which folders are one run, and who is believed about it."""

from __future__ import annotations

import pytest

from holdfast.run.runs.nodes.seen_runs import (
    SeenRun,
    by_run,
    each_once,
    labels,
    odd_nodes,
    state_of,
)
from holdfast.run.runs.registry import RunState, RunSummary


def seen(machine: str, host: str, state: RunState = RunState.ENDED, **of_run: object) -> SeenRun:
    fields: dict[str, object] = {
        "id": "r1",
        "run": "r1",
        "node": host,
        "folder": "/runs/r1",
        "started": 10.0,
        "ended": None,
        "world": 4,
        "steps": 7,
        "restarts": 0,
        "exit_code": 0,
        "pid": 100,
        "command": (),
        "said": "",
        **of_run,
    }
    return SeenRun(machine=machine, summary=RunSummary(host=host, state=state, **fields))  # type: ignore[arg-type]


def test_on_a_shared_disk_the_machine_of_the_launcher_is_believed() -> None:
    everywhere = [
        seen("a", "a", RunState.RUNNING, coordinates=True),
        seen("a", "b", RunState.UNKNOWN, id="r1.b"),
        seen("b", "a", RunState.UNKNOWN, coordinates=True),
        seen("b", "b", RunState.LOST, id="r1.b"),
    ]
    for told in (everywhere, everywhere[::-1]):
        once = each_once(told)
        assert [(one.machine, one.summary.id) for one in once] == [("a", "r1"), ("b", "r1.b")]
        (folders,) = by_run(once)
        assert state_of(folders).state is RunState.RUNNING
        assert state_of(folders).world == 8
        assert odd_nodes(folders) == ["b: lost"]


def test_disks_of_their_own_have_the_same_name_and_are_one_run() -> None:
    told = [
        seen("b", "b", exit_code=143, steps=9),
        seen("a", "a", exit_code=1, coordinates=True),
        seen("c", "c", RunState.UNKNOWN, id="r0", run="r0", started=3.0, node=""),
    ]
    (first, second) = by_run(each_once(told))
    assert [one.machine for one in first] == ["a", "b"]
    assert odd_nodes(first) == ["b: exit 143"]
    assert [one.node for one in second] == ["c"]
    assert odd_nodes(second) == []


def test_a_run_runs_while_any_launcher_of_it_lives() -> None:
    told = [seen("a", "a", RunState.LOST, coordinates=True), seen("b", "b", RunState.RUNNING)]
    (folders,) = by_run(told)
    assert state_of(folders).state is RunState.RUNNING
    assert odd_nodes(folders) == ["a: lost"]


@pytest.mark.parametrize("names", [["a", "b"], ["a", "a", "a"], ["a", "a-2", "a"]])
def test_no_two_nodes_have_one_label(names: list[str]) -> None:
    given = labels([seen(name, name) for name in names])
    assert len(set(given)) == len(names)
    assert given[0] == names[0]
