"""Which processes are ranks, and what they are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.rank.witness import delivery, start
from tests.rank.witness.jobs import ended, recorded, started

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


def test_a_rank_can_break_before_it_joins_the_others(tmp_path: Path) -> None:
    script = tmp_path / "join.py"
    script.write_text(
        "import torch.distributed as dist\n"
        "print('before', flush=True)\n"
        "dist.init_process_group('gloo')\n"
        "print('joined', flush=True)\n"
    )
    (tmp_path / "witness").mkdir()
    (tmp_path / "witness/order-0.json").write_text('{"step": 0, "how": "raise"}')
    ((out, err, code),) = ended(started(tmp_path, script))
    assert (out, code) == ("before\n", 1)
    assert "InjectedFault" in err
    (attempt,) = recorded(tmp_path)
    assert attempt.gate is not None
    assert (attempt.gate.step, attempt.gate.how) == (0, "raise")
