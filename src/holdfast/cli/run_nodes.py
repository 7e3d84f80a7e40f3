"""`holdfast run` as one node of several: it coordinates, or joins the launcher that does."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli import run_job
from holdfast.cli.run_card import node_card
from holdfast.cli.run_files import RunFiles

if TYPE_CHECKING:
    from holdfast.analysis.machine import MachineFacts
    from holdfast.nodes.reach.meeting import MeetingPlan, MeetingRole
    from holdfast.nodes.token import Token
    from holdfast.run.launch.flags import RunFlags
    from holdfast.run.launch.node_flags import RunMeeting
    from holdfast.run.nodes.coordination import Coordination
    from holdfast.run.nodes.joining import MayChange
    from holdfast.run.nodes.link.interface import CoordinatorLink
    from holdfast.run.nodes.link.launcher_link import JoinedLink
    from holdfast.run.nodes.member_watch import MemberWatch
    from holdfast.run.nodes.membership import Membership
    from holdfast.run.nodes.messages import NodeCard, RoundStart
    from holdfast.run.nodes.round_source import ToldToEnd
    from holdfast.run.nodes.start_gate import StartGate
    from holdfast.run.runs.leftovers import EndedLeftovers
    from holdfast.run.watch.observer import Observer
    from holdfast.run.watch.watch import Watch
    from holdfast.view.run_screen import Screen

TOKEN_SECONDS = 5.0
"""how long a node looks for the coordinator's token on a file server"""


class NodeStart(NamedTuple):
    """All that this launcher knows before it meets the others."""

    flags: RunFlags
    meeting: RunMeeting
    argv: Sequence[str]
    screen: Screen
    facts: MachineFacts | None
    left: EndedLeftovers
    resolved: tuple[str, ...]
    """addresses of the meeting place, as this node sees them"""
    own: frozenset[str]
    """addresses of this node"""
    network: MachineFacts
    """for the choice of an interface; read also where the checks are not wanted"""
    unfit: str = ""
    """what the checks of this machine found, which keeps it from starting"""

    @property
    def plan(self) -> MeetingPlan:
        return self.meeting.plan

    @property
    def name(self) -> str:
        return self.plan.own_name or socket.gethostname()


def launch(
    flags: RunFlags,
    meeting: RunMeeting,
    argv: Sequence[str],
    screen: Screen,
    *,
    facts: MachineFacts | None,
    left: EndedLeftovers,
    unfit: str,
) -> int:
    from holdfast.check.readers.network import own_addresses
    from holdfast.cli import run_checks
    from holdfast.nodes.channel_errors import CannotListen
    from holdfast.nodes.reach.meeting import MeetingRole
    from holdfast.nodes.reach.run_meeting import meeting_doubt, misresolved
    from holdfast.run.launch.launch import nproc
    from holdfast.run.nodes.joining import ThisNodeIsMeant, resolve
    from holdfast.view import run_screen

    plan = meeting.plan
    for note in plan.notes:
        screen.say(note)
    resolved, _ = resolve(plan.host)
    own = own_addresses()
    network = facts or run_checks.look_first(flags, nproc(flags), run_checks.NETWORK)
    here = NodeStart(flags, meeting, argv, screen, facts, left, resolved, own, network, unfit)
    if unfit:
        from holdfast.cli import run_unfit

        return run_unfit.tell_others(here)
    if meeting.etcd:
        from holdfast.cli import run_etcd

        return run_etcd.launch(here, meeting.etcd)
    role, why = role_of(here)
    if role is MeetingRole.JOIN:
        try:
            return _join(here, why)
        except ThisNodeIsMeant as meant:
            here = here._replace(resolved=meant.resolved)
            role, why = role_of(here)
    if doubt := meeting_doubt(plan, resolved=here.resolved, own=here.own):
        screen.say(doubt)
    if wrong := misresolved(plan, resolved=here.resolved, own_name=here.name):
        screen.say(run_screen.named("notice", "hostname-misresolves", wrong))
        screen.say(f"hint: correct the line of {plan.host} in /etc/hosts here, or name an address")
    try:
        return _coordinate(here, why)
    except CannotListen as problem:
        if role is MeetingRole.COORDINATE_IF_FREE and problem.code == errno.EADDRINUSE:
            return _join(here, "another launcher of this machine coordinates")
        raise


def role_of(here: NodeStart) -> tuple[MeetingRole, str]:
    from holdfast.nodes.reach.meeting import is_address
    from holdfast.nodes.reach.run_meeting import run_role
    from holdfast.run.nodes.joining import own_names

    names = () if is_address(here.plan.host) else own_names()
    is_host = here.meeting.is_host
    return run_role(
        here.plan, resolved=here.resolved, own=here.own, own_names=names, is_host=is_host
    )


def _coordinate(here: NodeStart, why: str) -> int:
    from holdfast.nodes.reach.run_meeting import listen_addresses
    from holdfast.run.nodes.interface_rounds import InterfaceRounds
    from holdfast.run.nodes.link.coordinator_link import ListeningLink
    from holdfast.run.runs.folder import RunPart

    flags, meeting, plan, screen = here.flags, here.meeting, here.plan, here.screen
    addresses = listen_addresses(plan, resolved=here.resolved, own=here.own)
    card = node_card(here, towards=own_place(here))
    with token_of(here, coordinates=True) as token, contextlib.ExitStack() as closing:
        run = new_run_id(here)
        link = ListeningLink(
            addresses,
            plan.port,
            token=token,
            node=card.name,
            run=run,
            rendezvous_id=meeting.rdzv_id,
            terms=meeting.lease,
        )
        closing.callback(link.close)
        screen.say(f"coordinating {_span(meeting)} nodes at {plan.host}:{plan.port}, because {why}")
        screen.say(token.in_words())
        part = RunPart(node=card.name, run=run, coordinates=True)
        files = RunFiles(flags, here.argv, screen, facts=here.facts, part=part)
        files.begin(flags, card.nproc, here.left)
        guarded = token.proves or bool(meeting.rdzv_id or plan.names)
        coordination, watch = coordinated(here, link, card, files, guarded=guarded)
        closing.callback(coordination.close)
        name_run(flags, run)
        rounds = InterfaceRounds(
            coordination, here.network, own_address=lambda place: place.address, say=screen.say
        )
        return run_job.conduct(flags, watch, files, rounds=rounds, settings=rounds.settings)


def coordinated(
    here: NodeStart,
    link: CoordinatorLink,
    card: NodeCard,
    files: RunFiles,
    *,
    earlier: RoundStart | None = None,
    observer: Observer | None = None,
    guarded: bool = True,
) -> tuple[Coordination, Watch]:
    """`earlier`: the newest round of a coordinator before this one; `observer` as there was."""
    from holdfast.run.nodes.coordination import Coordination
    from holdfast.run.nodes.rounds import RoundPolicy
    from holdfast.run.watch.watch import Watch

    meeting = here.meeting
    coordination = Coordination(
        link,
        card=card,
        policy=RoundPolicy(
            least=meeting.least,
            most=meeting.most,
            expected=here.plan.names,
            join_timeout=meeting.join_timeout,
            last_call=meeting.last_call,
            guarded=guarded,
        ),
        screen=here.screen,
        gate=_gate(here, card.name, link.port),
        earlier=earlier,
        saved=lambda: watch.observer.newest_save(),  # noqa: PLW0108 - it is made below
    )
    watch = Watch(
        policy=run_job.policy_of(here.flags),
        journal=files.journal,
        screen=here.screen,
        places=files.places,
        memory_kills=run_job.memory_kills,
        peers=coordination,
        observer=observer,
    )
    return coordination, watch


def _join(here: NodeStart, why: str) -> int:
    from holdfast.nodes.channel_errors import ChannelError
    from holdfast.nodes.reach.meeting import MeetingRole
    from holdfast.run.launch import exit_codes
    from holdfast.run.launch.rank_fence import RankFence
    from holdfast.run.nodes.interface_rounds import InterfaceRounds
    from holdfast.run.nodes.joining import join_coordinator, own_address_towards
    from holdfast.run.nodes.membership import Membership
    from holdfast.run.runs.folder import RunPart

    flags, meeting, plan, screen = here.flags, here.meeting, here.plan, here.screen
    card = node_card(here, towards=own_address_towards(here.resolved, plan.port))
    screen.say(f"joining {plan.nodes} nodes at {plan.host}:{plan.port}: {why}")

    def is_meant(resolved: tuple[str, ...]) -> bool:
        """A name that did not resolve before may be this node's: role by role, decided again."""
        then = here._replace(resolved=resolved)
        return not here.resolved and bool(resolved) and role_of(then)[0] is not MeetingRole.JOIN

    def join(token: Token, may_change: MayChange) -> JoinedLink:
        return join_coordinator(
            plan,
            token=token,
            card=card,
            rendezvous_id=meeting.rdzv_id,
            seconds=meeting.join_timeout,
            own=here.own,
            say=screen.say,
            may_change=may_change,
        )

    def join_again(told: ToldToEnd) -> JoinedLink:
        screen.say(f"joining {plan.host}:{plan.port} again, for up to {meeting.join_timeout:.0f} s")
        return join(token, _handed_later(here)._replace(told=told))

    try:
        with token_of(here, coordinates=False) as token:
            link = join(token, _handed_later(here)._replace(is_meant=is_meant))
    except ChannelError as problem:
        screen.say(f"not started: {problem.sentence}")
        run_job.leave_error(problem.sentence, exit_codes.STOPPED_BY_VERDICT)
        return exit_codes.STOPPED_BY_VERDICT
    fence = RankFence()
    try:
        screen.say(f"joined {link.coordinator} as {link.admitted.name}")
        part = RunPart(node=link.admitted.name, run=link.admitted.run)
        files = RunFiles(flags, here.argv, screen, facts=here.facts, part=part)
        files.begin(flags, card.nproc, here.left)
        membership = Membership(
            link,
            screen=screen,
            journal=files.journal,
            fence=fence,
            join_again=join_again,
        )
        watch = member_watch(membership, files)
        name_run(flags, link.admitted.run)
        rounds = InterfaceRounds(
            membership, here.network, own_address=lambda _: membership.own_address, say=screen.say
        )
        return run_job.conduct(
            flags, watch, files, rounds=rounds, settings=rounds.settings, fence=fence
        )
    finally:
        link.close()


def member_watch(
    membership: Membership, files: RunFiles, *, observer: Observer | None = None
) -> MemberWatch:
    from holdfast.run.nodes.member_watch import MemberWatch

    return MemberWatch(
        membership,
        journal=files.journal,
        screen=files.screen,
        places=files.places,
        memory_kills=run_job.memory_kills,
        observer=observer,
    )


def _gate(here: NodeStart, own: str, port: int) -> StartGate | None:
    from holdfast.run.nodes.path_trials import PathTrials
    from holdfast.run.nodes.start_gate import StartGate

    if not here.flags.check:
        return None
    return StartGate(own=own, port=port, least=here.meeting.least, trials=PathTrials())


def _span(meeting: RunMeeting) -> str:
    return str(meeting.most) if meeting.least == meeting.most else f"{meeting.least}:{meeting.most}"


def new_run_id(here: NodeStart) -> str:
    from holdfast.run.runs.folder import new_id

    return new_id(here.flags.torchrun.training_script)


def name_run(flags: RunFlags, run: str) -> None:
    """The ranks of all nodes see one id, as under torchrun."""
    if flags.torchrun.rdzv_id == "none":
        flags.torchrun.rdzv_id = run


def own_place(here: NodeStart) -> str:
    """The coordinator's own address, where the meeting place names it."""
    return next((a for a in here.resolved if a in here.own and not a.startswith("127.")), "")


def given_token(meeting: RunMeeting) -> Token | None:
    """By the user, to all nodes."""
    from holdfast.nodes import token

    if meeting.token_file:
        return token.token_from_file(meeting.token_file)
    return token.token_from_environment(os.environ)


def _token_job(here: NodeStart) -> str:
    return f"run.{here.plan.job}"


def _handed_later(here: NodeStart) -> MayChange:
    """Node 0 of a Slurm step may start, and hand over its token, minutes after the others."""
    from holdfast.nodes.reach.shared_token import handed_token
    from holdfast.run.nodes.joining import NOTHING_CHANGES, MayChange

    if not here.plan.names or given_token(here.meeting):
        return NOTHING_CHANGES
    job = _token_job(here)
    return MayChange(lambda: handed_token(job, os.environ, seconds=0), waits_for_token=True)


@contextlib.contextmanager
def token_of(here: NodeStart, *, coordinates: bool) -> Iterator[Token]:
    """What the user gave to all nodes; else what node 0 of a Slurm step hands over; else none.

    The open one is the same for all runs: nodes may name one place by name and by address. Runs
    are kept apart by their rendezvous id.
    """
    from holdfast.nodes import token
    from holdfast.nodes.reach.shared_token import handed_token, offered_token

    none = token.open_token("holdfast run")
    job = _token_job(here)
    if given := given_token(here.meeting):
        yield given
    elif not here.plan.names:
        yield none
    elif coordinates:
        with offered_token(job, os.environ) as offered:
            yield offered or none
    else:
        yield handed_token(job, os.environ, seconds=TOKEN_SECONDS) or none
