"""Where a launch script says the ranks meet: addresses and ports, by variable or by option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.launch import command_line
from holdfast.analysis.source.program import constant
from holdfast.analysis.source.source import Flag, Launch, Source, SourceSetting
from holdfast.findings import Place


class MasterEndpoint(NamedTuple):
    """One word about the master."""

    what: str
    """'MASTER_PORT', '--master-port'"""
    value: str
    place: Place
    launch: Launch | None = None


PORT_VARIABLES = ("MASTER_PORT", "PET_MASTER_PORT")
PORT_FLAGS = ("master-port", "main-process-port")
ADDRESS_FLAGS = ("master-addr", "main-process-ip")


def ports(source: Source) -> Iterator[MasterEndpoint]:
    """Every port that is named in figures."""
    for setting in source.settings:
        if setting.name in PORT_VARIABLES and setting.known and setting.by != "unset":
            yield MasterEndpoint(setting.name, setting.value.strip(), setting.place)
    for launch in source.launches:
        for name in PORT_FLAGS:
            flag = launch.flag(name)
            if flag is not None and flag.known:
                yield MasterEndpoint(f"--{name}", flag.value, flag.place, launch)
        flag = launch.flag("rdzv-endpoint")
        if flag is not None:
            port = command_line.endpoint(flag.value)[1]
            if port is not None:
                yield MasterEndpoint("--rdzv-endpoint", str(port), flag.place, launch)
    yield from _in_python(source)


def _in_python(source: Source) -> Iterator[MasterEndpoint]:
    """`init_process_group(init_method="tcp://host:29500")`, `TCPStore("host", 29500)`."""
    program = source.program
    if program is None:
        return
    for call in program.calls:
        if call.method == "init_process_group":
            node = call.argument(1, "init_method")
            if node is not None and (port := _OF_URL.match(str(constant(node)))):
                yield MasterEndpoint("init_method", port[1], program.place(node))
        elif call.name.endswith(".TCPStore"):
            node = call.argument(1, "port")
            if node is not None and type(constant(node)) is int:
                yield MasterEndpoint("TCPStore", str(constant(node)), program.place(node))


_OF_URL = re.compile(r"tcp://[^/?]*:(\d{1,6})(?:$|[/?])")


def variables(source: Source) -> Iterator[SourceSetting]:
    """Settings of MASTER_ADDR, wherever it is set."""
    for setting in source.settings:
        if setting.name in ("MASTER_ADDR", "PET_MASTER_ADDR") and setting.by != "unset":
            yield setting


def addresses(launch: Launch) -> Iterator[MasterEndpoint]:
    """What a launcher is told by its options."""
    for name in ADDRESS_FLAGS:
        flag = launch.flag(name)
        if flag is not None and flag.known:
            yield MasterEndpoint(f"--{name}", flag.value, flag.place, launch)
    flag = launch.flag("rdzv-endpoint")
    if flag is not None:
        host = command_line.endpoint(flag.value)[0]
        if flag.known or host.replace(".", "").isalnum():
            yield MasterEndpoint("--rdzv-endpoint", host, flag.place, launch)


def origin(source: Source, flag: Flag) -> SourceSetting | None:
    """The variable by which a `$(…)` came into an option; None where it is written there."""
    before = [s for s in source.settings if s.place < flag.place and not s.known and s.value]
    return next((s for s in reversed(before) if s.value in flag.value), None)


def rehearsed(source: Source) -> bool:
    """Several 'nodes' started in one piece, on one machine: a rehearsal, and a good one."""
    ranks = {
        flag.value
        for launch in source.launches
        if (flag := launch.flag("node-rank", "machine-rank")) is not None and flag.known
    }
    looped = any(
        launch.command is not None
        and launch.command.loops
        and launch.command.background
        and not command_line.REMOTE & set(launch.around)
        for launch in source.launches
    )
    return len(ranks) > 1 or looped
