"""Whatever the text: readers answer, soon, and with places that exist."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.analysis.source.source import Source
from holdfast.lint.readers import compose, dockerfile, env_file, hostfile, shell, yaml_file
from holdfast.lint.readers.shell.grammar import ParseBudget

Reader = Callable[[str, str], Source]
READERS: dict[str, Reader] = {
    "shell": shell.read,
    "dockerfile": dockerfile.read,
    "compose": compose.read,
    "yaml": yaml_file.read,
    "env": env_file.read,
    "nccl.conf": env_file.read_nccl_conf,
    "hostfile": hostfile.read,
}
WORDS = (
    *("A=1", "export", "unset", "$A", "${A:-x}", "${A[@]}", "$(ls)", "$((A+1))", "`a`", "A=(x y)"),
    *('"', "'", "\\", "\n", "\r\n", "\t", ";", "&", "&&", "|", "||", "(", ")", "{", "}", "[", "]]"),
    *("if", "then", "fi", "for", "in", "do", "done", "while", "case", "esac", ";;", "f() {"),
    *(
        "<<EOF",
        "EOF",
        ">",
        ">>",
        "<",
        "<x>",
        "#",
        ":",
        ",",
        "-",
        "=",
        "*",
        "é",
        "\ud800",
        "\0",
        "\x85",
    ),
    *(
        "bash",
        "-c",
        "srun",
        "-N2",
        "docker",
        "run",
        "-e",
        "mpirun",
        "-x",
        "torchrun",
        "--nproc",
        "x.py",
    ),
    *(
        "ssh",
        "host",
        "#SBATCH",
        "--wrap=a",
        "eval",
        "trap",
        "cat",
        "echo",
        "tee",
        "nccl.conf",
        "a.sh",
    ),
    *("FROM", "RUN", "CMD", "ENV", '["a"', '"b"]', "services:", "containers:", "env:", "command:"),
    *("&a", "*a", "<<:", "slots=4", "host:2", "num_machines:", "num_processes:", "- ", "  "),
)
texts = st.one_of(
    st.text(max_size=200),
    st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join),
    st.lists(st.sampled_from(WORDS), max_size=30).map("".join),
)


@settings(deadline=None, max_examples=60)
@given(text=texts, name=st.sampled_from(sorted(READERS)))
def test_a_reader_never_fails(text: str, name: str) -> None:
    source = READERS[name](text, "file")
    lines = text.count("\n") + 1
    places = [setting.place for setting in source.settings]
    places += [command.place for command in source.commands]
    places += [launch.place for launch in source.launches]
    places += [container.place for container in source.containers]
    assert all(1 <= place.line <= lines and place.column >= 1 for place in places)
    assert [command.number for command in source.commands] == list(range(len(source.commands)))


NOISE = 0.1
"""seconds: what takes less may differ by any factor"""


@pytest.mark.parametrize(
    "text",
    [
        "$(" * 5_000,
        "${" * 20_000,
        "a && " * 3_000,
        "ab) " * 10_000,
        ">" * 20_000,
        "bash -c '" * 1_000,
        "if a; then " * 1_000,
        "A=(x)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 300,
        "A=x\n" + "A=$A$A\n" * 500 + "echo $A\n" * 500,
        "".join(f"export A{i}=1\nls\n" for i in range(1_000)),
        "RUN <<EOF\n" * 1_000,
        "eval " * 1_000,
    ],
    ids=lambda text: text[:12],
)
def test_twice_as_much_of_a_hostile_text_takes_no_multiple_of_the_time(text: str) -> None:
    """Or the parse budget ends it: two readers have one each."""
    half, whole = _spent(text[: len(text) // 2]), _spent(text)
    allowed = max(6 * max(half, NOISE), 3 * ParseBudget().seconds)
    assert whole < allowed, f"{half:.2f} s, then {whole:.2f} s"


def _spent(text: str) -> float:
    begun = time.process_time()
    shell.read(text, "x")
    dockerfile.read(text, "x")
    return time.process_time() - begun
