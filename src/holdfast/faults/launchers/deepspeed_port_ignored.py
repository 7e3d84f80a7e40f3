"""MASTER_PORT or MASTER_ADDR is exported, and the launcher does not read it.

What you see   The job comes up on port 29500 although another was exported; two jobs on one
               machine collide (`EADDRINUSE`) although each exported its own; or all nodes wait,
               each for itself, although MASTER_ADDR names the right machine.
Why            deepspeed, torchrun and accelerate set MASTER_ADDR and MASTER_PORT for the ranks
               they start, from their own options. What stood in the environment is overwritten,
               not read: deepspeed and accelerate take 29500 without an option; torchrun takes a
               free port on one machine (29500 before torch 2.12), and 127.0.0.1:29500 for
               several. torchrun does read PET_MASTER_ADDR and PET_MASTER_PORT.
How to be sure Print os.environ["MASTER_PORT"] in a rank, or `tr '\\0' '\\n' < /proc/PID/environ`.
Fix            Say it to the launcher: `torchrun --master-addr … --master-port …`, `deepspeed
               --master_addr … --master_port …`, `accelerate launch --main_process_ip …
               --main_process_port …`.
Sources        torch 2.13.0: torch/distributed/run.py (get_args_parser, run)
               torch 2.13.0: torch/distributed/argparse_util.py (PET_ variables)
               deepspeedai/DeepSpeed deepspeed/launcher/runner.py, deepspeed/launcher/launch.py
               huggingface/accelerate src/accelerate/utils/launch.py (prepare_multi_gpu_env)
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.machine.rendezvous import FREE_PORT_SINCE
from holdfast.analysis.source.launch import questions
from holdfast.analysis.source.source import Flag, Launch, Source, SourceSetting
from holdfast.analysis.versions import release
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(code="HOLD902", slug="deepspeed-port-ignored")

OPTIONS = {
    "deepspeed": ("--master_addr", "--master_port"),
    "accelerate": ("--main_process_ip", "--main_process_port"),
    "torchrun": ("--master-addr", "--master-port"),
    "torch.distributed.launch": ("--master-addr", "--master-port"),
}
SAID = ("master-addr", "master-port", "rdzv-endpoint", "main-process-ip", "main-process-port")
DEFAULT_PORT = "29500"


@FAULT.lint
def the_launcher_does_not_read_it(source: Source) -> Iterator[Finding]:
    for launch in source.launches:
        if launch.kind not in OPTIONS or questions.hides_flags(launch):
            continue
        for name, option in zip(("MASTER_ADDR", "MASTER_PORT"), OPTIONS[launch.kind], strict=True):
            setting = questions.exported(launch, name)
            if setting is not None and not _used_elsewhere(source, launch, setting):
                yield from _against(launch, setting, option, source.here.torch)


def _used_elsewhere(source: Source, launch: Launch, setting: SourceSetting) -> bool:
    """Another launch of the same piece reads it, or is told it by option."""
    others = [other for other in source.launches if other is not launch]
    return setting.by == "environment" or any(
        setting in other.settings
        and (other.kind not in (*OPTIONS, "srun", "sbatch") or other.flag(*SAID))
        for other in others
    )


def _against(launch: Launch, setting: SourceSetting, option: str, torch: str) -> Iterator[Finding]:
    flag = launch.flag(option.lstrip("-").replace("_", "-"))
    if flag is not None:
        yield from _two_values(launch, setting, flag, option)
        return
    instead = _instead(launch, setting, torch)
    if _said_otherwise(launch, setting) or _the_same(setting, instead):
        return
    stranded = setting.name == "MASTER_ADDR" and _several_machines(launch)
    speak = FAULT.error if stranded else FAULT.warning
    program = "accelerate launch" if launch.kind == "accelerate" else launch.kind
    yield speak(
        f"{launch.kind} does not read {setting.name}",
        reason=f"it sets {setting.name} for its ranks by {option}, here to {instead}"
        + (", which is a different machine on every node" if stranded else ""),
        fix=f'`{program} {option} "${setting.name}" …`',
        at=setting.place,
    )


def _two_values(
    launch: Launch, setting: SourceSetting, flag: Flag, option: str
) -> Iterator[Finding]:
    if setting.known and flag.known and setting.value != flag.value:
        yield FAULT.warning(
            f"{setting.name}={setting.value} is exported, but {option} says {flag.value}",
            reason=f"{launch.kind} goes by its option and overwrites the variable for its ranks",
            fix=f'drop the export, or write `{option} "${setting.name}"`',
            at=setting.place,
        )


def _said_otherwise(launch: Launch, setting: SourceSetting) -> bool:
    """An endpoint, a file or a PET_ variable decides; a lone process needs no port at all."""
    if launch.flag("rdzv-endpoint", "config-file") is not None:
        return True
    if launch.kind == "deepspeed":  # with a hostfile it asks the first host for its address
        return setting.name == "MASTER_ADDR" and launch.flag("hostfile") is not None
    if launch.kind == "accelerate":
        several = launch.flag("multi-gpu") is not None
        return not several and (questions.number(launch.flag("num-processes")) or 1) < 2
    pet = ("PET_RDZV_ENDPOINT", f"PET_{setting.name}")
    return any(questions.exported(launch, name) for name in pet)


def _several_machines(launch: Launch) -> bool:
    return (launch.machines or 1) > 1 and launch.flag("standalone") is None


def _instead(launch: Launch, setting: SourceSetting, torch: str) -> str:
    """What the launcher takes where its option is not given."""
    if setting.name == "MASTER_ADDR":
        return "127.0.0.1"
    nnodes = launch.flag("nnodes")
    fixed = torch != "" and release(torch) < FREE_PORT_SINCE
    if fixed or launch.kind not in questions.TORCHRUN or (launch.machines or 1) > 1:
        return DEFAULT_PORT
    free = "a free port of its own choice"
    return free if nnodes is None or nnodes.known else f"{DEFAULT_PORT}, or on one machine {free}"


def _the_same(setting: SourceSetting, instead: str) -> bool:
    """What was exported is what the launcher takes anyway."""
    if not setting.known:
        return False
    loopback = setting.name == "MASTER_ADDR" and questions.is_loopback(setting.value)
    return loopback or setting.value in (instead, DEFAULT_PORT)
