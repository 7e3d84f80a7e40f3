"""What a walk over shell text has found so far, however texts are nested in each other."""

from __future__ import annotations

import re

import msgspec

from holdfast.analysis.source.source import Command, HostSlots, Launch, ShellLoop, SourceSetting
from holdfast.lint.readers.shell.grammar import ParseBudget

EXPANDED = re.compile(r"\$\{?([A-Za-z_]\w*)")
ASKED = re.compile(r"(?:\b(?P<into>[A-Za-z_]\w*)=\"?)?\$\{?(?P<name>[A-Za-z_]\w*)")
Arms = tuple[tuple[int, int], ...]

MOST_TEXTS = 2000
"""texts inside texts of one reading: more than any script has, and a bound on hostile ones"""


class ShellReading:
    def __init__(self) -> None:
        self.settings: list[SourceSetting] = []
        self.commands: list[Command] = []
        self.loops: list[ShellLoop] = []
        self.jobs: list[Launch] = []
        """#SBATCH lines"""
        self.hosts: list[HostSlots] = []
        self.stumbled = False
        """the grammar does not understand all of the text"""
        self.cut = False
        """a part was passed over: it is nested too deeply"""
        self.texts = 0
        self.budget = ParseBudget()
        self.reads: set[str] = set()
        """variables whose value some command or other variable is given"""
        self.arms: Arms = ()
        """the branches around what is read just now"""
        self._forks = 0

    def fork(self) -> int:
        """A number for an `if`, a `case` or a function."""
        self._forks += 1
        return self._forks

    def asks(self, text: str) -> None:
        """`A=${A:-1}` does not count as a read of A."""
        for match in ASKED.finditer(text):
            if match["into"] != match["name"]:
                self.reads.add(match["name"])

    def setting(self, setting: SourceSetting) -> int:
        self.settings.append(setting)
        return len(self.settings) - 1

    def export(self, indexes: tuple[int, ...]) -> None:
        """`export NAME`, after the assignment."""
        for index in indexes:
            given = msgspec.structs.replace(self.settings[index], exported=True)
            self.settings[index] = given

    def command(self, command: Command) -> int:
        self.commands.append(command)
        return len(self.commands) - 1

    def in_order(self) -> tuple[Command, ...]:
        """By the text. A `$(…)` inside `bash -c "…"` is met twice, and counts once."""
        firsts: dict[tuple[object, ...], Command] = {}
        for command in self.commands:
            key = (command.place, command.name, tuple(word.text for word in command.words))
            firsts.setdefault(key, command)
        ordered = sorted(firsts.values(), key=lambda command: command.place)
        return tuple(
            msgspec.structs.replace(command, number=number)
            for number, command in enumerate(ordered)
        )

    def settings_in_order(self) -> tuple[SourceSetting, ...]:
        firsts: dict[tuple[object, ...], SourceSetting] = {}
        for setting in self.settings:
            firsts.setdefault((setting.place, setting.name, setting.by), setting)
        return tuple(sorted(firsts.values(), key=lambda setting: setting.place))
