"""Which processes are ranks, and what they are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.rank.witness import delivery, start

LAUNCHERS = (
    "python /usr/bin/torchrun --nproc-per-node 2 train.py",
    "python -u /opt/venv/bin/accelerate launch train.py",
    "python -m torch.distributed.run train.py",
    "python -m accelerate.commands.launch train.py",
    "python -m holdfast run train.py",
    "python /venv/bin/holdfast run train.py",
    "python /venv/bin/ft_launcher train.py",
)
RANKS = (
    "python train.py",
    "python -u train.py torchrun",
    "python -m trainer.train --launcher torchrun",
    "python -c pass",
    "python",
)


@pytest.mark.parametrize("command", LAUNCHERS)
def test_launchers_are_known(command: str) -> None:
    assert start.is_launcher(command.split())


@pytest.mark.parametrize("command", RANKS)
def test_ranks_are_no_launchers(command: str) -> None:
    assert not start.is_launcher(command.split())


def test_the_users_own_path_comes_after_ours(tmp_path: Path) -> None:
    made = delivery.environment(tmp_path, {"PYTHONPATH": "/own", "HOME": "/h"})
    assert made == {
        "HOME": "/h",
        "PYTHONPATH": f"{delivery.SITE}:/own",
        delivery.FOLDER: str(tmp_path),
    }
    alone = delivery.environment(tmp_path, {}, writes_to=[tmp_path / "a", tmp_path / "b"])
    assert alone["PYTHONPATH"] == delivery.SITE
    assert alone[delivery.WRITES] == f"{tmp_path}/a:{tmp_path}/b"
    assert (Path(delivery.SITE) / "sitecustomize.py").is_file()
