"""The table of options, as it is shipped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.lint.readers import launch_options
from holdfast.lint.readers.arguments import Options

PROGRAMS = {name: held for name, held in vars(launch_options).items() if isinstance(held, Options)}


def test_every_program_of_the_file_is_used() -> None:
    assert len(PROGRAMS) == len(launch_options._rows()) == 11


@pytest.mark.parametrize("options", PROGRAMS.values(), ids=PROGRAMS)
def test_an_option_takes_one_thing(options: Options) -> None:
    kinds = (options.values, options.switches, options.pairs, options.attached)
    assert sum(map(len, kinds)) == len(options.names)
    assert {*options.shorts.values(), *options.aliases.values()} <= options.names
    assert all(len(letter) == 1 for letter in options.shorts)


def test_spellings() -> None:
    assert launch_options.TORCHRUN.shorts["r"] == "redirects"
    assert launch_options.MPIRUN.aliases["machinefile"] == "hostfile"
    assert "mca" in launch_options.MPIRUN.pairs
    assert "exclusive" in launch_options.SRUN.attached


def test_the_file_says_of_when_it_is() -> None:
    file = Path(launch_options.__file__).parent / "data" / "launch_options.tsv"
    assert re.search(r"^# as of \d{4}-\d\d-\d\d$", file.read_text(), re.MULTILINE)
