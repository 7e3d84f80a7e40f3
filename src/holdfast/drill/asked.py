"""What was typed after `holdfast drill`: our own options, then the job as for torchrun."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.analysis.job import typed_options
from holdfast.errors import ConfigError

ALONE = ("--quick", "--all", "--json", "--keep", "--list", "--unfenced")
VALUED = ("--faults", "--hosts", "--runner", "--reference", "--patience", "--page", "--link",
          "--writes-to", "--drills")  # fmt: skip
PATIENCE = 8.0
QUICK_PATIENCE = 4.0
"""seconds: a hang is to be waited for, but not long"""


class AskedDrill(NamedTuple):
    faults: tuple[str, ...]
    """as typed behind --faults; empty: see `everything`"""
    everything: bool
    """--all; else the quick ones where no faults are named"""
    hosts: int
    runner: str
    reference: str
    patience: float
    json: bool
    keep: bool
    only_list: bool
    page: str
    links: tuple[str, ...]
    writes_to: tuple[str, ...]
    unfenced: bool
    """typed by hand: the job may run where the kernel cannot keep it from writing elsewhere"""
    drills: str
    options: tuple[str, ...]
    """of the launcher, torchrun's spelling"""
    script: tuple[str, ...]
    """it and its arguments"""

    def option(self, name: str) -> str | None:
        """What was typed for an option of the launcher; '' for one without a value."""
        typed = typed_options.before_the_script(self.options)
        found = [one.value for one in typed if one.name == name]
        return found[-1] if found else None


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="holdfast drill",
        usage="holdfast drill [options] [torchrun's options] SCRIPT [arguments of the script]",
        description=(
            "Run your own job undisturbed, then once for each fault, which is injected on purpose; "
            "measure how soon it is noticed, whether it is named right, how soon the job trains "
            "again, how many steps are repeated, and whether data, loss and weights are those of "
            "the undisturbed run. The job runs in a folder of its own: your files and checkpoints "
            "are not touched."
        ),
        epilog="{folder} in the script's arguments is the folder that the job runs in. Exit codes: "
        "0 every promise kept, 1 one was broken, 2 bad usage or the drill could not be held.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--faults", default="", metavar="A,B,…",
                       help="these drills (names, or patterns such as 'checkpoint-*')")  # fmt: skip
    which.add_argument("--quick", action="store_true", help="five drills (default)")
    which.add_argument("--all", action="store_true", help="every drill that can be held here")
    parser.add_argument("--list", action="store_true", help="list all drills, and hold none")
    parser.add_argument("--hosts", type=int, default=1, metavar="N",
                        help="on N hosts made of network namespaces on this machine "
                        "(root); adds drills of links and nodes")  # fmt: skip
    parser.add_argument("--runner", default="holdfast", metavar="NAME",
                        help="drive the same plan against another launcher: torchrun, accelerate, "
                        "ft_launcher (default: holdfast)")  # fmt: skip
    parser.add_argument("--reference", default="", metavar="DRILL",
                        help="folder of an earlier drill of the same job, whose undisturbed run "
                        "is used again")  # fmt: skip
    parser.add_argument("--patience", type=float, metavar="S",
                        help="as in `holdfast run`: how long ranks wait for a stuck one (default: "
                        f"{PATIENCE:g}, quick: {QUICK_PATIENCE:g})")  # fmt: skip
    parser.add_argument("--link", action="append", default=[], metavar="PATH",
                        help="a checkpoint or hidden file of this folder that the job needs to "
                        "read; the others are there already (repeatable)")  # fmt: skip
    parser.add_argument("--writes-to", action="append", default=[], metavar="DIR",
                        help="a folder elsewhere that it may write to (repeatable)")  # fmt: skip
    parser.add_argument("--unfenced", action="store_true",
                        help="drill also where the kernel cannot keep programs and native code of "
                        "the script from writing outside of the drill's folder")  # fmt: skip
    parser.add_argument("--drills", default="drills", metavar="DIR",
                        help="where the folders of drills are (default: ./drills)")  # fmt: skip
    parser.add_argument("--keep", action="store_true",
                        help="keep the folders of jobs that kept every promise, too")  # fmt: skip
    parser.add_argument("--page", default="", metavar="FILE", help="write the report there as well")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def parse(argv: Sequence[str]) -> AskedDrill:
    own: list[str] = []
    options: list[str] = []
    used = 0
    for one in typed_options.before_the_script(argv, alone=ALONE):
        used += len(one.words)
        (own if one.name in (*ALONE, *VALUED, "-h", "--help") else options).extend(one.words)
    typed = build_parser().parse_args(own)
    script = tuple(argv[used:])
    if not script and not typed.list:
        raise ConfigError(
            "holdfast drill needs the script to break",
            hint="holdfast drill --nproc-per-node 4 train.py",
        )
    quick = not typed.all and not typed.faults
    patience = QUICK_PATIENCE if quick else PATIENCE
    if typed.patience is not None:
        patience = typed.patience
    if not patience > 0:
        raise ConfigError(f"--patience must be > 0 seconds, got {patience:g}")
    if not 1 <= typed.hosts <= len(HOST_NAMES):
        raise ConfigError(f"--hosts must be 1 to {len(HOST_NAMES)}, got {typed.hosts}")
    return AskedDrill(
        faults=tuple(name for name in typed.faults.split(",") if name),
        everything=typed.all,
        hosts=typed.hosts,
        runner=typed.runner,
        reference=typed.reference,
        patience=patience,
        json=typed.json,
        keep=typed.keep,
        only_list=typed.list,
        page=typed.page,
        links=tuple(typed.link),
        writes_to=tuple(os.path.abspath(folder) for folder in typed.writes_to),
        unfenced=typed.unfenced,
        drills=typed.drills,
        options=tuple(options),
        script=script,
    )


HOST_NAMES = ("alpha", "bravo", "carol", "delta")
