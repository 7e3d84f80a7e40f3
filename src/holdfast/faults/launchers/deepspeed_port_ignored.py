"""MASTER_PORT or MASTER_ADDR is exported, but the launcher does not read it.

What you see   The job uses port 29500 although another was exported; two jobs on one machine
               collide (`EADDRINUSE`) although each exported its own; or all nodes wait, each for
               itself, although MASTER_ADDR names the right machine.
Why            deepspeed, torchrun and accelerate set MASTER_ADDR and MASTER_PORT for the ranks they
               start, from their own options. Values from the environment are overwritten, not read:
               deepspeed and accelerate use 29500 without an option; torchrun uses a free port on
               one machine (29500 before torch 2.12), and 127.0.0.1:29500 for several. torchrun does
               read PET_MASTER_ADDR and PET_MASTER_PORT.
How to be sure Print os.environ["MASTER_PORT"] in a rank, or `tr '\\0' '\\n' < /proc/PID/environ`.
Fix            Pass it to the launcher: `torchrun --master-addr … --master-port …`, `deepspeed
               --master_addr … --master_port …`, `accelerate launch --main_process_ip …
               --main_process_port …`.
Known limits   Lint sees exports and launches in one file; options hidden in variables or
               configuration files are not judged.
Sources        torch 2.13.0: torch/distributed/run.py (get_args_parser, run)
               torch 2.13.0: torch/distributed/argparse_util.py (PET_ variables)
               deepspeedai/DeepSpeed deepspeed/launcher/runner.py, deepspeed/launcher/launch.py
               huggingface/accelerate src/accelerate/utils/launch.py (prepare_multi_gpu_env)
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.machine.rendezvous import FREE_PORT_SINCE
from holdfast.analysis.source.launch import command_line
from holdfast.analysis.source.source import Flag, Launch, Source, SourceSetting
from holdfast.analysis.versions import release
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(
    code="HOLD902",
    slug="deepspeed-port-ignored",
    related=("port-in-use", "wrong-master-address", "variable-unread", "rendezvous-config"),
)

OPTIONS = {
    "deepspeed": ("--master_addr", "--master_port"),
    "accelerate": ("--main_process_ip", "--main_process_port"),
    "torchrun": ("--master-addr", "--master-port"),
    "torch.distributed.launch": ("--master-addr", "--master-port"),
}
ENDPOINT_OPTIONS = (
    "master-addr",
    "master-port",
    "rdzv-endpoint",
    "main-process-ip",
    "main-process-port",
)
DEFAULT_PORT = "29500"


@FAULT.lint
def launcher_ignores_master_variables(source: Source) -> Iterator[Finding]:
    for launch in source.launches:
        if launch.kind not in OPTIONS or command_line.hides_flags(launch):
            continue
        for name, option in zip(("MASTER_ADDR", "MASTER_PORT"), OPTIONS[launch.kind], strict=True):
            setting = command_line.exported(launch, name)
            if setting is not None and not _used_elsewhere(source, launch, setting):
                yield from _judge_setting(launch, setting, option, source.here.torch)


def _used_elsewhere(source: Source, launch: Launch, setting: SourceSetting) -> bool:
    """Another launch in the same file reads it, or gets it as an option."""
    others = [other for other in source.launches if other is not launch]
    return setting.by == "environment" or any(
        setting in other.settings
        and (other.kind not in (*OPTIONS, "srun", "sbatch") or other.flag(*ENDPOINT_OPTIONS))
        for other in others
    )


def _judge_setting(
    launch: Launch, setting: SourceSetting, option: str, torch: str
) -> Iterator[Finding]:
    flag = launch.flag(option.lstrip("-").replace("_", "-"))
    if flag is not None:
        yield from _option_differs(launch, setting, flag, option)
        return
    launcher_value = _launcher_value(launch, setting, torch)
    if _decided_elsewhere(launch, setting) or _is_launcher_value(setting, launcher_value):
        return
    unreachable = setting.name == "MASTER_ADDR" and _several_machines(launch)
    report = FAULT.error if unreachable else FAULT.warning
    program = "accelerate launch" if launch.kind == "accelerate" else launch.kind
    yield report(
        f"{launch.kind} does not read {setting.name}",
        reason=f"it sets {setting.name} for its ranks from {option}, here to {launcher_value}"
        + (", which is a different machine on every node" if unreachable else ""),
        fix=f'`{program} {option} "${setting.name}" …`',
        at=setting.place,
    )


def _option_differs(
    launch: Launch, setting: SourceSetting, flag: Flag, option: str
) -> Iterator[Finding]:
    if setting.known and flag.known and setting.value != flag.value:
        yield FAULT.warning(
            f"{setting.name}={setting.value} is exported, but {option} is {flag.value}",
            reason=f"{launch.kind} uses its option and overwrites the variable for its ranks",
            fix=f'remove the export, or use `{option} "${setting.name}"`',
            at=setting.place,
        )


def _decided_elsewhere(launch: Launch, setting: SourceSetting) -> bool:
    """An endpoint, a file or a PET_ variable decides; a single process needs no port."""
    if launch.flag("rdzv-endpoint", "config-file") is not None:
        return True
    if launch.kind == "deepspeed":  # with a hostfile it takes the address of the first host
        return setting.name == "MASTER_ADDR" and launch.flag("hostfile") is not None
    if launch.kind == "accelerate":
        several = launch.flag("multi-gpu") is not None
        return not several and (command_line.number(launch.flag("num-processes")) or 1) < 2
    pet = ("PET_RDZV_ENDPOINT", f"PET_{setting.name}")
    return any(command_line.exported(launch, name) for name in pet)


def _several_machines(launch: Launch) -> bool:
    return (launch.machines or 1) > 1 and launch.flag("standalone") is None


def _launcher_value(launch: Launch, setting: SourceSetting, torch: str) -> str:
    """The value the launcher uses without its option."""
    if setting.name == "MASTER_ADDR":
        return "127.0.0.1"
    nnodes = launch.flag("nnodes")
    fixed = torch != "" and release(torch) < FREE_PORT_SINCE
    if fixed or launch.kind not in command_line.TORCHRUN or (launch.machines or 1) > 1:
        return DEFAULT_PORT
    free = "a free port it chooses itself"
    return free if nnodes is None or nnodes.known else f"{DEFAULT_PORT}, or on one machine {free}"


def _is_launcher_value(setting: SourceSetting, launcher_value: str) -> bool:
    """The exported value is the one the launcher uses anyway."""
    if not setting.known:
        return False
    loopback = setting.name == "MASTER_ADDR" and command_line.is_loopback(setting.value)
    return loopback or setting.value in (launcher_value, DEFAULT_PORT)
