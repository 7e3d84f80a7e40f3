"""Real wreckage: a small job broken on purpose under torchrun, accelerate and DeepSpeed.

    python -m tools.make_wrecks OUT [--launchers torchrun tee accelerate deepspeed] [--faults …]
                                    [--deepspeed PATH]

Each OUT/LAUNCHER-FAULT keeps what the launcher printed (launcher.log), the log folder where it
makes one, flight-recorder dumps (fr_RANK), and truth.json. `tee` is torchrun that prefixes every
line with its rank. Paths and host names are replaced by neutral ones. DeepSpeed must be installed
somewhere (PyPI); `--deepspeed` is its launcher.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "tests" / "targets" / "wreck.py"
RANKS = 3
CULPRIT = 1
LONGEST = 120.0


class Fault(NamedTuple):
    cause: str
    accept: tuple[str, ...] = ()
    culprit: int | None = CULPRIT
    settings: tuple[tuple[str, str], ...] = ()
    taken_port: bool = False


LATE = ("rank-stuck", "rank-frozen", "slow-rank-timeout", "rank-conditional-code", "ranks-missing")
"""four seconds without a rank: a log does not show which of these it was, a run folder could"""

FAULTS = {
    "healthy": Fault("healthy", culprit=None),
    "exception": Fault("python-exception"),
    "kill": Fault("rank-killed", ("host-oom",)),
    "exit": Fault("rank-exits-early"),
    "segfault": Fault("native-crash"),
    "stop": Fault("rank-frozen", LATE),
    "sleep": Fault("rank-stuck", LATE),
    "size": Fault("collective-mismatch", ("rank-conditional-code",)),
    "skip": Fault("collective-mismatch", ("rank-conditional-code", *LATE)),
    "fd-limit": Fault("fd-limit"),
    "disk-full": Fault("disk-full"),
    "cut-checkpoint": Fault("checkpoint-corrupt"),
    "loader-killed": Fault("dataloader-killed", ("host-oom",)),
    "unused": Fault("unused-parameters", culprit=None),
    "bad-interface": Fault(
        "nic-name-missing", culprit=None, settings=(("GLOO_SOCKET_IFNAME", "nope0"),)
    ),
    "port-taken": Fault("port-in-use", culprit=None, taken_port=True),
}


def command(launcher: str, deepspeed: str, port: int, logs: Path) -> list[str]:
    beside = Path(sys.executable).parent
    if launcher == "deepspeed":
        return [deepspeed, "--num_gpus", str(RANKS), "--master_port", str(port)]
    if launcher == "accelerate":
        return [
            str(beside / "accelerate"), "launch", "--multi_gpu", "--num_processes", str(RANKS),
            "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
            "--main_process_port", str(port),
        ]  # fmt: skip
    how = ["--tee", "3"] if launcher == "tee" else ["--redirects", "3", "--log-dir", str(logs)]
    return [
        str(beside / "torchrun"), "--nproc-per-node", str(RANKS), "--master-addr", "127.0.0.1",
        "--master-port", str(port), *how,
    ]  # fmt: skip


def launch(launcher: str, name: str, deepspeed: str, folder: Path) -> str:
    """Everything it printed; recorder dumps and log folder are in `folder` afterwards."""
    fault = FAULTS[name]
    logs = folder / "logs"
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
        if fault.taken_port:
            door.listen()
        else:
            door.close()
        environment = {
            **os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu",
            "TORCH_FR_BUFFER_SIZE": "64", "WRECK_RECORDERS": str(folder), **dict(fault.settings),
        }  # fmt: skip
        job = subprocess.Popen(
            [*command(launcher, deepspeed, port, logs), str(SCRIPT), name, str(CULPRIT)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
            cwd=folder, start_new_session=True,
        )  # fmt: skip
        try:
            printed, _ = job.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            printed, _ = job.communicate()
    return printed.decode(errors="replace")


def scrubbed(text: str, folder: Path, deepspeed: str) -> str:
    """Without paths and names of the machine it was made on."""
    packages = sysconfig.get_paths()["purelib"]
    places = {
        str(folder): "/scratch/job",
        packages: "/opt/venv/lib/python3/site-packages",
        str(Path(sys.executable).parent): "/opt/venv/bin",
        str(Path(deepspeed).parent): "/opt/venv/bin",
        str(Path(deepspeed).parent.parent): "/opt/venv",
        str(SCRIPT): "/workspace/train.py",
        str(ROOT): "/workspace",
        sysconfig.get_paths()["stdlib"]: "/usr/lib/python3",
        socket.gethostname(): "node0",
    }
    for place in sorted((p for p in places if p not in ("", ".")), key=len, reverse=True):
        text = text.replace(place, places[place])
    temporary = re.escape(tempfile.gettempdir())
    return re.sub(temporary + r"/[\w./-]+", "/scratch/tmp", text)


def keep(folder: Path, printed: str, out: Path, deepspeed: str, fault: Fault) -> None:
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / "launcher.log").write_text(scrubbed(printed, folder, deepspeed))
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        if file.name.startswith("fr_"):
            shutil.copy(file, out / file.name)
        elif file.name in ("stderr.log", "stdout.log", "error.json"):
            # logs/RUN/attempt_0/LOCAL_RANK/stderr.log; an empty one is evidence, too.
            to = out / Path(*file.parts[-3:])
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(scrubbed(file.read_text(errors="replace"), folder, deepspeed))
    truth = {
        "cause": fault.cause,
        "accept": list(fault.accept),
        "culprit": None if fault.culprit is None else f"rank {fault.culprit}",
    }
    (out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("out", type=Path)
    kinds = ["torchrun", "tee", "accelerate", "deepspeed"]
    parser.add_argument("--launchers", nargs="+", default=kinds, choices=kinds)
    parser.add_argument("--faults", nargs="+", default=list(FAULTS), choices=list(FAULTS))
    parser.add_argument("--deepspeed", default=shutil.which("deepspeed") or "deepspeed")
    arguments = parser.parse_args()
    for launcher in arguments.launchers:
        for name in arguments.faults:
            if launcher == "accelerate" and FAULTS[name].taken_port:
                continue  # it warns, and takes another one
            with tempfile.TemporaryDirectory(prefix="wreck-") as made:
                folder = Path(made)
                printed = launch(launcher, name, arguments.deepspeed, folder)
                out = arguments.out / f"{launcher}-{name}"
                keep(folder, printed, out, arguments.deepspeed, FAULTS[name])
                print(out.name, flush=True)


if __name__ == "__main__":
    main()
