"""`holdfast run --rdzv-backend etcd`: the nodes elect the one that coordinates, and the next one
when it is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.cli import run_job
from holdfast.cli.run_files import RunFiles

if TYPE_CHECKING:
    from holdfast.cli.run_nodes import NodeStart
    from holdfast.nodes.etcd.access import EtcdAccess
    from holdfast.nodes.etcd.election import Follow
    from holdfast.nodes.etcd.elector import Elected, Elector
    from holdfast.nodes.token import Token
    from holdfast.run.nodes.elected_roles import CoordinatorRole, MemberRole
    from holdfast.run.nodes.link.coordinator_link import ListeningLink
    from holdfast.run.nodes.link.launcher_link import JoinedLink
    from holdfast.run.nodes.takeover import CarriedJob
    from holdfast.run.watch.observer import Observer

JOIN_SECONDS = 2.5
"""to reach the coordinator at one of its addresses; then etcd is asked again"""
LISTEN_TRIES = 5
"""between finding a port free and listening there, another program may take it"""


def launch(here: NodeStart, access: EtcdAccess) -> int:
    from holdfast.nodes.etcd.client import EtcdClient
    from holdfast.nodes.etcd.elector import Elector
    from holdfast.run.nodes.elected import ElectedLauncher
    from holdfast.run.nodes.interface_rounds import InterfaceRounds

    roles = Roles(here)
    elector = Elector(
        EtcdClient(access),
        here.plan.job,
        here.name,
        roles.card.identity,
        token="given" if roles.given_token else "",
        say=here.screen.say,
    )
    roles.elector = elector
    launcher = ElectedLauncher(
        elector, roles, say=here.screen.say, join_timeout=here.meeting.join_timeout
    )
    here.screen.say(f"the nodes of {here.plan.job} meet in etcd at {access.in_words()}")
    code = run_job.OWN_FAILURE
    try:
        launcher.meet()
        assert roles.files
        rounds = InterfaceRounds(
            launcher, here.network, own_address=launcher.own_address, say=here.screen.say
        )
        code = run_job.conduct(
            here.flags, launcher, roles.files, rounds=rounds, settings=rounds.settings,
            fence=roles.fence,
        )  # fmt: skip
    finally:
        launcher.finish(code)
    return code


class Roles:
    """Makes this launcher the coordinator or a member, with one run folder for all of it."""

    elector: Elector

    def __init__(self, here: NodeStart) -> None:
        from holdfast.cli.run_card import node_card
        from holdfast.cli.run_nodes import given_token
        from holdfast.run.launch.rank_fence import RankFence
        from holdfast.run.nodes.joining import own_address_towards

        self._here = here
        self.fence = RankFence()
        self.given_token = given_token(here.meeting)
        self.card = node_card(here, towards=own_address_towards(here.resolved, here.plan.port))
        self.files: RunFiles | None = None
        self._run = ""
        self._observer: Observer | None = None

    def coordinate(self, elected: Elected) -> CoordinatorRole:
        from holdfast.cli.run_nodes import coordinated, new_run_id
        from holdfast.run.nodes import takeover
        from holdfast.run.nodes.elected_roles import CoordinatorRole

        here = self._here
        left = takeover.carried_job(elected.carried)
        if elected.took_over:
            left = self._taken_over(left)
        self._run = self._run or new_run_id(here)
        link = self._listen(self._token(elected.token))
        self.elector.announce(self.card.addresses or ("127.0.0.1",), link.port)
        here.screen.say(f"this node coordinates (elected in etcd), and listens at port {link.port}")
        files = self._files()
        coordination, watch = coordinated(
            here, link, self.card, files, earlier=left.newest, observer=self._observer
        )
        watch.restarts, watch.failures = left.restarts, left.failures
        watch.observer.saved = left.saved or watch.observer.saved
        self._observer = watch.observer
        role = CoordinatorRole(
            self.elector,
            coordination,
            watch,
            took_over=elected.took_over,
            least=here.meeting.least,
            fence=self.fence,
            say=here.screen.say,
        )
        link.end_with(role.lease.until)
        return role

    def _taken_over(self, left: CarriedJob) -> CarriedJob:
        """Says whether the job goes on; JobIsOver where no restart is left for it."""
        from holdfast.run.launch import exit_codes
        from holdfast.run.nodes import takeover
        from holdfast.run.nodes.round_source import JobIsOver

        left = takeover.with_loss(left)
        again = takeover.may_continue(left, run_job.policy_of(self._here.flags))
        self._here.screen.say(
            f"this node takes over: {again.reason}" if again.allowed else again.reason
        )
        if not again.allowed:
            self.elector.end_job(again.reason)
            raise JobIsOver(again.reason, exit_codes.STOPPED_BY_VERDICT)
        return msgspec.structs.replace(left, leaving="")

    def _listen(self, token: Token) -> ListeningLink:
        """On a port that the kernel gives to no outgoing connection; etcd tells the others."""
        from holdfast.nodes.channel_errors import CannotListen
        from holdfast.nodes.reach.meeting import EVERYWHERE
        from holdfast.run.launch import ports
        from holdfast.run.nodes.link.coordinator_link import ListeningLink

        for last_try in (*[False] * (LISTEN_TRIES - 1), True):
            with ports.listen_anywhere() as found:
                port = found.getsockname()[1]
            try:
                return ListeningLink(
                    EVERYWHERE,
                    port,
                    token=token,
                    node=self.card.name,
                    run=self._run,
                    rendezvous_id=self._here.plan.job,
                )
            except CannotListen:
                if last_try:
                    raise
        raise AssertionError("the last try returns or raises")

    def follow(self, elected: Follow) -> MemberRole:
        from holdfast.cli.run_nodes import member_watch
        from holdfast.run.nodes.elected_roles import ElectedMembership, MemberRole

        link = self._join(elected)
        name = link.admitted.name
        self._here.screen.say(f"joined {link.coordinator} as {name} (elected in etcd)")
        self.card = msgspec.structs.replace(self.card, name=name)
        self._run = self._run or link.admitted.run
        files = self._files()
        membership = ElectedMembership(
            link, screen=self._here.screen, journal=files.journal, fence=self.fence
        )
        watch = member_watch(membership, files, observer=self._observer)
        self._observer = watch.observer
        return MemberRole(link, membership, watch, say=self._here.screen.say)

    def _join(self, elected: Follow) -> JoinedLink:
        from holdfast.nodes.channel_errors import ChannelError
        from holdfast.run.nodes.link.launcher_link import JoinedLink

        coordinator = elected.coordinator
        *others, last = coordinator.addresses
        for address in (*others, last):
            try:
                return JoinedLink(
                    address,
                    coordinator.port,
                    token=self._token(elected.token),
                    card=self.card,
                    seconds=JOIN_SECONDS,
                    rendezvous_id=self._here.plan.job,
                )
            except ChannelError:  # noqa: PERF203 - a node has few addresses
                if address == last:
                    raise
        raise AssertionError("the last address returns or raises")

    def _token(self, from_etcd: str) -> Token:
        from holdfast.errors import ConfigError
        from holdfast.nodes.token import VARIABLE, token_from_etcd

        if self.given_token:
            return self.given_token
        if not from_etcd:
            raise ConfigError(
                "the other nodes of this run were given a token, and this one was not",
                hint=f"set {VARIABLE} to the same secret on every node",
            )
        return token_from_etcd(from_etcd)

    def _files(self) -> RunFiles:
        """Made when the run's id is known."""
        from holdfast.cli.run_nodes import name_run
        from holdfast.run.runs.folder import RunPart

        if self.files is None:
            here = self._here
            part = RunPart(node=self.card.name, run=self._run)
            self.files = RunFiles(here.flags, here.argv, here.screen, facts=here.facts, part=part)
            self.files.begin(here.flags, self.card.nproc, here.left)
            name_run(here.flags, self._run)
        return self.files
