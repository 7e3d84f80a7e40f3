"""Which launch starts which script, which hosts it runs on, and which services it meets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.analysis.source.source import (
    HostSlots,
    Launch,
    NetworkService,
    Source,
    SourceKind,
)


class LaunchLinks:
    """Which launches of all launch scripts start a script."""

    def __init__(self, launch_scripts: Iterable[Source], scripts: Iterable[str]) -> None:
        self._launches: dict[str, list[Launch]] = {}
        by_name: dict[str, list[str]] = {}
        known = set()
        for path in scripts:
            known.add(os.path.abspath(path))
            by_name.setdefault(os.path.basename(path), []).append(os.path.abspath(path))
        for source in launch_scripts:
            # A document shows many ways to start a script; a launch script is the one in use.
            for launch in source.launches if source.complete else ():
                if script := _resolve(launch, source.file, known, by_name):
                    self._launches.setdefault(script, []).append(launch)

    def of(self, path: str) -> tuple[Launch, ...]:
        return tuple(self._launches.get(os.path.abspath(path), ()))


def _resolve(
    launch: Launch, launch_script: str, known: set[str], by_name: dict[str, list[str]]
) -> str | None:
    """By path from the launch script's folder or ours; by name where only one file is called so."""
    if not launch.script:
        return None
    for folder in (os.path.dirname(os.path.abspath(launch_script)), os.getcwd()):
        for candidate in _spellings(launch.script):
            path = os.path.normpath(os.path.join(folder, candidate))
            if path in known:
                return path
    named = by_name.get(os.path.basename(_spellings(launch.script)[-1]), [])
    return named[0] if len(named) == 1 else None


def _spellings(script: str) -> list[str]:
    """`-m package.train` is package/train.py."""
    if script.endswith((".py", ".pyw")) or "/" in script:
        return [script]
    return [script, f"{script.replace('.', '/')}.py"]


def with_hosts(launch_scripts: Sequence[Source]) -> list[Source]:
    """Launches that name a hostfile of this lint know its hosts."""
    hostfiles = {
        os.path.abspath(source.file): source.hosts
        for source in launch_scripts
        if source.kind is SourceKind.HOSTFILE
    }
    if not hostfiles:
        return list(launch_scripts)
    return [_with_hosts(one, hostfiles) if one.launches else one for one in launch_scripts]


def _with_hosts(source: Source, hostfiles: dict[str, tuple[HostSlots, ...]]) -> Source:
    launches = tuple(
        msgspec.structs.replace(launch, hosts=hosts)
        if not launch.hosts and (hosts := _hosts(launch, source.file, hostfiles))
        else launch
        for launch in source.launches
    )
    return msgspec.structs.replace(source, launches=launches)


def _hosts(
    launch: Launch, launch_script: str, hostfiles: dict[str, tuple[HostSlots, ...]]
) -> tuple[HostSlots, ...]:
    named = launch.flag("hostfile", "machinefile", "host-file")
    if named is None or not named.known:
        return ()
    for folder in (os.path.dirname(os.path.abspath(launch_script)), os.getcwd()):
        path = os.path.normpath(os.path.join(folder, named.value))
        if path in hostfiles:
            return hostfiles[path]
    same = [
        hosts
        for path, hosts in hostfiles.items()
        if os.path.basename(path) == os.path.basename(named.value)
    ]
    return same[0] if len(same) == 1 else ()


def with_services(launch_scripts: Sequence[Source]) -> list[Source]:
    """Manifests of one folder know each other's services; a name that is there twice is unknown."""
    folders: dict[str, list[NetworkService]] = {}
    for source in launch_scripts:
        if source.services and source.complete:
            folder = os.path.dirname(os.path.abspath(source.file))
            folders.setdefault(folder, []).extend(source.services)
    return [_with_services(one, folders) if one.workloads else one for one in launch_scripts]


def _with_services(source: Source, folders: dict[str, list[NetworkService]]) -> Source:
    around = folders.get(os.path.dirname(os.path.abspath(source.file)), [])
    own = {service.name for service in source.services}
    others = [service for service in around if service.place.file != source.file]
    names = [service.name for service in others]
    more = [one for one in others if one.name not in own and names.count(one.name) == 1]
    return msgspec.structs.replace(source, services=(*source.services, *more))
