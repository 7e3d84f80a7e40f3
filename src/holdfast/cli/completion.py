"""`holdfast completion SHELL`: a script for the shell, made from the parser itself."""

from __future__ import annotations

import argparse

from holdfast.cli import streams

SUMMARY = "print the completion script of a shell: source it from your start-up file"

BASH = """_holdfast() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" verb="${{COMP_WORDS[1]}}"
    local choices="{verbs}"
    if [ "$COMP_CWORD" -gt 1 ]; then
        case "$verb" in
{cases}
        esac
    fi
    COMPREPLY=( $(compgen -W "$choices" -- "$word") )
    [ ${{#COMPREPLY[@]}} -gt 0 ] || COMPREPLY=( $(compgen -f -- "$word") )
}}
complete -F _holdfast holdfast"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=["bash", "zsh", "fish"])


def run(arguments: argparse.Namespace) -> int:
    words = words_by_verb()
    if arguments.shell == "fish":
        lines = [f"complete -c holdfast -n __fish_use_subcommand -f -a {verb}" for verb in words]
        lines += [
            f"complete -c holdfast -n '__fish_seen_subcommand_from {verb}' -a '{' '.join(choices)}'"
            for verb, choices in words.items()
        ]
        streams.answer("\n".join(lines))
        return 0
    cases = "\n".join(
        f'            {verb}) choices="{" ".join(choices)}" ;;' for verb, choices in words.items()
    )
    if arguments.shell == "zsh":
        streams.answer("autoload -U +X bashcompinit && bashcompinit")
    streams.answer(BASH.format(verbs=" ".join(words), cases=cases))
    return 0


def words_by_verb() -> dict[str, list[str]]:
    """Every flag of every verb, and the names of faults where they are asked for."""
    from holdfast import catalogue
    from holdfast.analysis import variables
    from holdfast.cli.main import VERBS

    names = [word for e in catalogue.entries() for word in (e.fault.code, e.fault.slug)]
    words: dict[str, list[str]] = {}
    for verb, module in VERBS.items():
        parser = argparse.ArgumentParser(prog=verb)
        module.add_arguments(parser)
        flags = [flag for action in parser._actions for flag in action.option_strings]  # noqa: SLF001
        choices = [str(choice) for action in parser._actions for choice in action.choices or ()]  # noqa: SLF001
        words[verb] = flags + choices + (names if verb in ("check", "explain", "lint") else [])
    words["env"] += [name for name in variables.everything() if name[-1] != "*"]
    return words
