"""`holdfast completion SHELL`: a script for the shell, made from the parsers themselves."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.cli import streams

SUMMARY = "print the completion script of a shell: source it from your start-up file"

BASH = """_holdfast_run_ids() {{
    local folder=runs number
    for (( number = 2; number < COMP_CWORD; number++ )); do
        [ "${{COMP_WORDS[number]}}" != --runs ] || folder="${{COMP_WORDS[number + 1]}}"
    done
    [ -d "$folder" ] || return
    echo latest
    for journal in "$folder"/*/journal.jsonl; do
        [ ! -f "$journal" ] || basename "$(dirname "$journal")"
    done
}}
_holdfast() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD - 1]}}"
    local flags="" words="" files="" IFS=$' \\t\\n'
    local faults="{faults}"
    if [ "$COMP_CWORD" -le 1 ]; then
        COMPREPLY=( $(compgen -W "{verbs} --help --version" -- "$word") )
        return
    fi
    case "${{COMP_WORDS[1]}}" in
{verb_cases}
    esac
    case "${{COMP_WORDS[1]}} $before" in
{option_cases}
        *)
            case "$word" in -*) words="$flags" files="" ;; esac
            [ -n "$words$files" ] || words="$flags"
            ;;
    esac
    COMPREPLY=( $(compgen -W "$words" -- "$word") )
    if [ -n "$files" ]; then
        compopt -o filenames 2>/dev/null
        IFS=$'\\n'
        COMPREPLY+=( $(compgen "$files" -- "$word") )
    fi
}}
complete -F _holdfast holdfast"""

FAULTS = "$faults"
RUN_IDS = "$(_holdfast_run_ids)"
POSITIONAL = {
    "check": ("", ""),
    "lint": ("", "-f"),
    "run": ("", "-f"),
    "runs": ("", ""),
    "stop": (RUN_IDS, ""),
    "bundle": (RUN_IDS, ""),
    "explain": (FAULTS, "-f"),
    "drill": ("", "-f"),
    "checkpoint": ("", "-f"),
}
"""verb -> what its own words are (for `compgen -W`), and whether file names are"""
VALUES = {
    "--only": (FAULTS, ""),
    "--skip": (FAULTS, ""),
    "--select": (FAULTS, ""),
    "--ignore": (FAULTS, ""),
    "--run": (RUN_IDS, ""),
    "--runs": ("", "-d"),
    "--ckpt": ("", "-d"),
    "--faults": (FAULTS, ""),
    "--reference": ("", "-d"),
    "--drills": ("", "-d"),
    "--writes-to": ("", "-d"),
    "--link": ("", "-f"),
    "--page": ("", "-f"),
    "--runner": ("holdfast torchrun accelerate ft_launcher", ""),
    "--log-dir": ("", "-d"),
    "--output": ("", "-f"),
    "-o": ("", "-f"),
}
"""option -> what may follow it, where its parser has no list of choices"""


class VerbWords(NamedTuple):
    flags: tuple[str, ...]
    choices: dict[str, tuple[str, ...]]
    """flag -> what may follow it"""
    own: tuple[str, ...]
    """what may be given without a flag"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=["bash", "zsh", "fish"])


def run(arguments: argparse.Namespace) -> int:
    from holdfast import catalogue

    faults = [word for e in catalogue.entries() for word in (e.fault.code, e.fault.slug)]
    words = words_by_verb()
    if arguments.shell == "fish":
        streams.answer(_fish(words, faults))
        return 0
    if arguments.shell == "zsh":
        streams.answer("autoload -U +X bashcompinit && bashcompinit")
    streams.answer(
        BASH.format(
            faults=" ".join(faults),
            verbs=" ".join(words),
            verb_cases="\n".join(_verb_case(verb, found) for verb, found in words.items()),
            option_cases="\n".join(
                case for verb, found in words.items() for case in _option_cases(verb, found)
            ),
        )
    )
    return 0


def _verb_case(verb: str, words: VerbWords) -> str:
    own, files = POSITIONAL.get(verb, ("", ""))
    named = " ".join((own, *words.own)).strip()
    return f'        {verb}) flags="{" ".join(words.flags)}" words="{named}" files="{files}" ;;'


def _option_cases(verb: str, words: VerbWords) -> list[str]:
    values = {flag: VALUES[flag] for flag in words.flags if flag in VALUES}
    values |= {flag: (" ".join(choices), "") for flag, choices in words.choices.items()}
    return [
        f'        "{verb} {flag}") words="{named}" files="{files}" ;;'
        for flag, (named, files) in values.items()
    ]


def _fish(words: dict[str, VerbWords], faults: list[str]) -> str:
    lines = [f"complete -c holdfast -n __fish_use_subcommand -f -a {verb}" for verb in words]
    runs = "(path basename (path dirname runs/*/journal.jsonl) 2>/dev/null) latest"
    for verb, found in words.items():
        own, files = POSITIONAL.get(verb, ("", ""))
        more = {FAULTS: " ".join(faults), RUN_IDS: runs}.get(own, "")
        offered = " ".join((*found.flags, *found.own, more)).strip()
        no_files = "" if files else " -f"
        lines.append(
            f"complete -c holdfast -n '__fish_seen_subcommand_from {verb}'{no_files} -a '{offered}'"
        )
    return "\n".join(lines)


def words_by_verb() -> dict[str, VerbWords]:
    """Every flag of every verb, and the words that its parser knows."""
    from holdfast.analysis import variables
    from holdfast.cli.main import VERBS
    from holdfast.drill import asked as drill_options
    from holdfast.run.launch.flags import add_own_flags

    words: dict[str, VerbWords] = {}
    for verb, module in VERBS.items():
        parser = argparse.ArgumentParser(prog=verb)
        if verb == "run":  # torchrun's parser needs torch, which takes seconds to import
            add_own_flags(parser.add_argument_group())
        elif verb == "drill":
            parser = drill_options.build_parser()
        else:
            module.add_arguments(parser)
        words[verb] = _words_of(parser)
    for verb in ("run", "drill"):
        flags = dict.fromkeys((*words[verb].flags, *_torchrun_flags()))
        words[verb] = words[verb]._replace(flags=tuple(flags))
    names = tuple(name for name in variables.everything() if name[-1] != "*")
    words["env"] = words["env"]._replace(own=names)
    return words


def _words_of(parser: argparse.ArgumentParser) -> VerbWords:
    actions = list(_actions_of(parser))
    return VerbWords(
        flags=tuple(dict.fromkeys(flag for each in actions for flag in each.option_strings)),
        choices={
            flag: tuple(map(str, action.choices))
            for action in actions
            for flag in action.option_strings
            if action.choices
        },
        own=tuple(
            str(choice)
            for action in actions
            if not action.option_strings
            for choice in action.choices or ()
        ),
    )


def _actions_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """With those of the actions of a verb (`checkpoint ls --verify`)."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to list them
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for inner in action.choices.values():
                yield from _actions_of(inner)


def _torchrun_flags() -> tuple[str, ...]:
    from holdfast.lint.readers.launch_options import TORCHRUN

    return tuple(f"--{name}" for name in sorted(TORCHRUN.values | TORCHRUN.switches - {"help"}))
