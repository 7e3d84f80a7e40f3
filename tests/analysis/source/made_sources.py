"""Sources for tests, read by the real readers from the text a user would write."""

from __future__ import annotations

import textwrap

import msgspec

from holdfast.analysis.source.source import Launch, LintingMachine, Source
from holdfast.lint.readers import compose as compose_reader
from holdfast.lint.readers import dockerfile as dockerfile_reader
from holdfast.lint.readers import env_file as env_file_reader
from holdfast.lint.readers import hostfile as hostfile_reader
from holdfast.lint.readers import python as python_reader
from holdfast.lint.readers import shell as shell_reader
from holdfast.lint.readers import yaml_file as yaml_reader


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
    return msgspec.structs.replace(source, started_by=started_by, here=LintingMachine(torch=torch))


def shell(
    text: str, *, file: str = "run.sh", complete: bool = True, here: LintingMachine | None = None
) -> Source:
    """A script or a launch script of shell commands; the first line of the text is line 1."""
    plain = _plain(text)
    return _made(shell_reader.read(plain, file, complete=complete), plain, here)


def dockerfile(
    text: str, *, file: str = "Dockerfile", here: LintingMachine | None = None
) -> Source:
    plain = _plain(text)
    return _made(dockerfile_reader.read(plain, file), plain, here)


def compose(text: str, *, file: str = "compose.yaml", here: LintingMachine | None = None) -> Source:
    plain = _plain(text)
    return _made(compose_reader.read(plain, file), plain, here)


def yaml(text: str, *, file: str = "job.yaml", here: LintingMachine | None = None) -> Source:
    """A Kubernetes manifest, or Accelerate's configuration."""
    plain = _plain(text)
    return _made(yaml_reader.read(plain, file), plain, here)


def env_file(text: str, *, file: str = ".env", here: LintingMachine | None = None) -> Source:
    plain = _plain(text)
    return _made(env_file_reader.read(plain, file), plain, here)


def nccl_conf(text: str, *, file: str = "nccl.conf", here: LintingMachine | None = None) -> Source:
    plain = _plain(text)
    return _made(env_file_reader.read_nccl_conf(plain, file), plain, here)


def hostfile(text: str, *, file: str = "hostfile", here: LintingMachine | None = None) -> Source:
    plain = _plain(text)
    return _made(hostfile_reader.read(plain, file), plain, here)


def _plain(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def _made(source: Source, text: str, here: LintingMachine | None) -> Source:
    _TEXTS[_content(source)] = text
    return msgspec.structs.replace(source, here=here or LintingMachine(torch="2.13.0"))


_TEXTS: dict[object, str] = {}


def _content(source: Source) -> object:
    """What stays the same when a test gives a source another machine or launch."""
    return source.file, source.settings, source.commands, source.containers, source.hosts


def text_of(source: Source) -> str:
    """What it was read from: a Source holds what stands in a text, and only Python the text."""
    if source.program is not None:
        return "\n" * (source.program.first_line - 1) + source.program.text
    return _TEXTS.get(_content(source), "")
