"""Ranks below a shell or another launcher: the process that imports torch is the rank.

A package of that name stands in for torch where only its import matters: it fails, as without a
driver, and the script goes on.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from holdfast.rank import heartbeat_page
from tests.rank.ranks import Rank, place, wait_for

TRAIN = """
import os, sys, time
try:
    import torch
except ImportError:
    pass
print('trains', os.getpid(), [n for n in os.environ if n.startswith('HOLDFAST')], flush=True)
if 'wait' in sys.argv:
    time.sleep(600)
raise ValueError('the batch is empty')
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    package = tmp_path / "path" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('no driver')\n")
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "helper.py").write_text("print('helps', flush=True)\n")
    return tmp_path


def below(folder: Path, command: str, **environment: str) -> Rank:
    settings = {**place(1, 2, 29400), "PYTHONPATH": str(folder / "path"), **environment}
    text = command.replace("python", sys.executable)
    return Rank(folder, ["bash", "-c", f"cd {folder}\n{text}\ntrue"], settings)


@pytest.mark.parametrize(
    "command",
    [
        "python train.py",
        "python helper.py; python train.py",
        "python -c 'import torch'; python train.py",  # many a wrapper prints the version
        "bash -c 'python train.py; true'",
        "exec python train.py",
    ],
)
def test_the_process_that_imports_torch_is_the_rank(folder: Path, command: str) -> None:
    rank = below(folder, command)
    try:
        rank.finish()
        printed = rank.out.read_text()
        pid = int(printed.split("trains ")[1].split()[0])
        assert heartbeat_page.writer(rank.buffer) == pid
        assert printed.endswith("[]\n"), "what it starts inherits nothing"
        words = rank.last_words()
        assert words is not None
        assert (words["kind"], words["where"]) == ("ValueError", "train.py:10 in <module>")
        assert "holdfast>" not in rank.err.read_text()
    finally:
        rank.end()


def test_only_one_of_several_is_the_rank_and_a_stranger_never(folder: Path) -> None:
    rank = below(folder, "RANK=0 python train.py; python train.py wait & python train.py; wait")
    try:
        wait_for(lambda: rank.out.read_text().count("trains") == 3, "all three have come")
        pids = [int(line.split()[1]) for line in rank.out.read_text().splitlines()]
        assert heartbeat_page.writer(rank.buffer) in pids[1:]
        assert heartbeat_page.writer(rank.buffer) != rank.process.pid
    finally:
        with_wait = rank.process.pid
        os.killpg(with_wait, signal.SIGKILL)
        rank.end()


def test_a_launcher_in_between_is_none(folder: Path) -> None:
    """It imports torch itself, and starts the rank with its own environment."""
    (folder / "accelerate").write_text(
        "import os, subprocess, sys\n"
        "try:\n    import torch\nexcept ImportError:\n    pass\n"
        "subprocess.run([sys.executable, 'train.py'])\n"
    )
    rank = below(folder, "exec python accelerate launch train.py")
    try:
        rank.finish()
        pid = int(rank.out.read_text().split()[1])
        assert heartbeat_page.writer(rank.buffer) == pid != rank.process.pid
    finally:
        rank.end()


def test_our_store_is_at_our_port_whatever_a_launcher_in_between_sets(folder: Path) -> None:
    """`accelerate launch --cpu` sets MASTER_PORT=29500, where only rank 0 can serve a store."""
    (folder / "train.py").write_text(
        "import sys\n"
        "try:\n    import torch\nexcept ImportError:\n    pass\n"
        "from holdfast.rank import agent_store\n"
        "print(agent_store.is_agents(29500), agent_store.is_agents(29400))\n"
    )
    flag = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    rank = below(folder, "export MASTER_PORT=29500; python train.py", **flag)
    try:
        rank.finish()
        assert rank.out.read_text() == "False True\n"
    finally:
        rank.end()
