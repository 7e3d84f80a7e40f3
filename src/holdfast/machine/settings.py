"""The variables in force for a job, by NCCL's own order of precedence."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator

from holdfast.facts import Plan, Setting
from holdfast.probe.process import redact

PREFIXES = (
    "NCCL_",
    "TORCH_NCCL_",
    "TORCH_GLOO_",
    "GLOO_",
    "TORCHELASTIC_",
    "TORCH_FR_",
    "TORCH_DISTRIBUTED_",
    "TORCH_DIST_",
    "PET_",
    "ACCELERATE_",
    "DEEPSPEED_",
    "DS_",
    "HOROVOD_",
    "MASTER_",
    "LOCAL_",
    "GROUP_",
    "UCX_",
    "FI_",
    "SLURM_JOB_",
    "SLURM_N",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_STEP_",
    "SLURM_TASKS_",
)
NAMES = frozenset(
    {
        "RANK",
        "WORLD_SIZE",
        "NODE_RANK",
        "ROLE_RANK",
        "OMP_NUM_THREADS",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_LAUNCH_BLOCKING",
        "TORCH_CPP_LOG_LEVEL",
    }
)
LARGEST_FILE = 1 << 20
LONGEST_NAME = LONGEST_VALUE = 1023
"""NCCL cuts both there (src/misc/param.cc)"""


def read_settings(plan: Plan, root: str = "/") -> tuple[Setting, ...]:
    """Each variable once, with the value that wins: NCCL sets from a file only what is unset."""
    in_force = {
        name: Setting(name=name, value=_text(value), origin="environment")
        for name, value in plan.environment.items()
        if name == _text(name)
    }
    for path in _files(plan, root):
        for setting in _read_file(path):
            in_force.setdefault(setting.name, setting)
    return tuple(_without_secret(s) for s in in_force.values() if is_relevant(s.name))


def _text(value: str) -> str:
    """The environment may hold any bytes; what is reported must be text."""
    return os.fsencode(value).decode(errors="replace")


def is_relevant(name: str) -> bool:
    """Spaces around a name count for NCCL, not for us: such a mistake must be seen."""
    return name.strip().startswith(PREFIXES) or name.strip() in NAMES


def _files(plan: Plan, root: str) -> Iterator[str]:
    if named := plan.environment.get("NCCL_CONF_FILE"):
        yield named
    else:
        # The account's home and not $HOME: NCCL asks getpwuid().
        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            home = ""
        if home:
            yield os.path.join(root, home.lstrip("/"), ".nccl.conf")
    yield os.path.join(root, "etc/nccl.conf")


def _read_file(path: str) -> Iterator[Setting]:
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST_FILE)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # NCCL, too, goes on without a word
    yield from parse(content, path)


def parse(content: bytes, path: str) -> Iterator[Setting]:
    """Lines as NCCL takes them: nothing is trimmed, and the first line for a name wins.

    'NCCL_DEBUG = INFO' so names a variable 'NCCL_DEBUG ' that nobody reads. Only a carriage
    return at the end goes, as in newer NCCL; one before kept it in the value.
    """
    for number, raw in enumerate(content.split(b"\n"), start=1):
        line = raw.removesuffix(b"\r").split(b"\0", 1)[0]
        name, equals, value = line.partition(b"=")
        if equals and name and not line.startswith(b"#"):
            yield Setting(
                name=name[:LONGEST_NAME].decode(errors="replace"),
                value=value[:LONGEST_VALUE].decode(errors="replace"),
                origin=f"{path}:{number}",
            )


def _without_secret(setting: Setting) -> Setting:
    """A secret shows by its name or by its form; both are judged on NAME=value."""
    start = f"{setting.name}="
    value = redact(start + setting.value).removeprefix(start)
    return Setting(name=setting.name, value=value, origin=setting.origin)
