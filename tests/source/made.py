"""Sources for tests, read by the real readers from the text a user would write."""

from __future__ import annotations

import textwrap

import msgspec

from holdfast.lint import compose as compose_reader
from holdfast.lint import dockerfile as dockerfile_reader
from holdfast.lint import env_file as env_file_reader
from holdfast.lint import hostfile as hostfile_reader
from holdfast.lint import python as python_reader
from holdfast.lint import shell as shell_reader
from holdfast.lint import yaml_file as yaml_reader
from holdfast.source.nouns import Here, Launch, Source


def python(
    text: str,
    *,
    file: str = "train.py",
    started_by: tuple[Launch, ...] = (),
    torch: str = "2.13.0",
    complete: bool = True,
) -> Source:
    """A training script; the first line of the text is line 1, leading blank lines dropped."""
    source = python_reader.read(textwrap.dedent(text).lstrip("\n"), file, complete=complete)
    return msgspec.structs.replace(source, started_by=started_by, here=Here(torch=torch))


def shell(
    text: str, *, file: str = "run.sh", complete: bool = True, here: Here | None = None
) -> Source:
    """A script or a recipe of shell commands; the first line of the text is line 1."""
    return _at(shell_reader.read(_plain(text), file, complete=complete), here)


def dockerfile(text: str, *, file: str = "Dockerfile", here: Here | None = None) -> Source:
    return _at(dockerfile_reader.read(_plain(text), file), here)


def compose(text: str, *, file: str = "compose.yaml", here: Here | None = None) -> Source:
    return _at(compose_reader.read(_plain(text), file), here)


def yaml(text: str, *, file: str = "job.yaml", here: Here | None = None) -> Source:
    """A Kubernetes manifest, or Accelerate's configuration."""
    return _at(yaml_reader.read(_plain(text), file), here)


def env_file(text: str, *, file: str = ".env", here: Here | None = None) -> Source:
    return _at(env_file_reader.read(_plain(text), file), here)


def nccl_conf(text: str, *, file: str = "nccl.conf", here: Here | None = None) -> Source:
    return _at(env_file_reader.read_nccl_conf(_plain(text), file), here)


def hostfile(text: str, *, file: str = "hostfile", here: Here | None = None) -> Source:
    return _at(hostfile_reader.read(_plain(text), file), here)


def _plain(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def _at(source: Source, here: Here | None) -> Source:
    return msgspec.structs.replace(source, here=here or Here(torch="2.13.0"))
