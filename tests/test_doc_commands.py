"""Every command line of holdfast in the documents can be typed: its flags exist."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from holdfast.cli import env, run_hosts
from holdfast.cli.main import build_parser
from holdfast.drill import asked as drill_options
from holdfast.errors import Error
from holdfast.run.launch import flags
from tests.places import ROOT

BLOCK = re.compile(r"^```(?:console|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ |exec srun )?(?:\w+=\S* )*(?:.*\| )?holdfast (.+)$", re.MULTILINE)
INLINE = re.compile(
    r"`holdfast ((?:check|lint|env|run|runs|stop|bundle|explain|checkpoint|drill|completion)\b"
    r"[^`]*)`"
)
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
PLACEHOLDER = re.compile(r"…|\.\.\.|\[|\||<|\bSHELL\b|--pid$|^\w+$")
"""what shows a shape and cannot be typed; a verb alone is the name of the verb"""


def commands(page: Path) -> list[str]:
    text = page.read_text()
    lines = [line for block in BLOCK.findall(text) for line in COMMAND.findall(block)]
    typed = [re.split(r" < |  +#| # ", line)[0].strip() for line in lines + INLINE.findall(text)]
    return [line for line in dict.fromkeys(typed) if not PLACEHOLDER.search(line)]


COMMANDS = [
    pytest.param(command, id=f"{page.name}: {command}")
    for page in PAGES
    for command in commands(page)
]


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 40


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_accepted(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # run reads it before anything starts
    Path("rules.toml").write_text("[rules.one]\npattern = 'a'\nmeans = 'b'\n")
    try:
        accept(shlex.split(command))
    except (SystemExit, Error) as problem:
        pytest.fail(f"holdfast {command}: {problem}")


def accept(words: list[str]) -> None:
    if words[0] == "run":
        over_ssh = run_hosts.command_in(words[1:])
        flags.parse(over_ssh.arguments if over_ssh else words[1:])
        return
    if words[0] == "drill":
        drill_options.parse(words[1:])
        return
    command: list[str] = []
    if words[0] == "env":
        words, command = env.cut_command(words)
    build_parser().parse_args(words, argparse.Namespace(command=command))
