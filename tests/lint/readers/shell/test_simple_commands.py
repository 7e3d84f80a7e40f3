"""Shell: which commands stand in a text, wherever they stand, and where."""

from __future__ import annotations

import pytest

from holdfast.lint.readers import shell as reader
from tests.analysis.source.made_sources import shell


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a; b && c || d", ["a", "b", "c", "d"]),
        ("a | b | c", ["a", "b", "c"]),
        ("! a", ["a"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("while a; do b; done; until c; do d; done", ["a", "b", "c", "d"]),
        ("for i in $(a); do b; done", ["a", "b"]),
        ("for ((i=0; i<3; i++)); do b; done", ["b"]),
        ("case $x in 1) a;; *) b;; esac", ["a", "b"]),
        ("f() { a; }\nfunction g { b; }", ["a", "b"]),
        ("(a; { b; })", ["a", "b"]),
        ("x=$(a) y=`b`", ["a", "b"]),
        ('echo "$(a "$(b)")"', ["echo", "a", "b"]),
        ("[ $(a) = 1 ] && [[ -n $(b) ]]", ["a", "b"]),
        ("a > $(b) < <(c)", ["a", "b", "c"]),
        ("export A=$(a)", ["a"]),
        ("bash -c 'a; b'", ["bash", "a", "b"]),
        ('sh -lc "a \\"x\\"; b"', ["sh", "a", "b"]),
        ("bash script.sh", ["bash"]),
        ("bash <<EOF\na\nb\nEOF", ["bash", "a", "b"]),
        ("cat <<EOF\na\nEOF", ["cat"]),
        ("cat > run.sh <<'EOF'\na\nEOF", ["cat", "a"]),
        ("cat <<EOF > run.sh\na\nEOF\nb", ["cat", "a", "b"]),
        ("ssh -i key -p 22 host 'a && b'", ["ssh", "a", "b"]),
        ("ssh host a -x", ["ssh", "a"]),
        ("ssh host <<EOF\na\nEOF", ["ssh", "a"]),
        ("pdsh -w h1,h2 'a; b'", ["pdsh", "a", "b"]),
        ("srun -N2 --mpi=pmix bash -c 'a'", ["srun", "bash", "a"]),
        ("srun sudo -E a", ["srun", "a"]),
        ("docker run --rm --gpus all image a -b", ["docker", "a"]),
        ("docker exec -it name bash -c 'a'", ["docker", "bash", "a"]),
        ("docker run --entrypoint bash image -c 'a'", ["docker", "a"]),
        ("docker build -t x .", ["docker"]),
        ("kubectl exec -it pod -- a", ["kubectl", "a"]),
        ("sbatch --wrap='a; b'", ["sbatch", "a", "b"]),
        ("sbatch <<EOF\n#SBATCH -N 2\na\nEOF", ["sbatch", "a"]),
        ("sbatch job.sh", ["sbatch"]),
        ("tmux new-session -d -s train 'a'", ["tmux", "a"]),
        ("screen -dmS train a", ["screen", "a"]),
        ("trap 'a 0' EXIT", ["trap", "a"]),
        ('eval "a 1"', ["eval", "a"]),
        ("# a\nb # c", ["b"]),
        ("a \\\n  -x \\\n  -y\nb", ["a", "b"]),
        ("if a; then b\n", ["a", "b"]),
        ("a ) ; b", ["a", "b"]),
        ("", []),
    ],
)
def test_commands_are_found_everywhere(text: str, names: list[str]) -> None:
    assert [command.name for command in shell(text).commands] == names


@pytest.mark.parametrize(
    ("text", "name", "wrappers"),
    [
        ("sudo -E nohup /usr/bin/pkill -f x", "pkill", ("sudo", "nohup")),
        ("sudo -u root -- kill 1", "kill", ("sudo",)),
        ("timeout -k 5 30s torchrun x.py", "torchrun", ("timeout",)),
        ("nice -n 10 ionice -c 2 python x.py", "python", ("nice", "ionice")),
        ("numactl --cpunodebind=0 --membind 0 python x.py", "python", ("numactl",)),
        ("taskset -c 0-3 python x.py", "python", ("taskset",)),
        ("exec torchrun x.py", "torchrun", ("exec",)),
        ("time torchrun x.py", "torchrun", ("time",)),
        ("env -u A -i B=1 torchrun x.py", "torchrun", ("env",)),
        ("stdbuf -oL setsid command torchrun x.py", "torchrun", ("stdbuf", "setsid", "command")),
        ("conda run -n env torchrun x.py", "torchrun", ("conda",)),
        ("uv run torchrun x.py", "torchrun", ("uv",)),
        ("env", "env", ()),
        ("exec 3>file", "exec", ()),
        ("command -v torchrun", "command", ()),
        ("conda activate x", "conda", ()),
        ("$LAUNCHER x.py", "", ()),
    ],
)
def test_wrappers_are_taken_off(text: str, name: str, wrappers: tuple[str, ...]) -> None:
    (command,) = shell(text).commands
    assert (command.name, command.wrappers) == (name, wrappers)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x a'b'\"c\"", ["x", "abc"]),
        ("A='-n 2 -m'\nx $A \"$A\"", ["x", "-n", "2", "-m", "-n 2 -m"]),
        ('A=(-n 2 "a b")\nx "${A[@]}" ${A[@]:1}', ["x", "-n", "2", "a b", "${A[@]:1}"]),
        ('A=(-n 2)\nx y"${A[@]}"z', ["x", "y-n", "2z"]),
        ("x --out=%j_$D.log y", ["x", "--out=%j_$D.log", "y"]),
        ('A="a"\nB="$A $A"\nx $B', ["x", "a", "a"]),
        ('A="\n  -n 2\n  -m\n"\nx $A', ["x", "-n", "2", "-m"]),
        ("x ''", ["x", ""]),
        ("A=\nx $A y", ["x", "y"]),
        ("x <iface> y", ["x", "<iface>", "y"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert [word.text for word in shell(text).commands[-1].words] == words


def test_doubling_values_stay_small() -> None:
    source = shell("A=x\n" + "A=$A$A\n" * 64 + "echo $A")
    assert all(len(setting.value) < 10_000 for setting in source.settings)


def test_loops_pipes_and_background() -> None:
    source = shell("a &\nwhile ! b -z; do\n  for i in 1 2; do c; done\ndone | tee log\n")
    while_loop, for_loop = source.loops
    assert (while_loop.kind, while_loop.place.line, while_loop.last_line) == ("while", 2, 4)
    assert while_loop.condition == "! b -z"
    assert (for_loop.kind, for_loop.condition) == ("for", "i in 1 2")
    a, b, c, tee = source.commands
    assert a.background
    assert not b.background
    assert (b.loops, c.loops, tee.loops) == ((0,), (0, 1), ())


@pytest.mark.parametrize(
    ("text", "name", "line", "column"),
    [
        ("x;   a", "a", 1, 6),
        ("x 'é' ; a", "a", 1, 9),
        ("A=1 sudo a", "a", 1, 10),
        ("bash -c 'x; a'", "a", 1, 13),
        ('bash -c "x \\"y\\"; a"', "a", 1, 19),
        ('bash -c "\nx\n  a"', "a", 3, 3),
        ('P=22222222\nbash -c "x $P; a"', "a", 2, 16),
        ("bash <<'EOF'\nx\n  a\nEOF", "a", 3, 3),
        ("bash <<EOF\nx \\$HOME; a\nEOF", "a", 2, 11),
        ("ssh h \"x;\" ' a'", "a", 1, 14),
        ("srun -N 2 a", "a", 1, 11),
        ("srun bash -c \"bash -c 'a'\"", "a", 1, 24),
    ],
)
def test_places(text: str, name: str, line: int, column: int) -> None:
    (command,) = (one for one in shell(text).commands if one.name == name)
    assert (command.place.line, command.place.column) == (line, column)


def test_words_of_a_variable_are_where_they_were_written() -> None:
    source = shell('ARGS=(--nnodes 2\n  --x)\nP=1\ntorchrun "${ARGS[@]}" -p $P')
    places = [(word.place.line, word.place.column) for word in source.commands[0].words]
    assert places == [(4, 1), (1, 7), (1, 16), (2, 3), (4, 23), (4, 26)]


def test_a_list_in_a_command_line_kept_in_a_variable() -> None:
    source = shell('ARGS=(--nnodes 2\n  --tee 3)\nRUN="torchrun ${ARGS[@]} t.py"\neval $RUN')
    (launch,) = source.launches
    found = [(flag.name, flag.value, flag.place.line) for flag in launch.flags]
    assert (found, launch.script) == ([("nnodes", "2", 1), ("tee", "3", 2)], "t.py")


def test_a_block_of_a_document_has_the_places_of_the_document() -> None:
    source = reader.read("a\n  b\n", "guide.md", first_line=40, indent=3, complete=False)
    places = [(one.place.line, one.place.column) for one in source.commands]
    assert places == [(40, 4), (41, 6)]
    assert not source.complete
