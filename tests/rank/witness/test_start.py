"""Which processes are ranks, and what they are given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.rank.witness import delivery, start
from tests.places import TARGETS
from tests.rank.ranks import free_port
from tests.rank.witness.jobs import ended, recorded, started

MODULES = {"torchrun": ("torch.distributed.run",), "holdfast": ("holdfast",)}

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


def python(folder: Path, program: str, **others: str) -> str:
    """What it prints, with a witness."""
    (folder / "witness").mkdir(exist_ok=True)
    made = delivery.environment(folder / "witness", {**os.environ, **others})
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=made, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


def test_the_scripts_own_sitecustomize_is_run_and_found(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.own = 'was run'\n")
    program = "import sys, sitecustomize as s; print(sys.own, s.__file__, 'torch' in sys.modules)"
    told = python(tmp_path, program, PYTHONPATH=str(tmp_path), RANK="0")
    assert told.split() == ["was", "run", str(tmp_path / "sitecustomize.py"), "False"]
    assert list((tmp_path / "witness").iterdir()) == []


def test_a_folder_that_is_gone_breaks_no_script(tmp_path: Path) -> None:
    folder = tmp_path / "job" / "witness"
    made = delivery.environment(folder, {**os.environ, "RANK": "0", "WORLD_SIZE": "x"})
    done = subprocess.run(
        [sys.executable, "-c", "import torch; print('trained')"],
        env=made, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "trained\n"
    assert done.stderr.count("holdfast> this rank is not fully recorded for the drill") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_under_launchers_every_rank_is_seen_and_no_launcher(tmp_path: Path) -> None:
    """torchrun, `holdfast run` and a script that spawns its ranks itself."""
    commands = {
        "torchrun": ("torchrun", "--nproc-per-node", "2", "--master-port", str(free_port())),
        "holdfast": ("holdfast", "run", "--no-check", "--nproc-per-node", "2"),
        "spawn": ("holdfast", "run", "--no-check", "--nproc-per-node", "1"),
    }
    for name, command in commands.items():
        folder = tmp_path / name
        for part in ("work", "tmp", "witness"):
            (folder / part).mkdir(parents=True)
        script = ("spawn_own_ranks.py", str(free_port())) if name == "spawn" else ("train_ddp.py",)
        made = delivery.environment(
            folder / "witness", {**os.environ, "TMPDIR": str(folder / "tmp")}
        )
        done = subprocess.run(
            [sys.executable, "-m", *MODULES[command[0]], *command[1:], str(TARGETS / script[0]),
             *script[1:]],
            env=made, cwd=folder / "work", capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "for the drill" not in done.stderr
        ranks = [(one.began.rank, one.began.world) for one in recorded(folder) if one.steps]
        assert ranks == [(0, 2), (1, 2)], name
