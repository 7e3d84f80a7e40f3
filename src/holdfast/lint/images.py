"""What containers run by their image: the CMD of its Dockerfile, with the variables they are given.

A compose service that is built from a Dockerfile of this lint, or a container whose image some
`docker build -t` of this lint makes, gets the launch that the Dockerfile has. So the services of a
compose file are judged as the nodes of one job although none of them says what it runs.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence

import msgspec

from holdfast.analysis.source.launch import command_line, containers
from holdfast.analysis.source.source import (
    Command,
    ContainerRun,
    Flag,
    Launch,
    Source,
    SourceKind,
    SourceSetting,
)

JUDGED = frozenset(
    ["nnodes", "node-rank", "nproc-per-node", "master-addr", "rdzv-backend", "rdzv-endpoint"]
)
"""options that containers of one job have to agree about; the rest is judged in the Dockerfile"""
VARIABLE = re.compile(r"\$(?:\{(?P<long>\w+)(?::?-(?P<default>[^${}]*))?\}|(?P<short>\w+))")
BUILD_VALUES = frozenset(["-t", "--tag", "-f", "--file", "--build-arg", "--target", "--platform"])


def with_launches(sources: Sequence[Source]) -> list[Source]:
    """Sources whose containers know what their image runs."""
    files = {os.path.abspath(s.file): s for s in sources if s.kind is SourceKind.DOCKERFILE}
    if not files:
        return list(sources)
    built = dict(_built(sources))
    return [_linked(source, files, built) for source in sources]


def _built(sources: Sequence[Source]) -> Iterator[tuple[str, str]]:
    """(image, Dockerfile), by compose files and by `docker build -t image -f Dockerfile .`"""
    for source in sources:
        folder = os.path.dirname(os.path.abspath(source.file))
        for container in source.containers:
            build = container.option("build")
            if build is not None and build.known and container.image:
                yield container.image, os.path.normpath(os.path.join(folder, build.value))
        for command in source.commands:
            yield from _build_command(command, folder)


def _build_command(command: Command, folder: str) -> Iterator[tuple[str, str]]:
    words = [word.text for word in command.words if word.known]
    if command.name not in ("docker", "podman") or "build" not in words[1:3]:
        return
    given = dict(itertools.pairwise(words))
    if len(words) != len(command.words) or "--target" in given:
        return
    places = command_line.arguments(command.words[words.index("build") :], BUILD_VALUES)
    context = places[0].text if places else "."
    named = given.get("-f") or given.get("--file")
    path = named or os.path.join(context, "Dockerfile")
    for option in ("-t", "--tag"):
        if option in given:
            yield given[option], os.path.normpath(os.path.join(folder, path))


def _linked(source: Source, files: dict[str, Source], built: dict[str, str]) -> Source:
    more = []
    for container in source.containers:
        image = _image(source, container, files, built)
        if image is not None:
            more += [one for one in [_launch(container, image)] if one is not None]
    if not more:
        return source
    return msgspec.structs.replace(source, launches=(*source.launches, *more))


def _image(
    source: Source, container: ContainerRun, files: dict[str, Source], built: dict[str, str]
) -> Source | None:
    """The Dockerfile of a container that says nothing else to run."""
    if container.engine == "image" or container.words or container.option("command"):
        return None
    if container.option("entrypoint") or containers.launch_inside(source, container):
        return None
    build = container.option("build")
    folder = os.path.dirname(os.path.abspath(source.file))
    path = built.get(container.image, "")
    if build is not None and build.known:
        path = os.path.normpath(os.path.join(folder, build.value))
    return files.get(path)


def _launch(container: ContainerRun, image: Source) -> Launch | None:
    """The launch of the image, at the place of the container."""
    run = next((one for one in image.containers if one.engine == "image"), None)
    inside = containers.launches_inside(image, run) if run is not None else []
    if run is None or len(inside) != 1 or command_line.hides_flags(inside[0]):
        return None
    given = dict(_variables(container))
    if any(setting.name in given for setting in image.settings if setting.name in image.reads):
        return None  # the container changes what was filled in already
    form = run.option("form")
    expands = form is not None and form.value == "shell"
    flags = tuple(
        _filled(flag, given, container) if expands else _moved(flag, container)
        for flag in inside[0].flags
        if flag.name in JUDGED
    )
    settings = tuple(_setting(name, flag) for name, flag in given.items())
    return msgspec.structs.replace(
        inside[0], flags=flags, place=container.place, settings=settings, command=None
    )


def _variables(container: ContainerRun) -> Iterator[tuple[str, Flag]]:
    for option in container.every("env"):
        name, equals, value = option.value.partition("=")
        if equals:
            yield name, msgspec.structs.replace(option, value=value)


def _setting(name: str, flag: Flag) -> SourceSetting:
    return SourceSetting(
        name=name, value=flag.value, place=flag.place, known=flag.known, written=flag.value,
        by="compose",
    )  # fmt: skip


def _moved(flag: Flag, container: ContainerRun) -> Flag:
    return msgspec.structs.replace(flag, place=container.place)


def _filled(flag: Flag, given: dict[str, Flag], container: ContainerRun) -> Flag:
    """With the variables of the container; at the place of the last that is known."""
    if flag.known:
        return _moved(flag, container)
    place, known = container.place, True

    def value(match: re.Match[str]) -> str:
        nonlocal place, known
        found = given.get(match["long"] or match["short"])
        if found is None:
            known = known and match["default"] is not None
            return match["default"] or match[0]
        place, known = found.place, known and found.known
        return found.value

    text = VARIABLE.sub(value, flag.value)
    known = known and "$" not in text and "`" not in text
    return Flag(name=flag.name, value=text, place=place, known=known)
