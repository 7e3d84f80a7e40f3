"""`holdfast check --topology` on the machine at hand, in a pipe."""

from __future__ import annotations

import json

from tests.cli.holdfast_command import run


def test_the_picture_of_this_machine() -> None:
    done = run("check", "--topology")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "network card" in done.stdout.splitlines()[0]


def test_the_same_as_one_document() -> None:
    done = run("check", "--topology", "--json")
    document = json.loads(done.stdout)
    assert document["schema"] == "holdfast/1"
    assert {"pci", "gpu_pairs", "nic_pairs", "gpu_direct"} <= document["topology"].keys()


def test_it_does_not_go_with_a_check() -> None:
    done = run("check", "--topology", "--only", "shm-small")
    assert done.returncode == 2
    assert "--topology" in done.stderr
    assert "--only" in done.stderr
