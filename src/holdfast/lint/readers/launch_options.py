"""Which options the launchers and engines have, and which of them take a value.

The options themselves are in data/launch_options.tsv, with the versions they were read from.
"""

from __future__ import annotations

import functools

from holdfast.analysis.source import data_file
from holdfast.lint.readers.arguments import Options


@functools.cache
def _rows() -> dict[str, list[list[str]]]:
    """The rows of the file, by program."""
    programs: dict[str, list[list[str]]] = {}
    for program, *row in data_file.rows(__file__, "launch_options.tsv", columns=4):
        programs.setdefault(program, []).append(row)
    return programs


def _options(
    program: str,
    *,
    single_dash: bool = False,
    others_take_values: bool = False,
    abbreviates: bool = False,
    before_a_script: bool = True,
) -> Options:
    taking: dict[str, set[str]] = {
        kind: set() for kind in ("value", "two values", "attached", "none")
    }
    shorts: dict[str, str] = {}
    aliases: dict[str, str] = {}
    for option, takes, spellings in _rows()[program]:
        taking[takes].add(option)
        for spelling in spellings.split():
            kind = shorts if spelling.startswith("-") else aliases
            kind[spelling.removeprefix("-")] = option
    return Options(
        values=frozenset(taking["value"]),
        pairs=frozenset(taking["two values"]),
        attached=frozenset(taking["attached"]),
        switches=frozenset(taking["none"]),
        shorts=shorts,
        aliases=aliases,
        single_dash=single_dash,
        others_take_values=others_take_values,
        abbreviates=abbreviates,
        before_a_script=before_a_script,
    )


MPI_PROGRAMS = ("mpirun", "mpiexec", "orterun", "prun", "prterun", "mpiexec.hydra")

TORCHRUN = _options("torchrun", abbreviates=True)
ACCELERATE = _options("accelerate", others_take_values=True)
DEEPSPEED = _options("deepspeed", abbreviates=True)
HOROVODRUN = _options("horovodrun", single_dash=True, abbreviates=True)
MPIRUN = _options("mpirun", single_dash=True)
SRUN = _options("srun", others_take_values=True, abbreviates=True)
DOCKER_RUN = _options("docker run", others_take_values=True, before_a_script=False)
APPTAINER = _options("apptainer", others_take_values=True, before_a_script=False)
SSH = _options("ssh", before_a_script=False)
PDSH = _options("pdsh", before_a_script=False)
PYTHON = _options("python")
"""`-m` and `-c` end its options: what follows is the module, or the program itself"""
