"""How many processes, devices and machines a launch script names, and where they do not add up."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast import shell_words
from holdfast.analysis.source.launch import command_line, containers
from holdfast.analysis.source.source import Flag, Launch, Source, SourceSetting
from holdfast.analysis.source.source_problem import SourceProblem


def problems(source: Source, launch: Launch) -> Iterator[SourceProblem]:
    if command_line.hides_flags(launch):
        return
    yield from _devices(source, launch)
    if launch.kind == "deepspeed":
        yield from _deepspeed(launch)
    elif launch.kind == "accelerate":
        yield from _accelerate(launch)
    elif launch.kind in ("horovodrun", "mpirun"):
        yield from _slots(launch)
    elif launch.kind in command_line.TORCHRUN:
        yield from _by_hand(launch)
        yield from _batch(source, launch)


def per_node(launch: Launch) -> Flag | None:
    """The option that says how many ranks a machine gets."""
    if launch.kind == "accelerate":
        return launch.flag("num-processes") if (launch.machines or 1) == 1 else None
    return launch.flag("nproc-per-node", "num-gpus")


def visible(setting: SourceSetting | None) -> int | None:
    """How many devices CUDA_VISIBLE_DEVICES leaves; None where it does not tell, or leaves none."""
    if setting is None or not setting.known:
        return None
    names = [part.strip() for part in setting.value.split(",")]
    good = all(re.fullmatch(r"\d+|(?:GPU|MIG)-[\w\-/]+", name) for name in names)
    return len(names) if good else None


def batch(source: Source) -> Launch | None:
    """The request of a batch script."""
    return next((launch for launch in source.launches if launch.kind == "sbatch"), None)


def gpus_per_node(request: Launch) -> int | None:
    """By --gpus-per-node=[type:]N or --gres=gpu[:type]:N."""
    for flag in (request.flag("gpus-per-node"), request.flag("gres")):
        if flag is None or not flag.known:
            continue
        match = re.fullmatch(r"(?:gpu(?=:))?:?(?:[a-zA-Z][\w\-]*:)?(\d+)", flag.value)
        if match:
            return int(match[1])
    return None


def _devices(source: Source, launch: Launch) -> Iterator[SourceProblem]:
    flag = per_node(launch)
    ranks = command_line.number(flag)
    setting = command_line.exported(launch, "CUDA_VISIBLE_DEVICES")
    if launch.kind == "deepspeed" or flag is None or ranks is None:
        return
    gpus = visible(setting)
    if gpus is not None and setting is not None and ranks > gpus:
        yield SourceProblem(
            "warning",
            f"{ranks} ranks per machine, but CUDA_VISIBLE_DEVICES={setting.value} leaves "
            f"{gpus} GPU{'s' if gpus > 1 else ''}",
            "local rank n uses device n: the last ranks fail with 'invalid device ordinal'",
            f"`--{flag.name}={gpus}`, or list more devices",
            flag.place,
        )
        return
    granted, who = _granted(source, launch)
    if granted is not None and ranks > granted:
        yield SourceProblem(
            "warning",
            f"{ranks} ranks per machine, but {who} {granted} GPU{'s' if granted > 1 else ''}",
            "local rank n uses device n: the last ranks fail with 'invalid device ordinal'",
            f"`--{flag.name}={granted}`, or request {ranks} GPUs",
            flag.place,
        )


def _granted(source: Source, launch: Launch) -> tuple[int | None, str]:
    """GPUs that a container or a batch script gives the ranks of a machine, and in which words."""
    for container in source.containers:
        if containers.launch_inside(source, container) is launch:
            return containers.gpus(container), "the container gets"
    request = batch(source)
    return gpus_per_node(request) if request else None, "the batch script requests"


def _deepspeed(launch: Launch) -> Iterator[SourceProblem]:
    counted = launch.flag("num-gpus", "num-accelerators") or launch.flag("num-nodes")
    named = launch.flag("include") or launch.flag("exclude")
    if counted is not None and named is not None:
        yield SourceProblem(
            "error",
            f"--{named.name} and --{counted.name} cannot be given together",
            "deepspeed ends with 'Cannot specify num_nodes/gpus with include/exclude'",
            f"keep one of the two: drop --{counted.name.replace('-', '_')}",
            counted.place,
        )
    elif launch.flag("include") is not None and launch.flag("exclude") is not None:
        yield SourceProblem(
            "error",
            "--include and --exclude cannot be given together",
            "deepspeed ends with 'include_str and exclude_str are mutually exclusive'",
            "keep --include: it names the devices to use",
            named.place if named else launch.place,
        )
    setting = command_line.exported(launch, "CUDA_VISIBLE_DEVICES")
    chosen = named or counted
    if (
        setting is not None
        and chosen is not None
        and launch.flag("hostfile") is None
        and not _the_first(setting, counted)
    ):
        yield SourceProblem(
            "warning",
            f"deepspeed ignores CUDA_VISIBLE_DEVICES with --{chosen.name.replace('-', '_')}",
            "an option that names or counts devices makes it unset the variable and use the "
            "option: GPUs 0, 1, …",
            f"`deepspeed --include {_these_devices(setting)}`",
            setting.place,
        )


def _these_devices(setting: SourceSetting) -> str:
    wanted = f"localhost:{setting.value}" if setting.known else ""
    return shell_words.word(wanted, "localhost:0,1")


def _the_first(setting: SourceSetting, counted: Flag | None) -> bool:
    """`CUDA_VISIBLE_DEVICES=0,1` beside `--num_gpus 2`: the same devices, whichever counts."""
    count = command_line.number(counted) if counted is not None else None
    return count is not None and setting.value == ",".join(map(str, range(count)))


def _accelerate(launch: Launch) -> Iterator[SourceProblem]:
    total, machines = launch.flag("num-processes"), launch.flag("num-machines")
    ranks, hosts = command_line.number(total), command_line.number(machines)
    several = launch.flag("multi-gpu")
    if total is not None and ranks is not None and hosts is not None and ranks % max(hosts, 1):
        yield SourceProblem(
            "error",
            f"{ranks} processes cannot be divided among {hosts} machines",
            "--num_processes is the total of all machines; accelerate starts "
            f"{ranks // hosts} on each",
            f"`--num_processes {(ranks // hosts + 1) * hosts}`, or another multiple of {hosts}",
            total.place,
        )
    if several is not None and ranks is not None and ranks < 2:
        yield SourceProblem(
            "error",
            f"--multi_gpu with --num_processes {ranks}",
            "accelerate ends with 'You need to use at least 2 processes to use `--multi_gpu`'",
            "drop --multi_gpu, or give --num_processes the number of GPUs",
            several.place,
        )
    kinds = ("multi-gpu", "cpu", "tpu", "use-deepspeed", "use-fsdp")
    ways = [flag for name in kinds if (flag := launch.flag(name)) is not None]
    if len(ways) > 1:
        yield SourceProblem(
            "error",
            f"--{ways[0].name} and --{ways[1].name} cannot be given together",
            "accelerate allows one of --cpu, --multi_gpu, --tpu, --use_deepspeed, --use_fsdp",
            f"drop --{ways[0].name.replace('-', '_')}",
            ways[1].place,
        )


def _slots(launch: Launch) -> Iterator[SourceProblem]:
    wanted = launch.flag("np", "num-proc", "n", "c")
    hosts = launch.flag("hosts", "host")
    ranks = command_line.number(wanted)
    relaxed = launch.flag("oversubscribe", "map-by", "min-np", "host-discovery-script", "ppr")
    if wanted is None or ranks is None or relaxed is not None:
        return
    slots = _listed(launch, hosts) if hosts is not None else _of_hostfile(launch)
    if slots is not None and ranks > slots:
        yield SourceProblem(
            "error" if launch.kind == "horovodrun" else "warning",
            f"{ranks} processes, but the hosts have {slots} slot{'s' if slots > 1 else ''}",
            "horovodrun refuses to start"
            if launch.kind == "horovodrun"
            else "Open MPI refuses to start: 'not enough slots' (a host without :N has one)",
            f"`-np {slots}`, or more slots: `host:{-(-ranks // max(slots, 1))}`",
            wanted.place,
        )


def _listed(launch: Launch, hosts: Flag) -> int | None:
    """Slots of `-H a:4,b`; MPICH's and Intel's `-hosts` gives no slots, only names."""
    words = launch.command.words if launch.command else ()
    given = next((word.text for word in words if word.place == hosts.place), "-H")
    if launch.kind == "mpirun" and given.partition("=")[0] not in ("-H", "--host"):
        return None
    total = 0
    for entry in hosts.value.split(",") if hosts.known else [""]:
        match = re.fullmatch(r"\s*[\w.\-]+(?::(\d+))?\s*", entry)
        if match is None:
            return None
        total += int(match[1] or 1)
    return total


def _of_hostfile(launch: Launch) -> int | None:
    slots = [host.slots for host in launch.hosts]
    return sum(n for n in slots if n is not None) if slots and None not in slots else None


def _by_hand(launch: Launch) -> Iterator[SourceProblem]:
    """torchrun sets these for its ranks; a number that is not its own misleads the reader."""
    setting = command_line.exported(launch, "WORLD_SIZE")
    ranks, count = (
        command_line.number(launch.flag("nproc-per-node")),
        command_line.nodes(launch) or (1, 1),
    )
    if setting is None or not setting.known or ranks is None or not setting.value.isdecimal():
        return
    own = int(setting.value)
    if own not in (ranks, count[0], count[1], ranks * count[0], ranks * count[1]):
        yield SourceProblem(
            "warning",
            f"WORLD_SIZE={own} is exported, but torchrun starts {ranks * count[1]} ranks",
            "torchrun sets WORLD_SIZE, RANK and LOCAL_RANK for each rank and overwrites yours",
            "drop the export: the script gets the values that torchrun sets",
            setting.place,
        )


def _batch(source: Source, launch: Launch) -> Iterator[SourceProblem]:
    request = batch(source)
    if request is None:
        return
    flag = request.flag("nodes")
    granted = command_line.number(flag)
    count, nnodes = command_line.nodes(launch), launch.flag("nnodes")
    if "srun" in launch.around:
        yield from _tasks(source, request, launch)
    elif granted is not None and granted > 1 and not launch.around and not _carried(source):
        yield SourceProblem(
            "warning",
            f"the batch script requests {granted} nodes, but torchrun starts on the first only",
            "a batch script runs on one node; `srun` starts a command on all of them",
            f"`srun --ntasks-per-node=1 torchrun --nnodes={granted} …`",
            launch.place,
        )
    if granted is None or count is None or nnodes is None or "srun" not in launch.around:
        return
    if granted not in range(count[0], count[1] + 1):
        yield SourceProblem(
            "warning",
            f"--nnodes={nnodes.value}, but the batch script requests {granted} nodes",
            "srun starts torchrun on each of them, and the rendezvous waits for another number",
            "`--nnodes=$SLURM_NNODES`",
            nnodes.place,
        )


def _carried(source: Source) -> bool:
    return any(command.name in command_line.REMOTE for command in source.commands)


def _tasks(source: Source, request: Launch, launch: Launch) -> Iterator[SourceProblem]:
    """One torchrun per node is enough: it starts the ranks itself."""
    steps = [one for one in source.launches if one.kind == "srun" and one.place <= launch.place]
    step = steps[-1] if steps else None
    told = next(
        (
            flag
            for one in (step, request)
            if one is not None and (flag := one.flag("ntasks-per-node", "ntasks")) is not None
        ),
        None,
    )
    tasks, ranks = command_line.number(told), launch.flag("nproc-per-node")
    hosts = command_line.number((step or request).flag("nodes") or request.flag("nodes")) or 1
    if told is None or tasks is None or ranks is None or command_line.number(ranks) == 1:
        return
    each = tasks if told.name == "ntasks-per-node" else -(-tasks // hosts)
    count = command_line.nodes(launch)
    if each < 2 or (count is not None and count[1] >= hosts * each):
        return
    yield SourceProblem(
        "warning" if count is None else "error",
        f"srun starts torchrun {each} times on each node, and each torchrun starts "
        f"{ranks.value} ranks",
        "one torchrun per node starts all ranks of the node; the others use the same devices, and "
        "the rendezvous does not admit them",
        "`srun --ntasks-per-node=1 torchrun …`",
        told.place,
    )
