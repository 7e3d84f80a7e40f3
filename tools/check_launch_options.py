"""Compare the table of launcher options with the launchers that are installed.

    python tools/check_launch_options.py

The table is src/holdfast/lint/readers/data/launch_options.tsv; it is edited by hand. Launchers in
Python are asked for their argparse parsers: torchrun, accelerate, deepspeed. Nothing is started and
nothing is fetched. One that is not installed is said, and the others are still compared. mpirun,
srun, docker, apptainer, ssh and pdsh have no such parser: compare with their manuals.

Exit codes: 0 the table agrees, 1 it differs, 2 no launcher could be asked.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from importlib.metadata import version

from holdfast.lint.readers import launch_options
from holdfast.lint.readers.arguments import Options

# package, module, function that makes the parser, our table
LAUNCHERS = {
    "torchrun": ("torch", "torch.distributed.run", "get_args_parser", launch_options.TORCHRUN),
    "accelerate": (
        "accelerate",
        "accelerate.commands.launch",
        "launch_command_parser",
        launch_options.ACCELERATE,
    ),
    "deepspeed": (
        "deepspeed",
        "deepspeed.launcher.runner",
        "_build_parser",
        launch_options.DEEPSPEED,
    ),
}


def main() -> int:
    argparse.ArgumentParser(description=str(__doc__).partition("\n")[0]).parse_args()
    asked, differing = 0, 0
    for name, (package, module, function, options) in LAUNCHERS.items():
        try:
            make: Callable[[], argparse.ArgumentParser] = getattr(
                importlib.import_module(module), function
            )
            parser = make()
        except (ImportError, AttributeError) as problem:
            print(f"could not ask {name}: {problem}")
            continue
        asked += 1
        differences = compare(parser, options)
        differing += bool(differences)
        print(f"{name} ({package} {version(package)}): {len(differences) or 'no'} differences")
        for line in differences:
            print(f"  {line}")
    return 2 if not asked else int(differing > 0)


def compare(parser: argparse.ArgumentParser, options: Options) -> list[str]:
    """What the parser has and the table lacks or says otherwise. Options that the table leaves to
    `others_take_values` need no row."""
    found = []
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list
        names = {o.lstrip("-").replace("_", "-") for o in action.option_strings if o[:2] == "--"}
        takes_value = action.nargs != 0
        for name in sorted(names):
            known = options.canonical(name)
            if known not in options.names:
                if not (takes_value and options.others_take_values):
                    found.append(f"--{name}: not in the table")
            elif (known in options.switches) == takes_value:
                found.append(f"--{name}: takes {'a value' if takes_value else 'none'}")
    return found


if __name__ == "__main__":
    sys.exit(main())
