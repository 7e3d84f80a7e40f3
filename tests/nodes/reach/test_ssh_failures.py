"""What ssh's words mean; each text is what OpenSSH prints."""

from __future__ import annotations

import pytest

from holdfast.nodes.reach.hosts import HostSpec, from_option
from holdfast.nodes.reach.ssh_failures import SshEnding, absence, worth_another_try

HOST = from_option("me@node-b:2222")[0]
BANNER = "*************\n* Authorised use only *\n*************\n"


@pytest.mark.parametrize(
    ("status", "stderr", "why", "hint"),
    [
        (
            255,
            f"{BANNER}me@node-b: Permission denied (publickey,gssapi-with-mic).\r\n",
            "it accepts no key of yours: me@node-b: Permission denied (publickey,gssapi-with-mic).",
            "ssh -v -p 2222 me@node-b true",
        ),
        (
            255,
            "me@node-b: Permission denied (password,keyboard-interactive).",
            "it takes no keys, and wants a password: me@node-b: Permission denied (password,",
            "ssh -v -p 2222 me@node-b true",
        ),
        (
            255,
            (
                "No ED25519 host key is known for [node-b]:2222 and you have requested strict"
                " checking.\r\nHost key verification failed.\r\n"
            ),
            "its host key is not known here; ssh shows it and asks: No ED25519 host key is known",
            "ssh -p 2222 me@node-b true",
        ),
        (
            255,
            (
                "@@@@@@@@@@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!  @\n@@@@@@\n"
                "Host key verification failed.\n"
            ),
            "its host key is not the one that is known here: WARNING: REMOTE HOST IDENTIFICATION",
            "ssh-keygen -l -F '[node-b]:2222'",
        ),
        (
            255,
            "ssh: Could not resolve hostname node-b: Temporary failure in name resolution",
            "its name does not resolve here: ssh: Could not resolve hostname node-b: Temporary",
            "getent hosts node-b",
        ),
        (
            255,
            (
                "ssh: connect to host jump port 22: Connection refused\n"
                "Connection closed by UNKNOWN port 65535\n"
            ),
            "nothing accepts ssh there: ssh: connect to host jump port 22: Connection refused",
            "ssh -v -p 2222 me@node-b true",
        ),
        (
            255,
            (
                "channel 0: open failed: administratively prohibited: open failed\n"
                "stdio forwarding failed\nkex_exchange_identification: Connection closed by remote"
            ),
            "nothing accepts ssh there: channel 0: open failed: administratively prohibited",
            "ssh -v -p 2222 me@node-b true",
        ),
        (
            255,
            "Connection timed out during banner exchange\nConnection to node-b port 22 timed out",
            "it does not answer: Connection timed out during banner exchange",
            "ssh -v -p 2222 me@node-b true",
        ),
        (
            255,
            "kex_exchange_identification: read: Connection reset by peer",
            "its sshd, or a jump host on the way, ended the connection: kex_exchange",
            "ssh -v -p 2222 me@node-b true",
        ),
        (
            255,
            "Bad owner or permissions on /home/me/.ssh/config",
            "ssh refuses its configuration here: Bad owner or permissions on",
            "ssh -v -p 2222 me@node-b true",
        ),
        (255, "something new", "ssh failed: something new", "ssh -v -p 2222 me@node-b true"),
        (
            255,
            "",
            "ssh exited with 255 and said nothing; the command may",
            "ssh -v -p 2222 me@node-b true",
        ),
        (
            127,
            "sh: 1: exec: holdfast: not found",
            "there is no holdfast on it: sh: 1: exec: holdfast: not found",
            "install holdfast there, or name the Python that has it: --remote-python PATH",
        ),
        (
            1,
            "/opt/py: No module named holdfast",
            "its Python has no holdfast: /opt/py: No module named holdfast",
            "install holdfast there",
        ),
        (
            2,
            "holdfast: error: unrecognized arguments: --member",
            "its holdfast does not know this command: another version?: holdfast: error",
            "ssh -p 2222 me@node-b holdfast --version",
        ),
        (
            1,
            "This account is currently not available.",
            "the account there runs no commands: This account",
            "ssh -v -p 2222 me@node-b true",
        ),
        (
            1,
            "Traceback (most recent call last):\n  x\nImportError: libx.so",
            "holdfast ended there with exit code 1: ImportError: libx.so",
            "ssh -p 2222 me@node-b holdfast check",
        ),
        (
            None,
            "",
            "no answer over ssh within 5 s",
            "ssh -v -o ConnectTimeout=10 -p 2222 me@node-b true",
        ),
        (
            None,
            "Warning: slow disk\n",
            "no answer over ssh within 5 s: Warning: slow disk",
            "ssh -v",
        ),
    ],
)
def test_meaning_and_next_command(status: int | None, stderr: str, why: str, hint: str) -> None:
    absent = absence(HOST, "node-b", SshEnding(status, stderr, 5.0))
    assert absent.name == "node-b"
    assert absent.why.startswith(why)
    assert absent.hint.startswith(hint)
    assert "StrictHostKeyChecking" not in absent.hint


def test_another_version_is_said_in_its_own_words() -> None:
    ending = SshEnding(None, "", 5.0, problem="node-b runs holdfast 9", hint="install the same")
    absent = absence(HostSpec("node-b"), "node-b", ending)
    assert (absent.why, absent.hint) == ("node-b runs holdfast 9", "install the same")


def test_control_characters_do_not_reach_the_screen() -> None:
    absent = absence(HostSpec("b"), "b", SshEnding(255, "\x1b[31mPermission denied\x07 (x)", 5.0))
    assert absent.why.isprintable()


def test_only_dropped_connections_are_tried_again() -> None:
    assert worth_another_try("kex_exchange_identification: Connection closed by remote host")
    assert worth_another_try("kex_exchange_identification: read: Connection reset by peer")
    assert not worth_another_try("ssh: connect to host b port 22: Connection refused")
    refused = "channel 0: open failed: connect failed: Connection refused\n"
    assert not worth_another_try(f"{refused}kex_exchange_identification: Connection closed by x")
    assert not worth_another_try("me@b: Permission denied (publickey).")
