"""What faults ask about a container that is started."""

from __future__ import annotations

import re

from holdfast.analysis.source.launch import command_line
from holdfast.analysis.source.source import ContainerRun, Flag, Launch, Source

PROGRAMS = frozenset(
    [*command_line.STARTERS, "bash", "sh", "python", "python3", "env", "sudo", "timeout", "nohup"]
)
MEMBERSHIP = frozenset({"RANK", "NODE_RANK", "WORLD_SIZE", "PET_NODE_RANK", "MACHINE_RANK"})


def has_own_bridge(container: ContainerRun) -> bool:
    """Docker's default: no network was named, or the bridge."""
    network = container.option("network")
    return network is None or (network.known and network.value in ("", "bridge", "default"))


def stands_alone(container: ContainerRun) -> bool:
    """It shares its loopback neither with the host nor with another container."""
    network = container.option("network")
    if network is None:
        return True
    return network.known and not network.value.startswith(("host", "service:", "container:"))


def variable(container: ContainerRun, *names: str) -> Flag | None:
    """A variable handed to it, as Flag(name='MASTER_ADDR', value='…')."""
    for option in reversed(container.every("env")):
        name, equals, value = option.value.partition("=")
        if equals and name in names:
            return Flag(name=name, value=value, place=option.place, known=option.known)
    return None


def is_member(container: ContainerRun) -> bool:
    """It is one of several that form a job."""
    flags = [word.text.replace("_", "-") for word in container.words]
    told = any(flag.startswith(("--node-rank", "--machine-rank")) for flag in flags)
    size = variable(container, "WORLD_SIZE")
    alone = size is not None and size.value in ("", "1")
    return not alone and (told or variable(container, *MEMBERSHIP) is not None)


def hides_options(source: Source, container: ContainerRun) -> bool:
    """`docker run $OPTIONS image …`: what is not seen may still be given."""
    command = command_line.command_of(source, container)
    if command is None:
        return False
    values = {container.image, *(option.value for option in container.options)}
    inside = container.words[0].place if container.words else None
    before = [w for w in command.words if inside is None or w.place < inside]
    hidden = any(
        not w.known and not w.text.startswith("-") and w.text not in values for w in before
    )
    # an unknown first word is taken for the image; then the image is where a program should be
    first = container.words[0].text.rpartition("/")[2] if container.words else ""
    return hidden or (container.image.startswith("$") and first not in PROGRAMS)


def gpus(container: ContainerRun) -> int | None:
    """How many it is handed: `--gpus 2`, `--gpus '"device=0,1"'`; None for all, or unknown."""
    option = container.option("gpus")
    if option is None or not option.known:
        return None
    value = option.value.strip("\"'")
    if value.isdecimal():
        return int(value)
    named = re.fullmatch(r"device=([\w\-,]+)", value)
    return len(named[1].split(",")) if named else None


def launches_inside(source: Source, container: ContainerRun) -> list[Launch]:
    """The launchers that run in it."""
    starts = [launch for launch in source.launches if launch.kind in command_line.STARTERS]
    if container.ends is not None:
        return [one for one in starts if container.place <= one.place < container.ends]
    if not container.words:
        return []
    first, last = container.words[0].place, container.words[-1].place
    return [one for one in starts if first <= one.place <= last]


def launch_inside(source: Source, container: ContainerRun) -> Launch | None:
    """The last of them."""
    return next(reversed(launches_inside(source, container)), None)
