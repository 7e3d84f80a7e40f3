"""Members over real ssh: hosts of a lab with an sshd each, and what fails in practice."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.analysis.nodes import Absence
from holdfast.drill.lab import Host
from holdfast.errors import EnvironmentFailure
from holdfast.nodes.reach.hosts import from_option
from holdfast.nodes.reach.ssh import OverSsh, members_over_ssh
from tests.drill.lab.fixture import lab_or_skip
from tests.drill.lab.sshd import SshUser, new_key, serve_ssh
from tests.nodes.conversation import COORDINATOR, LONG, Answer, Ask, Messages, play
from tests.places import ROOT

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("ssh")]

SECONDS = 20.0
BAD = ("warning", "error")
CHECK = (
    sys.executable,
    "-m",
    "holdfast",
    "check",
    "--json",
    "--only",
    "peer-unreachable,node-lost",
)
NAMES = ("a", "well", "noisy", "jump", "inner", "key", "password", "stranger", "empty", "dead",
         "filtered", "hung", "missing", "endless")  # fmt: skip


class Site(NamedTuple):
    """`a` is where we are; the other hosts are named for what is the matter with them."""

    hosts: dict[str, Host]
    user: SshUser
    folder: Path

    def command(self) -> str:
        member = f"{shlex.quote(sys.executable)} -m tests.nodes.reach.member"
        return f"cd {ROOT} && exec {member} {self.folder}/$(uname -n).pid"

    def running(self) -> list[str]:
        """Hosts with a member, as it says itself, and the ssh clients of this user."""
        clients = [
            pid
            for pid in Path("/proc").iterdir()
            if pid.name.isdigit() and str(self.user.config).encode() in _command_line(pid)
        ]
        return [path.stem for path in self.folder.glob("*.pid")] + [pid.name for pid in clients]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with lab_or_skip() as lab:
        folder = tmp_path_factory.mktemp("ssh")
        user = SshUser(folder)
        hosts = {name: lab.host(name) for name in NAMES}
        home = folder / "home"
        home.mkdir()
        (home / ".bashrc").write_text("echo Welcome to the cluster; printf '\\0\\1'; seq 2000\n")
        serve_ssh(lab, hosts["well"], user)
        serve_ssh(lab, hosts["noisy"], user, f"SetEnv HOME={home}", port=2222)
        serve_ssh(lab, hosts["jump"], user, "MaxStartups 1:100:1")
        serve_ssh(lab, hosts["inner"], user)
        user.configure("inner", "ProxyJump jump")
        lab.link(hosts["a"], hosts["inner"]).drop()
        serve_ssh(lab, hosts["key"], user, key=new_key(folder / "other"))
        serve_ssh(lab, hosts["password"], user, "PubkeyAuthentication no")
        serve_ssh(lab, hosts["stranger"], user, known=False)
        user.configure("empty", f"HostName {hosts['empty'].address}")
        serve_ssh(lab, hosts["dead"], user)
        lab.link(hosts["a"], hosts["dead"]).drop()
        serve_ssh(lab, hosts["filtered"], user)
        lab.link(hosts["a"], hosts["filtered"]).drop(22)
        serve_ssh(lab, hosts["hung"], user, "ForceCommand sleep 1000")
        serve_ssh(lab, hosts["missing"], user, "ForceCommand exec no-such-holdfast")
        serve_ssh(lab, hosts["endless"], user, "ForceCommand yes")
        with hosts["a"].inside(), user.in_path():
            yield Site(hosts, user, folder)


@pytest.fixture(scope="module")
def outcome(site: Site) -> tuple[OverSsh, dict[str, Answer]]:
    """One start on all hosts at once; it takes as long as we wait for the silent ones."""
    names = "well,noisy:2222,inner,nowhere," + ",".join(NAMES[5:])

    async def scene() -> tuple[OverSsh, dict[str, Answer]]:
        async with members_over_ssh(
            from_option(names),
            site.command(),
            understands=Messages,
            me=COORDINATOR,
            seconds=SECONDS,
        ) as over:
            answers = {}
            for member in over.members:
                await member.channel.send(Ask(41))
                answers[member.name] = await member.channel.receive(seconds=LONG)
            return over, answers

    return play(scene())


def test_members_answer_past_banners_and_through_jump_hosts(
    outcome: tuple[OverSsh, dict[str, Answer]],
) -> None:
    over, answers = outcome
    assert answers == {name: Answer(42, name) for name in ("well", "noisy", "inner")}
    noise = {member.name: member.channel.noise for member in over.members}
    assert noise["noisy"].startswith("Welcome to the cluster")
    assert noise["well"] == ""


@pytest.mark.parametrize(
    ("name", "why", "hint"),
    [
        ("key", "it accepts no key of yours: root@", "ssh -v key true"),
        ("password", "it takes no keys, and wants a password: root@", "ssh -v password true"),
        (
            "stranger",
            "its host key is not known here; ssh shows it and asks: ",
            "ssh stranger true",
        ),
        ("empty", "nothing accepts ssh there: ssh: connect to host 10.", "ssh -v empty true"),
        ("nowhere", "its name does not resolve here: ssh: Could not", "getent hosts nowhere"),
        ("dead", "it cannot be reached: ssh: connect to host 10.", "ssh -v dead true"),
        ("filtered", "it does not answer: ssh: connect to host 10.", "ssh -v filtered true"),
        ("hung", "no answer over ssh within ", "ssh -v -o ConnectTimeout=10 hung true"),
        ("endless", "endless sent ", "ssh -v endless true"),
        ("missing", "there is no holdfast on it: ", "install holdfast there, or name the Python"),
    ],
)
def test_absences_quote_ssh(
    outcome: tuple[OverSsh, dict[str, Answer]], name: str, why: str, hint: str
) -> None:
    (absent,) = (absent for absent in outcome[0].absent if absent.name == name)
    assert absent.why.startswith(why)
    assert absent.hint.startswith(hint)


def test_what_ssh_said_is_quoted(outcome: tuple[OverSsh, dict[str, Answer]]) -> None:
    why = {absent.name: absent.why for absent in outcome[0].absent}
    assert "Permission denied (publickey" in why["key"]
    assert "Permission denied (password" in why["password"]
    assert "Connection refused" in why["empty"]
    assert "No route to host" in why["dead"]
    assert "Connection timed out" in why["filtered"]
    assert "not found" in why["missing"]


def test_nothing_is_left_behind(site: Site, outcome: tuple[OverSsh, dict[str, Answer]]) -> None:
    _until(lambda: not site.running(), site.running)


def test_a_host_that_answers_is_not_kept_waiting(site: Site) -> None:
    seen: list[str] = []

    async def scene() -> OverSsh:
        async with members_over_ssh(
            from_option("well,nowhere"),
            site.command(),
            understands=Messages,
            me=COORDINATOR,
            seconds=600,
            progress=lambda one: seen.append(one.name),
        ) as over:
            return over

    over = play(scene())
    assert [member.name for member in over.members] == ["well"]
    assert sorted(seen) == ["nowhere", "well"]


def test_a_jump_host_that_drops_connections_is_tried_again(site: Site) -> None:
    """Its sshd lets one at a time log in; with many hosts behind it, any sshd drops some."""
    inner = site.hosts["inner"].address
    names = ["inner1", "inner2", "inner3", "inner4"]
    for name in names:
        site.user.configure(name, f"HostName {inner}", "ProxyJump jump")

    async def scene() -> OverSsh:
        async with members_over_ssh(
            from_option(",".join(names)),
            site.command(),
            understands=Messages,
            me=COORDINATOR,
            seconds=60,
        ) as over:
            return over

    over = play(scene())
    assert (over.absent, [member.name for member in over.members]) == ([], names)


def test_a_changed_host_key_is_said(site: Site, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    well = next(
        line
        for line in site.user.known_hosts.read_text().splitlines()
        if line.startswith(f"{site.hosts['well'].address} ")
    )
    other = new_key(tmp_path / "k").with_suffix(".pub").read_text()
    known.write_text(f"{well.split()[0]} {other}")
    site.user.configure("changed", f"HostName {site.hosts['well'].address}")
    site.user.configure("changed", f"UserKnownHostsFile {known}")
    absent = _only_absence(site, "changed")
    assert absent.why.startswith("its host key is not the one that is known here: WARNING: REMOTE")
    assert absent.hint == "ssh-keygen -l -F changed"


def test_a_master_connection_in_the_background_holds_nothing_up(site: Site) -> None:
    """ControlMaster is common, and its background process outlives the ssh that started it."""
    site.user.configure(
        "shared",
        f"HostName {site.hosts['well'].address}",
        "ControlMaster auto",
        "ControlPersist 60",
        f"ControlPath {site.folder}/%C",
    )

    async def scene() -> list[str]:
        async with members_over_ssh(
            from_option("shared"),
            site.command(),
            understands=Messages,
            me=COORDINATOR,
            seconds=60,
        ) as over:
            return [member.name for member in over.members]

    try:
        assert play(scene()) == ["shared"]
        assert play(scene()) == ["shared"]
    finally:
        subprocess.run(["ssh", "-O", "exit", "shared"], capture_output=True, timeout=30, check=True)
    _until(lambda: not site.running(), site.running)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_members_end_when_we_are_killed(site: Site, number: int) -> None:
    code = """if True:
        import asyncio, sys
        from holdfast.nodes.reach.hosts import from_option
        from holdfast.nodes.reach.ssh import members_over_ssh
        from tests.nodes.conversation import COORDINATOR, Messages

        async def scene():
            async with members_over_ssh(
                from_option("well,inner"), sys.argv[1],
                understands=Messages, me=COORDINATOR, seconds=60,
            ) as over:
                print(*[member.name for member in over.members], flush=True)
                await asyncio.sleep(600)

        asyncio.run(scene())
    """
    driver = subprocess.Popen(
        [sys.executable, "-c", code, site.command()],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        text=True,
    )
    with driver:
        try:
            assert driver.stdout is not None
            assert driver.stdout.readline() == "well inner\n"
            assert {"well", "inner"} < set(site.running())
            driver.send_signal(number)
            driver.wait(30)
        finally:
            driver.kill()
    _until(lambda: not site.running(), site.running)


def test_check_names_the_hosts_of_a_file(site: Site, tmp_path: Path) -> None:
    """The whole way: `holdfast check --hostfile`, with one node behind a jump host and one gone. A
    name that only ssh's configuration knows is no fault of the nodes."""
    site.user.configure("gpu-1", f"HostName {site.hosts['well'].address}")
    hostfile = tmp_path / "my hosts"
    hostfile.write_text("gpu-1 slots=8\ninner slots=8  # behind a jump host\nempty slots=8\n")
    done = subprocess.run(
        [*CHECK, "--hostfile", str(hostfile)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    answer = json.loads(done.stdout)
    assert [node["name"] for node in answer["nodes"]] == ["gpu-1", "inner"]
    assert [(one["name"], one["hint"]) for one in answer["absent"]] == [
        ("empty", "ssh -v empty true")
    ]
    bad = {one["slug"]: one["summary"] for one in answer["findings"] if one["status"] in BAD}
    assert list(bad) == ["node-lost"]
    assert "Connection refused" in bad["node-lost"]
    assert done.returncode == 1
    _until(lambda: not site.running(), site.running)


def test_without_ssh_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    async def scene() -> None:
        async with members_over_ssh(
            from_option("a"), "true", understands=Messages, me=COORDINATOR, seconds=5
        ):
            pass

    with pytest.raises(EnvironmentFailure, match="needs ssh, which is not installed here"):
        asyncio.run(scene())


def _only_absence(site: Site, name: str) -> Absence:
    async def scene() -> OverSsh:
        async with members_over_ssh(
            from_option(name), site.command(), understands=Messages, me=COORDINATOR, seconds=60
        ) as over:
            return over

    (absent,) = play(scene()).absent
    return absent


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def _until(condition: Callable[[], object], seen: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, seen()
        time.sleep(0.02)
