"""What is typed behind `holdfast drill`: ours, the launcher's, the script's."""

from __future__ import annotations

import pytest

from holdfast.drill import asked
from holdfast.errors import ConfigError


@pytest.mark.parametrize(
    ("typed", "options", "script"),
    [
        ("train.py", "", "train.py"),
        ("--quick --nproc-per-node 4 train.py --all", "--nproc-per-node 4", "train.py --all"),
        ("--nproc_per_node=4 --all train.py", "--nproc_per_node=4", "train.py"),
        ("--faults rank-killed --standalone -m pkg.train --json", "--standalone -m",
         "pkg.train --json"),
        ("--json --keep --hosts 2 --nproc-per-node 2 t.py a b", "--nproc-per-node 2", "t.py a b"),
    ],
)  # fmt: skip
def test_each_word_goes_to_whom_it_is_for(typed: str, options: str, script: str) -> None:
    found = asked.parse(typed.split())
    assert " ".join(found.options) == options
    assert " ".join(found.script) == script


def test_quick_is_the_default_and_waits_less() -> None:
    quick, everything, named = (
        asked.parse(words.split()) for words in ("t.py", "--all t.py", "--faults a,b t.py")
    )
    assert (quick.everything, everything.everything) == (False, True)
    assert quick.patience < everything.patience == named.patience
    assert named.faults == ("a", "b")
    assert asked.parse(["--patience", "3", "t.py"]).patience == 3


@pytest.mark.parametrize(
    ("typed", "saying"),
    [
        ("", "needs the script"),
        ("--quick --nproc-per-node 4", "needs the script"),
        ("--patience 0 t.py", "--patience must be > 0"),
        ("--patience nan t.py", "--patience must be > 0"),
        ("--hosts 9 t.py", "--hosts must be 1 to 4"),
    ],
)
def test_bad_input_is_one_sentence(typed: str, saying: str) -> None:
    with pytest.raises(ConfigError, match=saying):
        asked.parse(typed.split())


def test_the_launchers_options_can_be_asked_for() -> None:
    found = asked.parse(["--nproc_per_node=4", "--standalone", "t.py"])
    assert found.option("--nproc-per-node") == "4"
    assert found.option("--standalone") == ""
    assert found.option("--nnodes") is None
