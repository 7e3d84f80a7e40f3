from __future__ import annotations

import os
import pwd
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Process, Unread
from holdfast.redaction import redact
from holdfast.system.process import LONGEST_COMMAND, command_line, describe, user_name

WAITS = "print(1, flush=True); input()"


def test_this_very_process() -> None:
    me = describe(os.getpid())
    assert isinstance(me, Process)
    assert me.pid == os.getpid()
    assert me.parent == os.getppid()
    assert me.user == pwd.getpwuid(os.getuid()).pw_name
    assert "py" in me.command


def test_a_child_with_its_arguments_and_its_age() -> None:
    start = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", WAITS, "--lr", "0.1", "--hf-token", "correct horse"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        seen = describe(child.pid)
        assert isinstance(seen, Process)
        assert seen.command.endswith("--lr 0.1 --hf-token <redacted>")
        assert seen.parent == os.getpid()
        # the kernel counts starts in ticks of 1/100 s
        assert 0 <= seen.age <= time.monotonic() - start + 0.02


@pytest.mark.parametrize(("name", "shown"), [("trainer", "[trainer]"), ("a\x1b[31m", "[a [31m]")])
def test_a_zombie_has_no_command_line_but_a_name(name: str, shown: str) -> None:
    rename = "import sys; open('/proc/self/comm', 'w').write(sys.argv[1])"
    child = subprocess.Popen([sys.executable, "-c", rename, name])
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        seen = describe(child.pid)
        assert isinstance(seen, Process)
        assert seen.command == shown
    finally:
        child.wait()


def test_a_process_that_is_gone_is_unread() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    seen = describe(child.pid)
    assert isinstance(seen, Unread)
    assert f"process {child.pid} is gone" in seen.why


def test_an_unknown_user_is_a_number() -> None:
    assert user_name(0) == "root"
    assert user_name(3_999_999_999) == "3999999999"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["train.py", "--token", "abc"], "train.py --token <redacted>"),
        (["train.py", "--password=two words"], "train.py --password=<redacted>"),
        (["x", "--password", "two words", "--lr", "1"], "x --password <redacted> --lr 1"),
        (["env", "WANDB_API_KEY=abc", "python"], "env WANDB_API_KEY=<redacted> python"),
        (["sh", "-c", "HF_TOKEN=abc python x.py"], "sh -c HF_TOKEN=<redacted>"),
        (["sh", "-c", "x --api-key abc --lr 1"], "sh -c x --api-key <redacted> --lr 1"),
        (["train.py", "--use-auth-token", "--lr", "1"], "train.py --use-auth-token --lr 1"),
        (["x", "--tokenizer", "gpt2", "--max-tokens=9"], "x --tokenizer gpt2 --max-tokens=9"),
        (["x", "evil\x1b[31m\nline"], "x evil [31m line"),
        (["python", "-c", "pass\n" * 1000], "python -c <5000 characters>"),
    ],
)
def test_command_lines(arguments: list[str], shown: str) -> None:
    assert command_line(arguments) == shown


def test_a_long_command_is_cut_after_its_secrets_are_gone() -> None:
    line = command_line(["python", "x" * 70, "--token", "s3cret" * 20, "--more"])
    assert len(line) <= LONGEST_COMMAND
    assert "s3cret" not in line
    assert len(command_line(["y" * 500])) == LONGEST_COMMAND


@pytest.mark.parametrize(
    "secret_text",
    [
        "git clone https://kim:SECRET@example.com/x",
        "git clone https://SECRET@example.com/x",
        'curl -H "Authorization: Bearer SECRET" http://example.com',
        '{"password": "SECRET and more"}',
        "db: Server=x;Pwd=SECRET;",
        "login hf_abcdefSECRETghijkl",
        "login sk-abcdefghijklSECRETmnop",
        "aws_secret_access_key = SECRET",
        "run --private_key 'SECRET with spaces'",
    ],
)
def test_redact_removes_the_secret(secret_text: str) -> None:
    assert "SECRET" in secret_text
    assert "SECRET" not in redact(secret_text)


@pytest.mark.parametrize(
    "innocent",
    [
        "python -u train.py --lr 3e-4 --tokenizer gpt2 --max-tokens 100 --out /data/kim",
        "torchrun --nproc-per-node=4 --rdzv-endpoint=node-a:29500 train.py",
        "sk-learn-demo.py --author kim",
        "docker run -v $PWD:/work -w /work trainer",
        "https://example.com/a@b",
    ],
)
def test_redact_leaves_the_rest(innocent: str) -> None:
    assert redact(innocent) == innocent


@given(st.text(), st.sampled_from(["--token", "--db-password", "-api_key", "--HF-TOKEN"]))
def test_the_value_after_a_secret_option_never_shows(tail: str, option: str) -> None:
    value = "Zq7Zq7" + tail
    for arguments in ([option, value], [f"{option}={value}"]):
        assert "Zq7Zq7" not in command_line(arguments)


@given(st.lists(st.text(), max_size=5))
def test_any_command_line_is_short_and_printable(arguments: list[str]) -> None:
    line = command_line(arguments)
    assert len(line) <= LONGEST_COMMAND
    assert line.isprintable()
