"""What launchers make of the variables they are started with. Pure.

torchrun (torch 2.13.0 local_elastic_agent.py) gives every rank its own RANK, WORLD_SIZE,
MASTER_ADDR… whatever was there; DeepSpeed's launcher does so with those it knows
(deepspeed/launcher/launch.py). A flag beats the PET_ variable of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.analysis.source.source import Launch

BY_TORCHRUN = frozenset(
    [
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "ROLE_NAME",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_USE_AGENT_STORE",
        "TORCHELASTIC_ERROR_FILE",
    ]
)
BY_DEEPSPEED = frozenset(
    ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "MASTER_ADDR", "MASTER_PORT"]
)
LAUNCHERS = {
    "torchrun": BY_TORCHRUN,
    "torch.distributed.launch": BY_TORCHRUN,
    "holdfast": BY_TORCHRUN,
    "accelerate": BY_TORCHRUN,
    "deepspeed": BY_DEEPSPEED,
}
SAYS = {
    "MASTER_ADDR": {"accelerate": "main-process-ip"},
    "MASTER_PORT": {"accelerate": "main-process-port"},
}
"""the flag that sets it, where its name is another"""


def overridden(name: str, launches: Sequence[Launch]) -> tuple[str, str]:
    """What overrides this variable, and what to do instead; ('', '') when nothing does."""
    for launch in launches:
        if name in LAUNCHERS.get(launch.kind, ()) and _starts_several(launch):
            program = _program(launch.kind)
            flag = SAYS.get(name, {}).get(launch.kind, name.lower().replace("_", "-"))
            way = f"give {program} --{flag}" if name in SAYS else f"{program} numbers its ranks"
            return f"{program}, which sets it for every rank", way
        if name.startswith("PET_"):
            flag = name.removeprefix("PET_").lower().replace("_", "-")
            if launch.kind in ("torchrun", "holdfast") and launch.flag(flag) is not None:
                return f"--{flag} on the command line", "keep one of the two"
    return "", ""


def added(launches: Sequence[Launch], ranks: int) -> Iterator[tuple[str, str, str]]:
    """(name, value, who): what a launcher exports where the user has not; torch 2.13.0 run.py and
    local_elastic_agent.py. `ranks`: on this machine."""
    for launch in launches:
        if LAUNCHERS.get(launch.kind) is BY_TORCHRUN and _starts_several(launch):
            yield "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", _program(launch.kind)
            if ranks > 1:
                yield "OMP_NUM_THREADS", "1", _program(launch.kind)
            return


def _starts_several(launch: Launch) -> bool:
    """accelerate launch starts one process without torchrun."""
    if launch.kind != "accelerate":
        return True
    counts = (launch.flag("num-processes"), launch.flag("num-machines"))
    return launch.flag("multi-gpu") is not None or any(
        flag.value.isdecimal() and int(flag.value) > 1 for flag in counts if flag
    )


def _program(kind: str) -> str:
    return {"holdfast": "holdfast run", "accelerate": "accelerate launch"}.get(kind, kind)
