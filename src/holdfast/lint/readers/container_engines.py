"""Container engines' command lines: options, image, and what runs inside."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.analysis.source.source import Command, ContainerRun, Flag, ShellWord
from holdfast.lint.readers import launch_options as known
from holdfast.lint.readers.arguments import Options, SplitOptions, program, split

ENGINES = ("docker", "podman", "nerdctl", "nvidia-docker", "apptainer", "singularity")
GLOBAL = Options(
    values=frozenset(["H", "c", "l", "host", "context", "config", "log-level", "namespace"]),
    shorts={"H": "host", "l": "log-level", "n": "namespace"},
    aliases={"n": "namespace"},
)
"""what may come between docker and its verb"""
IMAGE = re.compile(r"(?:[\w.\-]+(?::\d+)?/)*[\w.\-]+(?::[\w.\-]+|@sha256:\w+)")
"""a name with a tag: nothing that runs inside is called so"""
PATH = re.compile(r"[\w\-]+(?:\.[\w.\-]+)?(?::\d+)?(?:/[\w.\-]+)+(?<!\.py)(?<!\.sh)")
"""`nvcr.io/nvidia/pytorch`, and no script"""
LETTERS = re.compile(r"-(?:[dit]+|[evpwu])")
VARIABLE = re.compile(r"\$(?:\w+|\{[^}]*\})|…")


def _verb(words: Sequence[ShellWord]) -> tuple[str, int]:
    """`docker --context x container run …`: 'run', and where its options begin."""
    at = 1 + split(words[1:], GLOBAL).rest
    if at < len(words) and words[at].text == "container":
        at += 1
    return (words[at].text, at + 1) if at < len(words) else ("", at)


def _options(words: Sequence[ShellWord]) -> tuple[str, int, SplitOptions] | None:
    """Verb, where its options begin, and the options."""
    engine = program(words[0]) if words else ""
    verb, at = _verb(words)
    if engine in ("apptainer", "singularity"):
        starts, options = {"exec", "run", "shell"}, known.APPTAINER
    else:
        starts, options = {"run", "create", "exec"}, known.DOCKER_RUN
    if engine not in ENGINES or verb not in starts:
        return None
    return verb, at, _split(words[at:], options)


def _split(words: Sequence[ShellWord], options: Options) -> SplitOptions:
    """`docker run "${OPTIONS[@]}" $IMAGE …`: more options may follow an unknown word."""
    flags: list[Flag] = []
    at = 0
    while True:
        found = split(words[at:], options)
        flags.extend(found.flags)
        at += found.rest
        if not _image_is_to_come(words[at : at + 2], options):
            return SplitOptions(flags=tuple(flags), rest=at)
        at += 1


def _image_is_to_come(words: Sequence[ShellWord], options: Options) -> bool:
    """Whether the first of these two words is no image, by what follows it."""
    if len(words) < 2 or words[0].known or not VARIABLE.fullmatch(words[0].text):
        return False
    behind = words[1]
    if not behind.known:
        return behind.text.startswith("$")
    if behind.text.startswith("--"):
        return options.canonical(behind.text[2:].partition("=")[0]) in options.names
    return any(form.fullmatch(behind.text) for form in (IMAGE, PATH, LETTERS))


def container_words(words: Sequence[ShellWord]) -> int | None:
    """Where the command inside begins; None when this starts none."""
    found = _options(words)
    if found is None:
        return None
    _, at, options = found
    return min(at + options.rest + 1, len(words))  # behind the image


def container(command: Command) -> ContainerRun | None:
    """`docker exec` enters one that exists: it starts no container."""
    found = _options(command.words)
    if found is None:
        return None
    verb, at, options = found
    engine = {"singularity": "apptainer", "nvidia-docker": "docker", "nerdctl": "docker"}
    apptainer = command.name in ("apptainer", "singularity")
    if verb == "exec" and not apptainer:
        return None
    image = at + options.rest
    return ContainerRun(
        engine=engine.get(command.name, command.name),
        options=options.flags,
        place=command.place,
        image=command.words[image].text if image < len(command.words) else "",
        words=command.words[image + 1 :],
    )
