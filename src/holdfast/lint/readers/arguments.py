"""Command lines -> options under their canonical names, and where the options end.

One description per program of which options take a value; the programs disagree on everything
else too: single dashes before long names, abbreviations, two values, letters run together.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec

from holdfast.analysis.source.source import Flag, ShellWord
from holdfast.findings import Place


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one program."""

    values: frozenset[str] = frozenset()
    """names that take a value"""
    switches: frozenset[str] = frozenset()
    shorts: Mapping[str, str] = {}
    """letter -> name"""
    aliases: Mapping[str, str] = {}
    """other spellings -> name"""
    pairs: frozenset[str] = frozenset()
    """names that take two values"""
    attached: frozenset[str] = frozenset()
    """names whose value only ever comes with `=`: `--exclusive[=user]`"""
    single_dash: bool = False
    """`-np 4`, `-hostfile h`"""
    others_take_values: bool = False
    """options not named here take one"""
    abbreviates: bool = False
    """argparse and getopt_long accept the beginning of a name"""
    before_a_script: bool = True
    """what it starts is a script, far behind: an unknown word before that holds more options"""

    @property
    def names(self) -> frozenset[str]:
        return self.values | self.switches | self.pairs | self.attached

    def canonical(self, written: str) -> str:
        name = written.replace("_", "-")
        name = self.aliases.get(name, name)
        if not self.abbreviates or name in self.names:
            return name
        known = {*self.names, *self.aliases}
        full = {self.aliases.get(one, one) for one in known if one.startswith(name)}
        return full.pop() if len(full) == 1 else name


class SplitOptions(msgspec.Struct, frozen=True, kw_only=True):
    flags: tuple[Flag, ...]
    rest: int
    """index of the first word that is no option"""


class _OptionReader:
    def __init__(self, words: Sequence[ShellWord], options: Options) -> None:
        self.words = words
        self.options = options
        self.flags: list[Flag] = []
        self.at = 0
        scripts = [i for i, word in enumerate(words) if word.text.endswith(".py")]
        self._last_script = scripts[-1] if scripts else -1

    def run(self) -> SplitOptions:
        while self.at < len(self.words):
            word = self.words[self.at]
            if word.text == "--":
                self.at += 1
                break
            if word.text.startswith("--") or (
                self.options.single_dash and self._single(word.text) is not None
            ):
                self._long(word)
            elif word.text.startswith("-") and len(word.text) > 1:
                self._letters(word)
            elif not self._is_more_options(word):
                break
        return SplitOptions(flags=tuple(self.flags), rest=self.at)

    def _is_more_options(self, word: ShellWord) -> bool:
        """`torchrun $ARGS train.py`: what is not known, with the script still to come."""
        if word.known or not self.options.before_a_script:
            return False
        following = self.words[self.at + 1].text if self.at + 1 < len(self.words) else ""
        to_come = self.at < self._last_script or following in ("-m", "--module")
        if not to_come or not word.text.startswith(("$", ".", "…")):
            return False
        self.at += 1
        return True

    def _single(self, text: str) -> str | None:
        if not text.startswith("-") or text.startswith("--"):
            return None
        name = self.options.canonical(text[1:].partition("=")[0])
        return name if len(text) > 2 and name in self.options.names else None

    def _long(self, word: ShellWord) -> None:
        written, equals, value = word.text.lstrip("-").partition("=")
        name = self.options.canonical(written)
        self.at += 1
        if equals:
            self._add(name, value, word, known=word.known)
        elif name in self.options.pairs:
            self._take(name, word, 2)
        elif self._takes_value(name):
            self._take(name, word, 1)
        else:
            self._add(name, "", word, known=True)

    def _takes_value(self, name: str) -> bool:
        options = self.options
        if name in options.names:
            return name in options.values
        behind = self.words[self.at].text if self.at < len(self.words) else "-"
        if behind.startswith("-") or behind.endswith(".py"):
            return False
        return options.others_take_values or self.at < self._last_script

    def _take(self, name: str, word: ShellWord, count: int) -> None:
        taken = self.words[self.at : self.at + count]
        self.at += count
        value = " ".join(one.text for one in taken)
        self._add(name, value, word, known=all(one.known for one in taken))

    def _letters(self, word: ShellWord) -> None:
        """`-N2`, `-it`, `-ite A=1`"""
        self.at += 1
        for number, letter in enumerate(word.text[1:], 2):
            name = self.options.shorts.get(letter, letter)
            if name in self.options.values or name in self.options.pairs:
                attached = word.text[number:].removeprefix("=")
                if attached:
                    self._add(name, attached, word, known=word.known)
                else:
                    self._take(name, word, 2 if name in self.options.pairs else 1)
                return
            self._add(name, "", word, known=True)

    def _add(self, name: str, value: str, word: ShellWord, *, known: bool) -> None:
        self.flags.append(Flag(name=name, value=value, place=word.place, known=known))


def split(words: Sequence[ShellWord], options: Options) -> SplitOptions:
    """Of the words behind the program."""
    reader = _OptionReader(words, options)
    found = reader.run()
    return msgspec.structs.replace(found, rest=min(found.rest, len(words)))


def program(word: ShellWord) -> str:
    """Its basename; '' where the word is not known."""
    return os.path.basename(word.text) if word.known else ""


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def shifted(place: Place, columns: int) -> Place:
    return Place(file=place.file, line=place.line, column=place.column + columns)
