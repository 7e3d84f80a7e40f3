"""Compose files -> Source: each service is a container, its environment settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from holdfast.analysis.source.source import (
    ContainerRun,
    Flag,
    ShellWord,
    Source,
    SourceKind,
    SourceSetting,
)
from holdfast.lint.readers import shell
from holdfast.lint.readers.shell.nested_text import FileText
from holdfast.lint.readers.shell.scope import ShellScope, environment
from holdfast.lint.readers.shell.shell_reading import ShellReading
from holdfast.lint.readers.yaml_nodes import YamlDocuments, filled

if TYPE_CHECKING:
    from yaml.nodes import Node

SAME = {
    "network_mode": "network",
    "ipc": "ipc",
    "shm_size": "shm-size",
    "privileged": "privileged",
    "user": "user",
    "pid": "pid",
    "runtime": "runtime",
    "gpus": "gpus",
    "hostname": "hostname",
}
LISTED = {
    "sysctls": "sysctl",
    "ports": "publish",
    "volumes": "volume",
    "cap_add": "cap-add",
    "devices": "device",
    "security_opt": "security-opt",
    "networks": "network",
}


def read(
    text: str, file: str, *, first_line: int = 1, indent: int = 0, complete: bool = True
) -> Source:
    """Never fails: what is no YAML, or no compose file, holds nothing."""
    documents = YamlDocuments(FileText(text, file, first_line=first_line, indent=indent))
    reading = ShellReading()
    containers: list[ContainerRun] = []
    for root in documents.roots:
        for key, service in documents.pairs(documents.get(root, "services")):
            given = list(_environment(documents, documents.get(service, "environment")))
            reading.settings.extend(given)
            before = len(reading.commands)
            run(documents, service, ("entrypoint", "command"), given, reading)
            started = reading.commands[before].words if len(reading.commands) > before else ()
            containers.append(_container(documents, key, service, given, started))
    found = shell.source(
        reading, file, SourceKind.COMPOSE, complete=complete, containers=tuple(containers)
    )
    return msgspec.structs.replace(found, refused=documents.problem if complete else None)


def run(
    documents: YamlDocuments,
    container: Node,
    keys: tuple[str, str],
    settings: list[SourceSetting],
    reading: ShellReading,
) -> None:
    """What the container starts: entrypoint and command together where both are lists."""
    nodes = [found for key in keys if (found := documents.get(container, key)) is not None]
    scope = environment(settings, ShellScope(), documents.byte(container.start_mark.index))
    if nodes and all(node.id == "sequence" for node in nodes):
        fields = [field for node in nodes for field in documents.words(node)]
        shell.run(fields, documents.ground, reading, scope)
        return
    for node in nodes:
        if node.id == "scalar":
            shell.walk(documents.passage(node), reading, scope.layer())
        else:
            shell.run(documents.words(node), documents.ground, reading, scope.layer())


def _environment(documents: YamlDocuments, node: Node | None) -> Iterator[SourceSetting]:
    """A map, or a list of NAME=value; a name alone takes its value from outside."""
    for key, value in documents.pairs(node):
        if value.id == "scalar" and value.tag != "tag:yaml.org,2002:null":
            yield _setting(documents, key, str(key.value), str(value.value))
    for item in documents.items(node):
        name, equals, value = str(item.value).partition("=") if item.id == "scalar" else ("",) * 3
        if equals:
            yield _setting(documents, item, name.strip(), value)


def _setting(documents: YamlDocuments, node: Node, name: str, written: str) -> SourceSetting:
    value, known = filled(written)
    place = documents.place(node)
    return SourceSetting(
        name=name, value=value, place=place, known=known, written=written, by="compose"
    )


def _container(
    documents: YamlDocuments,
    key: Node,
    service: Node,
    settings: list[SourceSetting],
    words: tuple[ShellWord, ...],
) -> ContainerRun:
    return ContainerRun(
        engine="compose",
        options=(*_options(documents, service), *map(env, settings)),
        place=documents.place(key),
        image=documents.scalar(service, "image"),
        words=words,
        service=str(key.value),
        ends=documents.end(service),
        replicas=_replicas(documents, service),
    )


def _replicas(documents: YamlDocuments, service: Node) -> int | None:
    said = documents.scalar(service, "deploy", "replicas") or documents.scalar(service, "scale")
    value, known = filled(said or "1")
    return int(value) if known and value.isdecimal() and len(value) < 7 else None


def env(setting: SourceSetting) -> Flag:
    value = f"{setting.name}={setting.value}"
    return Flag(name="env", value=value, place=setting.place, known=setting.known)


def _options(documents: YamlDocuments, service: Node) -> Iterator[Flag]:
    for key, value in documents.pairs(service):
        name = str(key.value)
        if name in SAME and value.id == "scalar":
            if name == "privileged" and str(value.value).lower() not in ("true", "yes", "on"):
                continue
            yield flag(documents, key, SAME[name], str(value.value))
        elif name in LISTED:
            yield from _listed(documents, value, LISTED[name])
        elif name == "ulimits":
            yield from _limits(documents, value)
        elif name == "deploy":
            yield from _devices(documents, value)
        elif name == "build":
            yield from _build(documents, key, value)
        elif name in ("command", "entrypoint"):
            yield flag(documents, key, name, "")


def flag(documents: YamlDocuments, node: Node, name: str, written: str) -> Flag:
    value, known = filled(written)
    return Flag(name=name, value=value, place=documents.place(node), known=known)


def _build(documents: YamlDocuments, key: Node, node: Node) -> Iterator[Flag]:
    """The Dockerfile, from the folder of this file; not where a stage in its middle is built."""
    if documents.get(node, "target") is not None:
        return
    context = str(node.value) if node.id == "scalar" else documents.scalar(node, "context")
    name = documents.scalar(node, "dockerfile") or "Dockerfile"
    yield flag(documents, key, "build", f"{context or '.'}/{name}")


def _listed(documents: YamlDocuments, node: Node, name: str) -> Iterator[Flag]:
    for key, value in documents.pairs(node):
        yield flag(documents, key, name, f"{key.value}={value.value}")
    for item in documents.items(node):
        if item.id == "scalar":
            yield flag(documents, item, name, str(item.value))


def _limits(documents: YamlDocuments, node: Node) -> Iterator[Flag]:
    for key, value in documents.pairs(node):
        if value.id == "scalar":
            yield flag(documents, key, "ulimit", f"{key.value}={value.value}")
        else:
            soft, hard = (documents.scalar(value, side) for side in ("soft", "hard"))
            yield flag(documents, key, "ulimit", f"{key.value}={soft}:{hard}")


def _devices(documents: YamlDocuments, deploy: Node) -> Iterator[Flag]:
    for device in documents.items(documents.get(deploy, "resources", "reservations", "devices")):
        able = documents.items(documents.get(device, "capabilities"))
        if any(str(one.value) == "gpu" for one in able):
            count = documents.scalar(device, "count") or "all"
            chosen = documents.items(documents.get(device, "device_ids"))
            listed = ",".join(str(one.value) for one in chosen)
            yield flag(documents, device, "gpus", f"device={listed}" if listed else count)
