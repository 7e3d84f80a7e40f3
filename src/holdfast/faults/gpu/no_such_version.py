"""A version is requested that was never released, or that pip cannot parse.

What you see   `ERROR: Invalid requirement`, or `Could not find a version that satisfies the
               requirement nvidia-nccl-cu12==2.21.7`; or, worse, advice to upgrade to a version that
               does not exist.
Why            Advice is copied, and version numbers are made up on the way. NCCL's patch numbers
               have gaps: 2.21.5 is the only 2.21, and 2.22.3 follows. A version specifier has a
               single wildcard, a `.*` at the very end of `==` or `!=`; CUDA builds are named with a
               plus (`2.4.0+cu121`) and found on PyTorch's own index.
How to be sure `pip index versions PACKAGE` lists the released versions.
Fix            Request a version that exists; for NCCL, use the one your torch brings, which it was
               tested with (`python -c 'import torch; print(torch.cuda.nccl.version())'`).
Known limits   The table of releases is part of holdfast: versions released after it was written are
               not judged, and only packages of a training job are.
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
from holdfast.analysis.source.source import Command, ShellWord, Source
from holdfast.fault import Fault
from holdfast.findings import Finding, Place

FAULT = Fault(
    code="HOLD314",
    slug="no-such-version",
    related=("version-skew", "known-defect", "script-broken"),
)

PACKAGES = ("torch", "torchvision", "torchaudio", "deepspeed", "accelerate", "nvidia-", "lightning")
"""packages of a training job; others are not judged"""


@FAULT.lint
def requirement_not_installable(source: Source) -> Iterator[Finding]:
    for command in source.commands:
        for word in _requirements(command):
            parsed = releases.requirement(word.text)
            if parsed is None or not parsed[0].startswith(PACKAGES):
                continue
            for operator, version in parsed[1]:
                yield from _judge_requirement(word, parsed[0], operator, version)


@FAULT.lint
def nccl_version_never_released(source: Source) -> Iterator[Finding]:
    """A release of NCCL in a package manager's command or in a build."""
    for place, version, asked in _nccl_versions(source):
        if released := releases.never_released(releases.nccl(), version):
            report = FAULT.error if asked else FAULT.warning
            yield report(
                f"NCCL {version} was never released",
                reason=f"released versions of that minor: {released}",
                fix="use a released version; `pip index versions nvidia-nccl-cu12` lists them",
                at=place,
            )


NCCL_PACKAGE = re.compile(r"libnccl(?:2|-dev|-devel)?[=-](2\.\d+\.\d+)(?:-.*)?")


def _nccl_versions(source: Source) -> Iterator[tuple[Place, str, bool]]:
    for setting in source.settings:
        if setting.known and setting.name in ("NCCL_VERSION", "NCCL_VER"):
            yield setting.place, setting.value.partition("-")[0].lstrip("v"), False
    for command in source.commands:
        texts = " ".join(word.text for word in command.words)
        for word in command.words[1:]:
            package = NCCL_PACKAGE.fullmatch(word.text)
            if package and command.name in ("apt", "apt-get", "yum", "dnf", "microdnf"):
                yield word.place, package[1], True
            tag = re.fullmatch(r"(?:--branch=)?v(2\.\d+\.\d+)-\d", word.text)
            if tag and command.name == "git" and re.search(r"/nccl(?:\.git)?(?![\w-])", texts):
                yield word.place, tag[1], True


def _requirements(command: Command) -> Iterator[ShellWord]:
    """What `pip install`, `uv pip install` or `python -m pip install` would install."""
    texts = [word.text for word in command.words]
    by_python = re.fullmatch(r"python[\d.]*", command.name) and texts[1:3] == ["-m", "pip"]
    if not (re.fullmatch(r"pip[\d.]*|uv", command.name) or by_python):
        return
    if not {"install", "download", "wheel", "add"} & set(texts[:5]):
        return
    for word in command.words[1:]:
        if word.known and not word.text.startswith("-") and re.search(r"[=<>~!]", word.text):
            yield word


def _judge_requirement(
    word: ShellWord, name: str, operator: str, version: str
) -> Iterator[Finding]:
    if why := releases.refused(operator, version):
        yield FAULT.error(
            f"`{operator}{version}` is not a version specifier: {why}",
            reason="pip refuses it; pip before 24.1 found no match (PEP 440)",
            fix=f"request a release: `pip install {name}=={_nearest_release(name, version)}`",
            at=word.place,
        )
        return
    table = releases.of_package(name)
    released = releases.never_released(table, version) if operator == "==" else ""
    if released:
        yield FAULT.error(
            f"{name} {version} was never released",
            reason=f"released versions of that minor: {released}; pip finds no other",
            fix=f"`pip install {name}=={released.rpartition(', ')[2] or released}`",
            at=word.place,
        )
    elif name == "torch" and (found := re.match(r"(\d+)\.(\d+)\.0\.dev\d+", version)):
        minor = int(found[1]), int(found[2])
        if patches := releases.torch().get(minor):
            release = f"{minor[0]}.{minor[1]}.{patches[-1]}"
            yield FAULT.note(
                f"torch {version} is a nightly from before torch {minor[0]}.{minor[1]} came out",
                reason="the release contains it and the fixes made since",
                fix=f"`pip install torch=={release}`, or a newer release",
                at=word.place,
            )


def _nearest_release(name: str, version: str) -> str:
    """A release close to the one meant, where the table has one."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    patches = releases.of_package(name).get((int(found[1]), int(found[2]))) if found else None
    return f"{found[1]}.{found[2]}.{patches[-1]}" if found and patches else "VERSION"
