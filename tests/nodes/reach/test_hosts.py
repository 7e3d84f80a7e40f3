"""What users write behind --hosts and into hostfiles, and what never reaches ssh."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.nodes.reach.hosts import HostSpec, from_file, from_option, labels


def named(spec: HostSpec) -> tuple[str, str, int | None, int | None]:
    return spec.name, spec.user, spec.port, spec.slots


def host(
    name: str, user: str = "", port: int | None = None, slots: int | None = None
) -> tuple[str, str, int | None, int | None]:
    return name, user, port, slots


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", [host("a")]),
        ("a,b,me@c:2222,[::1]", [host("a"), host("b"), host("c", "me", 2222), host("::1")]),
        ("a, b", [host("a"), host("b")]),
        ("10.0.0.1,10.0.0.2:22", [host("10.0.0.1"), host("10.0.0.2", port=22)]),
        ("me@[fe80::1%eth0]:2222", [host("fe80::1%eth0", "me", 2222)]),
        ("fd00::7", [host("fd00::7")]),
        ("node[01-02]", [host("node01"), host("node02")]),
        ("me@n[1,2]:22", [host("n1", "me", 22), host("n2", "me", 22)]),
        ("jane@corp.example@login", [host("login", "jane@corp.example")]),
        ("my_alias", [host("my_alias")]),
        ("gpu.example.org.", [host("gpu.example.org.")]),
        ("h:2201,h:2202", [host("h", port=2201), host("h", port=2202)]),
    ],
)
def test_hosts_of_the_option(text: str, hosts: list[object]) -> None:
    specs = from_option(text)
    assert [named(spec) for spec in specs] == hosts
    assert {spec.source for spec in specs} == {"--hosts"}


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        (
            "worker-1 slots=4\nworker-2 slots=4\n",
            [host("worker-1", slots=4), host("worker-2", slots=4)],
        ),
        ("# my nodes\n\na  # the first\n  b\t\n", [host("a"), host("b")]),
        ("a:8\nb:4\n", [host("a", slots=8), host("b", slots=4)]),
        ("a 8\n", [host("a", slots=8)]),
        ("me@a:2222 slots=8", [host("a", "me", 2222, 8)]),
        ("a slots=2 max_slots=4", [host("a", slots=2)]),
        ("a user=me port=2222", [host("a", "me", 2222)]),
        ("node[1-2] slots=8", [host("node1", slots=8), host("node2", slots=8)]),
        ("\ufeffa\r\nb\r\n", [host("a"), host("b")]),
        ("::1\n[fd00::7]:2222\n", [host("::1"), host("fd00::7", port=2222)]),
    ],
)
def test_hosts_of_a_file(text: str, hosts: list[object]) -> None:
    assert [named(spec) for spec in from_file(text, path="hosts.txt")] == hosts


def test_a_host_knows_its_line() -> None:
    specs = from_file("# x\na\n\nb\n", path="my/hosts")
    assert [spec.source for spec in specs] == ["my/hosts:2", "my/hosts:4"]


@pytest.mark.parametrize(
    ("text", "saying"),
    [
        ("-oProxyCommand=reboot", "is not a host name"),
        ("a,-v", "is not a host name"),
        ("a;reboot", "is not a host name"),
        ("$(reboot)", "is not a host name"),
        ("`reboot`", "is not a host name"),
        ("a|b", "is not a host name"),
        ("a\\b", "is not a host name"),
        ("a'b", "is not a host name"),
        ("a/b", "is not a host name"),
        ("hôte", "is not a host name"),
        ("a\0b", "is not a host name"),
        ("a" * 300, "is not a host name"),
        ("@a", "is not a user name"),
        ("-lroot@a", "is not a user name"),
        ("$(x)@a", "is not a user name"),
        ("me@", "is not a host name"),
        ("a:", "must be from 1 to 65535"),
        ("a:0", "must be from 1 to 65535"),
        ("a:65536", "must be from 1 to 65535"),
        ("a:ssh", "must be from 1 to 65535"),
        ("a:²", "must be from 1 to 65535"),
        ("[::1", "is not closed"),
        ("[not:six]", "no IPv6 address"),
        ("[fe80::1%-x]", "no IPv6 address"),
        ("1:2:3", "is not a host name"),
        ("", "names no host"),
        (" , ", "names no host"),
        ("a,b,a", "a is named twice"),
        ("a,me@A", "A is named twice"),
        ("n[1-3],n2", "n2 is named twice"),
        ("n[1-9999999]", "more than"),
    ],
)
def test_what_is_no_host_is_refused(text: str, saying: str) -> None:
    with pytest.raises(ConfigError, match=saying) as refused:
        from_option(text)
    assert "--hosts" in refused.value.sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a\n-v\n", "hosts:2: '-v' is not a host name"),
        ("a slots=many", "hosts:1: slots must be from 1 to 65536, got 'many'"),
        ("a slots=0", "hosts:1: slots must be from 1 to 65536, got '0'"),
        ("a gpus=8", "hosts:1: cannot read 'gpus=8'"),
        ("a port=-1", "hosts:1: port must be from 1 to 65535"),
        ("a user=-x", "hosts:1: '-x' is not a user name"),
        ("a,b", "hosts:1: 'a,b' names several hosts; write one a line"),
        ("a\nb\na\n", "hosts:3: a is named twice; hosts:1 has it too"),
        ("# nothing\n", "hosts names no host"),
    ],
)
def test_a_bad_line_is_named(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        from_file(text, path="hosts")
    assert refused.value.sentence.startswith(sentence)


def test_a_file_with_a_line_for_every_rank_gets_a_command_that_helps() -> None:
    with pytest.raises(ConfigError) as refused:
        from_file("a\na\n", path="my hosts")
    assert refused.value.hint == "sort -u 'my hosts' > nodes.txt"


def test_labels_are_unique() -> None:
    assert labels(from_option("a,h:2201,h:2202,me@b:22")) == ["a", "h:2201", "h:2202", "b"]


def test_what_ssh_is_told() -> None:
    (spec,) = from_option("me@c:2222")
    assert spec.ssh_arguments() == ["-p", "2222", "-l", "me", "--", "c"]
    assert spec.command("-v") == "ssh -v -p 2222 me@c true"


@given(st.text(max_size=40), st.booleans())
def test_no_text_becomes_an_option_or_a_command(text: str, in_file: bool) -> None:
    try:
        specs = from_file(text, path="f") if in_file else from_option(text)
    except ConfigError:
        return
    for spec in specs:
        for word in (spec.name, spec.user):
            assert not word.startswith("-")
            assert not set(word) & set(" \t\n;&|<>()$`\\\"'*?!{}#~/")
