"""Whether a script is started again by its launcher, or with another number of ranks."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.analysis.source.program import Call, Program, constant, dotted
from holdfast.analysis.source.source import Flag, Launch, Source
from holdfast.findings import Place

CONFIGS = (
    "torch.distributed.launcher.LaunchConfig",
    "torch.distributed.launcher.api.LaunchConfig",
)
"""torchrun as a library: `elastic_launch(LaunchConfig(…), train)()`"""
RESTARTERS = ("torchrun", "torch.distributed.launch", "torch.distributed.run", "accelerate")


class RestartSign(NamedTuple):
    """What says so."""

    said: str
    """'torchrun --max-restarts=3'"""
    place: Place


def restarted(source: Source) -> RestartSign | None:
    """A launch that starts the script again after a failure, or when nodes come and go."""
    for launch in source.started_by:
        flag = launch.flag("max-restarts")
        again = launch.kind in (*RESTARTERS, "holdfast") and _number(flag) > 0
        if again and flag is not None:
            return RestartSign(f"{launch.kind} --max-restarts={flag.value}", flag.place)
    for call in source.program.called(*CONFIGS) if source.program else ():
        times = constant(call.keyword("max_restarts"))
        if isinstance(times, int) and times > 0 and source.program:
            said = f"{call.written}(max_restarts={times})"
            return RestartSign(said, source.program.place(call.node))
    return resized(source)


def resized(source: Source) -> RestartSign | None:
    """A launch, or code, that lets the number of ranks change from one start to the next."""
    for launch in source.started_by:
        if (found := _range(launch)) is not None:
            return found
    program = source.program
    if program is not None and ("horovod" in program.text or "LaunchConfig" in program.text):
        for call in program.calls:
            if said := _changes_members(call):
                return RestartSign(said, program.place(call.node))
        for function in program.functions:
            for decorator in function.decorator_list:
                if _of_horovod(program.name_of(decorator)):
                    return RestartSign(f"@{dotted(decorator)}", program.place(decorator))
    return None


def _of_horovod(name: str) -> bool:
    """`hvd.elastic.run`, `hvd.elastic.TorchState`"""
    return name.startswith("horovod.") and ".elastic." in name


def _changes_members(call: Call) -> str:
    if _of_horovod(call.name):
        return call.written
    if call.name in CONFIGS:
        least, most = (
            constant(call.argument(0, "min_nodes")),
            constant(call.argument(1, "max_nodes")),
        )
        if isinstance(least, int) and isinstance(most, int) and least < most:
            return f"{call.written}(min_nodes={least}, max_nodes={most})"
    return ""


def _range(launch: Launch) -> RestartSign | None:
    nodes = launch.flag("nnodes")
    if nodes is not None and nodes.known and launch.kind in (*RESTARTERS, "holdfast"):
        least, colon, most = nodes.value.partition(":")
        if colon and least != most:
            return RestartSign(f"{launch.kind} --nnodes={nodes.value}", nodes.place)
    least_np = launch.flag("min-np", "min-num-proc")
    if launch.kind == "horovodrun" and least_np is not None:
        return RestartSign(f"horovodrun --{least_np.name} {least_np.value}", least_np.place)
    return None


def _number(flag: Flag | None) -> int:
    known = flag is not None and flag.known and flag.value.isdecimal()
    return int(flag.value) if flag is not None and known else 0


def aware_of_restarts(program: Program) -> bool:
    """The script asks how often it was restarted."""
    return "TORCHELASTIC_RESTART_COUNT" in program.text
