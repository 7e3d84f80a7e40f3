"""A version is asked for that was never released, or in a way that pip cannot read.

What you see   `ERROR: Invalid requirement`, or `Could not find a version that satisfies the
               requirement nvidia-nccl-cu12==2.21.7`; or, worse, advice to upgrade to a version
               that nobody can find.
Why            Advice is copied, and numbers are made up on the way. NCCL's patch numbers have
               gaps: 2.21.5 is the only 2.21, and 2.22.3 follows. A version specifier knows one
               wildcard only, a `.*` at the very end of `==` or `!=`; CUDA builds are named with a
               plus (`2.4.0+cu121`) and found on PyTorch's own index.
How to be sure `pip index versions PACKAGE` lists what there is.
Fix            Ask for a version that exists; for NCCL the one that your torch brings is the one
               it was tested with (`python -c 'import torch; print(torch.cuda.nccl.version())'`).
Sources        https://peps.python.org/pep-0440/#version-matching
               https://github.com/NVIDIA/nccl/tags
               https://pypi.org/project/nvidia-nccl-cu12/#history
               https://pypi.org/project/torch/#history
               https://pytorch.org/get-started/previous-versions/
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.analysis.source.launch import releases
from holdfast.analysis.source.source import Command, Source, Word
from holdfast.fault import Fault
from holdfast.findings import Finding, Place

FAULT = Fault(code="HOLD314", slug="no-such-version")

JUDGED = ("torch", "torchvision", "torchaudio", "deepspeed", "accelerate", "nvidia-", "lightning")
"""packages of a training job; others' versions are none of our business"""


@FAULT.lint
def pip_will_not_find_it(source: Source) -> Iterator[Finding]:
    for command in source.commands:
        for word in _requirements(command):
            parsed = releases.requirement(word.text)
            if parsed is None or not parsed[0].startswith(JUDGED):
                continue
            for operator, version in parsed[1]:
                yield from _judged(word, parsed[0], operator, version)


@FAULT.lint
def nobody_released_it(source: Source) -> Iterator[Finding]:
    """A release of NCCL that a package manager is asked for, or a build is told."""
    for place, version, asked in _nccl(source):
        if there_are := releases.never_released(releases.NCCL, version):
            speak = FAULT.error if asked else FAULT.warning
            yield speak(
                f"there never was an NCCL {version}",
                reason=f"of that minor version these were released: {there_are}",
                fix="name a release that can be installed; `pip index versions nvidia-nccl-cu12` "
                "lists them",
                at=place,
            )


PACKAGE = re.compile(r"libnccl(?:2|-dev|-devel)?[=-](2\.\d+\.\d+)(?:-.*)?")


def _nccl(source: Source) -> Iterator[tuple[Place, str, bool]]:
    for setting in source.settings:
        if setting.known and setting.name in ("NCCL_VERSION", "NCCL_VER"):
            yield setting.place, setting.value.partition("-")[0].lstrip("v"), False
    for command in source.commands:
        texts = " ".join(word.text for word in command.words)
        for word in command.words[1:]:
            package = PACKAGE.fullmatch(word.text)
            if package and command.name in ("apt", "apt-get", "yum", "dnf", "microdnf"):
                yield word.place, package[1], True
            tag = re.fullmatch(r"(?:--branch=)?v(2\.\d+\.\d+)-\d", word.text)
            if tag and command.name == "git" and re.search(r"/nccl(?:\.git)?(?![\w-])", texts):
                yield word.place, tag[1], True


def _requirements(command: Command) -> Iterator[Word]:
    """What `pip install`, `uv pip install` or `python -m pip install` is to install."""
    texts = [word.text for word in command.words]
    by_python = re.fullmatch(r"python[\d.]*", command.name) and texts[1:3] == ["-m", "pip"]
    if not (re.fullmatch(r"pip[\d.]*|uv", command.name) or by_python):
        return
    if not {"install", "download", "wheel", "add"} & set(texts[:5]):
        return
    for word in command.words[1:]:
        if word.known and not word.text.startswith("-") and re.search(r"[=<>~!]", word.text):
            yield word


def _judged(word: Word, name: str, operator: str, version: str) -> Iterator[Finding]:
    if why := releases.refused(operator, version):
        yield FAULT.error(
            f"`{operator}{version}` is no version specifier: {why}",
            reason="pip refuses it, and before 24.1 it found nothing that matches (PEP 440)",
            fix=f"ask for a release: `pip install {name}=={_like(name, version)}`",
            at=word.place,
        )
        return
    table = releases.RELEASES.get(name)
    there_are = releases.never_released(table, version) if table and operator == "==" else ""
    if there_are:
        yield FAULT.error(
            f"there never was a {name} {version}",
            reason=f"of that minor version these were released: {there_are}; pip finds no other",
            fix=f"`pip install {name}=={there_are.rpartition(', ')[2] or there_are}`",
            at=word.place,
        )
    elif name == "torch" and (found := re.match(r"(\d+)\.(\d+)\.0\.dev\d+", version)):
        minor = int(found[1]), int(found[2])
        if patches := releases.TORCH.get(minor):
            release = f"{minor[0]}.{minor[1]}.{patches[-1]}"
            yield FAULT.note(
                f"torch {version} is a nightly from before torch {minor[0]}.{minor[1]} came out",
                reason="the release has what it had, and the fixes made since",
                fix=f"`pip install torch=={release}`, or a newer release",
                at=word.place,
            )


def _like(name: str, version: str) -> str:
    """A release near to what was meant, where we know one."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    table = releases.RELEASES.get(name, {})
    patches = table.get((int(found[1]), int(found[2]))) if found else None
    return f"{found[1]}.{found[2]}.{patches[-1]}" if found and patches else "VERSION"
