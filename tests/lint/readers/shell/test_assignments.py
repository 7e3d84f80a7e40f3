"""Shell: what is set, to what, and whether anybody sees it."""

from __future__ import annotations

import pytest

from holdfast.analysis.source.source import SourceSetting
from tests.analysis.source.made_sources import shell


def last(text: str, name: str = "A") -> SourceSetting:
    found = [setting for setting in shell(text).settings if setting.name == name]
    assert found, text
    return found[-1]


@pytest.mark.parametrize(
    ("text", "value", "exported", "by"),
    [
        ("export A=1", "1", True, "export"),
        ("A=1", "1", False, "shell"),
        ("A=1\nexport A", "1", True, "shell"),
        ("export A\nA=1", "1", True, "shell"),
        (': "${A:=1}"', "1", False, "shell"),
        (": ${A:=1}; export A", "1", True, "shell"),
        ("A=0; export A; A=1", "1", True, "shell"),
        ("declare -x A=1", "1", True, "export"),
        ("declare -i A=1", "1", False, "shell"),
        ("typeset -gx A=1", "1", True, "export"),
        ("set -a\nA=1\nset +a", "1", True, "shell"),
        ("set -a; set +a; A=1", "1", False, "shell"),
        ("set -o allexport; A=1", "1", True, "shell"),
        ("A=1 torchrun x.py", "1", True, "prefix"),
        ("env A=1 torchrun x.py", "1", True, "prefix"),
        ("sudo -u me A=1 B=2 torchrun x.py", "1", True, "prefix"),
        ("export A='x y'", "x y", True, "export"),
        ('export A="x \\"y\\""', 'x "y"', True, "export"),
        ("export A=x\\ y", "x y", True, "export"),
        ("export A=$'a\\tb'", "a\tb", True, "export"),
        ("export A=", "", True, "export"),
        ("export A=1\r\nexport B=2\r\n", "1", True, "export"),
        ("if x; then\n\texport A=1\nfi", "1", True, "export"),
        ("f() { export A=1; }", "1", True, "export"),
        ("(export A=1; ls)", "1", True, "export"),
        ("docker run -e A=1 image", "1", True, "docker -e"),
        ("podman run --env=A=1 image", "1", True, "docker -e"),
        ("apptainer exec --env B=0,A=1 image.sif ls", "1", True, "docker -e"),
        ("mpirun -np 2 -x A=1 python x.py", "1", True, "mpirun -x"),
        ("mpiexec -genv A 1 -n 2 ./x", "1", True, "mpirun -x"),
        ("srun --export=ALL,A=1 python x.py", "1", True, "srun --export"),
        ("echo 'export A=1' >> ~/.bashrc", "1", True, "export"),
        ("echo A=1 | sudo tee -a /etc/nccl.conf", "1", True, "nccl.conf"),
        ("cat > job.env <<EOF\nA=1\nEOF", "1", True, "env file"),
        ("bash -c 'export A=1; ls'", "1", True, "export"),
        ("eval export A=1", "1", True, "export"),
    ],
)
def test_what_is_set(text: str, value: str, exported: bool, by: str) -> None:
    setting = last(text)
    assert (setting.value, setting.exported, setting.by) == (value, exported, by)
    assert setting.known


@pytest.mark.parametrize(
    ("before", "written", "value"),
    [
        ("P=29500", "$P", "29500"),
        ("P=29500", "${P}", "29500"),
        ("P=29500", '"tcp://h:$P"', "tcp://h:29500"),
        ("P=29500", "$((P + 1))", "29501"),
        ("P=29500", "$(( ($P - 500) * 2 / 3 % 7 ))", "6"),
        ("", "${P:-29500}", "29500"),
        ("", "${P-29500}", "29500"),
        ("P=", "${P:-29500}", "29500"),
        ("P=1", "${P:-29500}", "1"),
        ("P=1", "${P:+yes}", "yes"),
        ("unset RANK", "${RANK:-0}", "0"),
        ("L=(a b c)", "${#L[@]}", "3"),
        ("L=(a b c)", "${L[1]}", "b"),
        ("L=(a b c)", '"${L[*]}"', "a b c"),
        ("L=(a); L+=(b)", '"${L[*]}"', "a b"),
        ("P=29; P+=500", "$P", "29500"),
        ("if x; then P=1; else P=1; fi", "$P", "1"),
        ("f() { P=1; }; f", "$P", "1"),
        ("source venv/bin/activate", "${P:-1}", "1"),
        (": ${P:=1}", "$P", "1"),
    ],
)
def test_values_that_a_script_gives_itself(before: str, written: str, value: str) -> None:
    setting = last(f"{before}\nexport A={written}")
    assert (setting.value, setting.known, setting.written) == (value, True, written)


@pytest.mark.parametrize(
    ("before", "written"),
    [
        ("", "$1"),
        ("", "$NOBODY"),
        ("", "${1:-29500}"),
        ("", "${SLURM_NNODES:-1}"),
        ("", "${NODE_RANK:-0}"),
        ("", "${MASTER_ADDR:-localhost}"),
        ("source settings.sh", "${P:-1}"),
        ("", "$(hostname)"),
        ("", "`hostname`"),
        ("", "$(( 40000 + RANDOM % 20000 ))"),
        ("", "$((P + 1))"),
        ("", "$((1 / 0))"),
        ("", "${P%%:*}"),
        ("", "${!P}"),
        ("", "<iface>"),
        ("", "<your interface>"),
        ("", "..."),
        ("", "eth…"),
        ("", "YOUR_IFACE"),
        ("", "xxx"),
        ("", "{iface}"),
        ("", "node{0..3}"),
        ("P=1; if x; then P=2; fi", "$P"),
        ("P=1; [ -z $Q ] && P=2", "$P"),
        ("P=1; x || P=2", "$P"),
        ("case $1 in a) P=1;; *) P=2;; esac", "$P"),
        ("P=1; for P in 1 2; do :; done", "$P"),
        ("P=1; read -r P", "$P"),
        ("f() { local P=1; }; f", "$P"),
        ("P=1; while x; do P=$((P+1)); done", "$P"),
        ("P=1; printf -v P %s 2", "$P"),
        ("L=(a); L[3]=b", '"${L[*]}"'),
    ],
)
def test_values_only_a_run_knows(before: str, written: str) -> None:
    setting = last(f"{before}\nexport A={written}")
    assert not setting.known
    assert setting.written == written


def test_what_is_unset_is_gone() -> None:
    source = shell("export A=1\nunset A\ntorchrun x.py")
    assert source.setting("A") is None
    assert [setting.by for setting in source.settings] == ["export", "unset"]
    assert source.commands[-1].settings == ()


def test_arms_of_a_fork_are_told_apart() -> None:
    source = shell("export Z=0\nif x; then export A=1\nelse export A=2\nfi")
    nothing, one, two = (setting.arms for setting in source.settings)
    assert nothing == ()
    assert one[0][0] == two[0][0]
    assert one[0][1] != two[0][1]


def test_what_a_script_asks_for() -> None:
    source = shell('A=${A:-1}\nexport B="${C}"\necho $D > "$E"')
    assert source.reads == {"C", "D", "E"}


@pytest.mark.parametrize(
    ("text", "program", "names"),
    [
        ("export A=1\nB=2\nC=3 torchrun x.py", "torchrun", ["A", "C"]),
        ("A=1 ls\ntorchrun x.py", "torchrun", []),
        ("(export A=1)\ntorchrun x.py", "torchrun", []),
        ("export A=1 | cat\ntorchrun x.py", "torchrun", []),
        ("setup() { export A=1; }\nsetup\ntorchrun x.py", "torchrun", ["A"]),
        ("setup() { export A=1; }\ntorchrun x.py", "torchrun", []),
        ("export A=1\nbash -c 'torchrun x.py'", "torchrun", ["A"]),
        ("export A=1\nssh host torchrun x.py", "torchrun", []),
        ("export A=1 B=2\ndocker run -e A -e C=3 image torchrun x.py", "torchrun", ["A", "C"]),
        ("export A=1\nmpirun -x C=3 torchrun x.py", "torchrun", ["A", "C"]),
    ],
)
def test_what_a_command_finds(text: str, program: str, names: list[str]) -> None:
    (command,) = (one for one in shell(text).commands if one.name == program)
    assert [setting.name for setting in command.settings] == names
