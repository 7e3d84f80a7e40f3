"""Markdown, reStructuredText, plain text and notebooks -> Sources, at the lines of the file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.analysis.source.source import Source
from holdfast.lint import detect_language
from holdfast.lint.detect_language import Language
from holdfast.lint.reader_list import reader
from holdfast.lint.readers import blocks, python_examples
from holdfast.lint.readers.blocks import CodeBlock

LANGUAGES = {
    Language.PYTHON: (
        "python", "python3", "py", "py3", "pycon", "ipython", "ipython3", "python-repl",
    ),
    Language.SHELL: (
        "bash", "sh", "shell", "zsh", "console", "shell-session", "shellsession", "sh-session",
        "bash-session", "terminal", "slurm", "sbatch", "command", "cmd", "shellscript",
    ),
    Language.DOCKERFILE: ("dockerfile", "docker", "containerfile"),
    Language.YAML: ("yaml", "yml"),
    Language.ENV_FILE: ("env", "dotenv", "ini", "conf", "properties"),
}  # fmt: skip
BY_WORD = {word: language for language, words in LANGUAGES.items() for word in words}
_PROMPT = re.compile(r"(?P<prompt>\s*(?:\(\w[\w.-]*\)\s*)?(?:[\w.@:~/-]+)?[$#%❯] )(?=\S)")


def markdown(text: str, file: str) -> Iterator[Source]:
    """Also plain text: nothing in it is a fence unless it looks like one."""
    yield from _sources(blocks.markdown(text), file)


def rst(text: str, file: str) -> Iterator[Source]:
    yield from _sources(blocks.rst(text), file)


def _sources(found: list[CodeBlock], file: str) -> Iterator[Source]:
    imports = python_examples.SharedImports()
    for block in found:
        language = language_of(block)
        if language is Language.PYTHON:
            example = python_examples.read_block(
                block.text, file, first_line=block.first_line, indent=block.indent
            )
            if example is not None:
                yield imports.added_to(example)
        elif language is not None:
            yield _read(block, language, file)


def language_of(block: CodeBlock) -> Language | None:
    if not block.language or block.language in ("text", "txt", "plain", "none", "code"):
        return detect_language.of_snippet(block.text)
    language = BY_WORD.get(block.language)
    return detect_language.of_yaml(block.text) if language is Language.YAML else language


def _read(block: CodeBlock, language: Language, file: str) -> Source:
    text = without_prompts(block.text) if language is Language.SHELL else block.text
    return reader(language)(
        text, file, first_line=block.first_line, indent=block.indent, complete=False
    )


def without_prompts(text: str) -> str:
    """`$ command` and the output below it -> the command; every character keeps its place.

    A `#` counts as a prompt only beside others: alone it begins a comment.
    """
    lines = text.split("\n")
    prompts = [_PROMPT.match(line) for line in lines]
    if not any(found and not found["prompt"].strip().endswith("#") for found in prompts):
        return text
    kept: list[str] = []
    goes_on = False
    for line, found in zip(lines, prompts, strict=True):
        if found:
            width = len(found["prompt"])
            kept.append(" " * width + line[width:])
        elif goes_on:
            kept.append(re.sub(r"^>( |$)", r" \1", line))
        else:
            kept.append("")
        goes_on = kept[-1].rstrip().endswith("\\")
    return "\n".join(kept)
