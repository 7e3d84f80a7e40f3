"""YAML with the place of every value: composed, never constructed.

Aliases share nodes, so a document that would unfold to gigabytes stays as small as its text; what
walks over the nodes has its own bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.analysis.source.source import SyntaxRefusal
from holdfast.findings import Place
from holdfast.lint.readers.shell import grammar
from holdfast.lint.readers.shell.nested_text import FileText, NestedText
from holdfast.lint.readers.shell.scope import WordPiece

if TYPE_CHECKING:
    from yaml import Mark
    from yaml.nodes import Node

LONGEST = 300_000
"""characters; no launch script is longer, and generated manifests that are need no linting"""
MOST_NODES = 100_000
DEEPEST = 100
"""brackets inside brackets: PyYAML takes quadratic time over them"""

DOCUMENT = re.compile(r"^---", re.MULTILINE)
SCHEMA = re.compile(
    r"^(?:apiVersion|kind):[ \t]*(?:apiextensions\.k8s\.io/\S+|CustomResourceDefinition)[ \t]*$"
    r"(?:\n(?!---).*)*",
    re.MULTILINE,
)
"""definitions of resources: long, deep, and without anything that runs"""
DEFAULT = re.compile(r"\$\{\w+:?-([^${}]*)\}")


class YamlDocuments:
    """The documents of one file, and questions about their nodes."""

    def __init__(self, ground: FileText) -> None:
        self.ground = ground
        self.text = ground.data.decode("utf-8", "replace")
        self._bytes: list[int] | None = None
        self._asked = 0
        self.problem: SyntaxRefusal | None = None
        """why the rest could not be read"""
        self.roots = self._compose()

    def _compose(self) -> list[Node]:
        """As many documents as can be read; `problem` says what is missing, and why."""
        import yaml  # noqa: PLC0415 - only where there is YAML to read

        text = self._within_limits(SCHEMA.sub(_blank, self.text))
        found: list[Node] = []
        try:
            # a stream of documents is good up to the first that is broken
            for document in yaml.compose_all(text, Loader=yaml.SafeLoader):
                found.extend([document] if document is not None else [])
        except yaml.MarkedYAMLError as problem:
            self._stop_at(problem.problem_mark, f"no valid YAML: {problem.problem}")
        except RecursionError:
            self._in_part("it is nested too deeply", found[-1].end_mark.index if found else 0)
        except (yaml.YAMLError, ValueError):
            return found
        return found

    def _within_limits(self, text: str) -> str:
        """Cut before the document in which a limit is passed."""
        limits = [(_too_deep(text), "it is nested too deeply")]
        if len(SCHEMA.sub("", self.text)) > LONGEST:
            limits.append((LONGEST, "it is too long"))
        at, why = min((one for one in limits if one[0] is not None), default=(None, ""))
        if at is None:
            return text
        self._in_part(why, at)
        return text[: max((m.start() for m in DOCUMENT.finditer(text, 0, at)), default=0)]

    def _in_part(self, why: str, at: int) -> None:
        if self.problem is None:
            error = f"{why}, and is not read from here on"
            self.problem = SyntaxRefusal(error=error, place=self.ground.place(self.byte(at)))

    def _stop_at(self, mark: Mark | None, error: str) -> None:
        if mark is not None and "{{" not in self.text:  # a template is none, and need not be
            self.problem = SyntaxRefusal(
                error=error, place=self.ground.place(self.byte(mark.index))
            )

    # --- nodes ----------------------------------------------------------------------------------

    def pairs(self, node: Node | None, depth: int = 0) -> Iterator[tuple[Node, Node]]:
        """Keys and values of a mapping; what `<<` merges in comes first, so that the last wins."""
        if node is None or node.id != "mapping" or depth > 10:
            return
        for key, value in node.value:
            if key.value == "<<":
                for merged in value.value if value.id == "sequence" else [value]:
                    yield from self.pairs(merged, depth + 1)
        for key, value in node.value:
            if not self.asked(key):
                return
            if key.id == "scalar" and key.value != "<<":
                yield key, value

    def items(self, node: Node | None) -> list[Node]:
        if node is None or node.id != "sequence":
            return []
        return list(node.value) if self.asked(node, len(node.value)) else []

    def asked(self, node: Node, count: int = 1) -> bool:
        """False from the bound on: aliases can unfold a short text without end."""
        self._asked += count
        if self._asked > MOST_NODES:
            self._in_part("it has too many parts", node.start_mark.index)
        return self._asked <= MOST_NODES

    def get(self, node: Node | None, *path: str) -> Node | None:
        for name in path:
            found = [value for key, value in self.pairs(node) if key.value == name]
            node = found[-1] if found else None
        return node

    def scalar(self, node: Node | None, *path: str) -> str:
        found = self.get(node, *path)
        return str(found.value) if found is not None and found.id == "scalar" else ""

    def place(self, node: Node) -> Place:
        return self.ground.place(self.byte(node.start_mark.index))

    def end(self, node: Node) -> Place:
        return self.ground.place(self.byte(node.end_mark.index))

    def byte(self, index: int) -> int:
        """Of a character of the text."""
        if self.ground.data.isascii():
            return index
        if self._bytes is None:
            self._bytes = [0]
            for character in self.text:
                self._bytes.append(self._bytes[-1] + len(character.encode("utf-8", "replace")))
        return self._bytes[min(index, len(self._bytes) - 1)]

    # --- text for a shell -----------------------------------------------------------------------

    def passage(self, node: Node) -> NestedText:
        """A scalar as text to parse; blanks and quoting differ from what the file has."""
        data = bytearray()
        offsets: list[int] = []
        at = node.start_mark.index
        for match in re.finditer(r"\s+|\S+", str(node.value).replace("$$", "$")):
            found = self.text.find(match[0], at, node.end_mark.index)
            exact = found >= 0 and not match[0].isspace()
            at = found if exact else at
            for number, character in enumerate(match[0]):
                piece = character.encode("utf-8", "replace")
                data += piece
                offsets += [self.byte(at + number if exact else at)] * len(piece)
            at += len(match[0]) if exact else 0
        start = self.byte(node.start_mark.index)
        return NestedText(self.ground, bytes(data), base=start, offsets=offsets)

    def words(self, node: Node) -> list[list[WordPiece]]:
        """A list of strings as the words of a command; [] where it is none."""
        fields: list[list[WordPiece]] = []
        for item in self.items(node):
            if item.id != "scalar":
                return []
            value, known = filled(str(item.value))
            quote = item.style in ("'", '"')
            at = self.byte(item.start_mark.index + int(quote))
            raw = self.text[item.start_mark.index + int(quote) :][: len(value)]
            passage = self.passage(item) if item.style in ("|", ">") else None
            if passage is not None:
                fields.append(_lines(passage))
            else:
                fields.append([WordPiece(value, known=known, at=at, exact=raw == value)])
        return fields


def _too_deep(text: str) -> int | None:
    """Where brackets are nested deeper than the limit."""
    depth = 0
    for match in re.finditer(r"[\[{\]}]", text):
        depth = depth + 1 if match[0] in "[{" else max(depth - 1, 0)
        if depth > DEEPEST:
            return match.start()
    return None


def _blank(match: re.Match[str]) -> str:
    """Places stay what they are."""
    return re.sub(r"[^\n]", " ", match[0])


def _lines(passage: NestedText) -> list[WordPiece]:
    """A block of text as one word: each line an atom, so that its place is exact."""
    atoms: list[WordPiece] = []
    at = 0
    for line in passage.data.split(b"\n"):
        text = line.decode("utf-8", "replace") + "\n"
        indent = len(line) - len(line.lstrip())
        known = not grammar.elided(text)
        atoms.append(WordPiece(text[:indent], known=known, at=passage.origin(at), exact=False))
        atoms.append(WordPiece(text[indent:], known=known, at=passage.origin(at + indent)))
        at += len(line) + 1
    return atoms


def filled(value: str) -> tuple[str, bool]:
    """`${NAME:-default}` as compose fills it in, and whether all of it is known."""
    given = DEFAULT.sub(r"\1", value).replace("$$", "\0")
    masked = grammar.masked(given.encode("utf-8", "replace")).decode("utf-8", "replace")
    known = "$" not in given and not grammar.elided(masked)
    return given.replace("\0", "$") if known else value.replace("$$", "$"), known
