"""The coordinator's side of the other nodes: takes in what they say, forms rounds, gives orders.

On the agent's one thread, as the watch that asks it (run/watch/peers.py); nothing here blocks but
`next_round`, which waits for nodes.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from holdfast import text
from holdfast.analysis.scene.node_view import Farewell, PathProbes
from holdfast.nodes.probing.messages import ProbeReply, ProbeRequest
from holdfast.nodes.probing.station import ProbeStation
from holdfast.run.launch import exit_codes
from holdfast.run.nodes.link.interface import CoordinatorLink, Heard, NodeJoined, NodeSaid
from holdfast.run.nodes.messages import (
    AbortRanks,
    EndRound,
    JournalEntry,
    NodeCard,
    NodeReport,
    RanksGone,
    Ready,
    RoundStart,
    Say,
    TakeEvidence,
    ToLauncher,
    ToldToStop,
)
from holdfast.run.nodes.path_trials import PathTrials
from holdfast.run.nodes.round_source import (
    LOOPBACK,
    JobIsOver,
    OpenStore,
    RoundPlace,
    ToldToEnd,
    WaitInterrupted,
)
from holdfast.run.nodes.rounds import (
    NodesToGiveUp,
    RoundAwaited,
    RoundPolicy,
    Rounds,
    TooFewNodes,
)
from holdfast.run.nodes.start_gate import StartGate, addresses_of
from holdfast.run.watch.broadcast import ScreenLike
from holdfast.run.watch.peers import PeerState
from holdfast.view import run_screen

LOOK_AGAIN = 0.2
"""seconds between two looks while a round is awaited"""
JUST_JOINED = 0.5
"""seconds: what the link says of a node may still be about its launcher before"""
CAME_BACK = "it had lost the coordinator, ended its ranks, and has joined again"
_SECONDS = re.compile(r"\d+ s\b")
SAY_AFTER = 2.0
"""seconds of a wait before it is said: nodes that start together come within a moment"""
MISSED_AFTER = 10.0
"""seconds of waiting for nodes of a job that has not started yet, before that is a fault"""
SAY_AGAIN = 30.0
"""seconds between two lines about the same wait"""


class Coordination:
    """Is both `NodePeers` for the watch and `RoundSource` for the agent."""

    def __init__(
        self,
        link: CoordinatorLink,
        *,
        card: NodeCard,
        policy: RoundPolicy,
        screen: ScreenLike,
        gate: StartGate | None = None,
        earlier: RoundStart | None = None,
        saved: Callable[[], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`card` is this node's own; `gate` is asked before nodes start together, or None with
        --no-check; `earlier` the newest round of a coordinator before us;
        `saved` says which checkpoint of the job is the newest."""
        self._link, self._screen, self._saved, self._clock = link, screen, saved, clock
        self._card, self._own = card, card.name
        self._gate = gate
        self._trials = gate.trials if gate else PathTrials()
        self._station = ProbeStation()
        self._policy = policy
        self._rounds = Rounds(policy, own=card.name, current=earlier)
        self._rounds.joined(card.name, card)
        self._reached_us_at: dict[str, str] = {}
        self._joined_at: dict[str, float] = {}
        self._told: dict[str, tuple[ToldToStop, float]] = {}
        self._reports: dict[str, NodeReport] = {}
        self._unfit: dict[str, str] = {}
        """nodes that fail their own checks, and what was found there"""
        self._lost: dict[str, Heard] = {}
        """nodes of this round that were lost in it: a new launcher there has none of its ranks"""
        self._events: list[tuple[int, dict[str, Any]]] = []
        self._shown: tuple[object, ...] = ()
        self._shown_at = self._say_from = 0.0
        self._turned_away = 0

    # --- what comes ----------------------------------------------------------------------------

    def look(self, now: float) -> None:
        self._take_in_leases(now)
        for news in self._link.news():
            if isinstance(news, NodeJoined):
                self._take_in_node(news, now)
            elif isinstance(news, NodeSaid):
                self._take_in(news.node, news.message, now)
        refused = self._link.turned_away()
        for sentence in refused[self._turned_away :]:
            self._screen.say(sentence)
        self._turned_away = len(refused)
        for reply in self._station.replies():
            self._trials.heard(self._own, reply)
        if self._rounds.running:
            self._look_at_paths(now)

    def _look_at_paths(self, now: float) -> None:
        """Those that the watch suspects."""
        nodes = {name: addresses_of(card) for name, card in self._rounds.cards().items()}
        for node, request in self._trials.look(now, nodes):
            self._ask_to_probe(node, request)

    def _ask_to_probe(self, node: str, request: ProbeRequest) -> None:
        if node == self._own:
            self._station.ask(request)
        else:
            self._link.send(node, request)

    def _take_in_leases(self, now: float) -> None:
        for node, heard in self._link.heard().items():
            if heard.hearing != "lost" or now < self._joined_at.get(node, -1e9) + JUST_JOINED:
                continue
            self._rounds.lost(node)
            if self._rounds.member(node):
                self._lost[node] = heard
            if heard.fenced:
                self._rounds.fenced(node)

    def _take_in_node(self, news: NodeJoined, now: float) -> None:
        node = news.node
        if not news.resumed and self._rounds.member(node) and self._rounds.running:
            before = self._rounds.cards().get(node)
            same = before is not None and before.identity == news.card.identity
            farewell: Farewell = "left" if same else "closed"
            words = CAME_BACK if same else "its launcher was started again"
            self._lost.setdefault(node, Heard("lost", 0.0, farewell, words, True, True))
        self._rounds.joined(node, news.card, resumed=news.resumed)
        self._unfit.pop(node, None)
        stranger = "" if self._policy.guarded else other_job(news.card, self._card)
        if news.card.unfit and not stranger:
            self._unfit[node] = news.card.unfit
        if news.card.unfit or stranger:
            self._rounds.leave_out([node])
        self._reached_us_at[node] = news.reached_us_at
        if not news.resumed:
            self._joined_at[node] = now
            if self._gate and news.clock:
                self._gate.clocks[node] = news.clock
            ranks = text.counted(news.card.nproc, "rank")
            fails = f"{node} cannot start: {news.card.unfit}"
            if stranger:
                self._screen.say(f"{node} was refused: {stranger}")
                self._link.send(node, _refusal(f"{self._own} refused this node: {stranger}"))
            elif news.card.unfit:
                self._screen.say(fails)
                self.say([fails])
            else:
                self._screen.say(f"{node} has joined ({ranks})")

    def _take_in(self, node: str, message: object, now: float) -> None:
        if isinstance(message, NodeReport):
            if self._rounds.current and message.round == self._rounds.current.round:
                self._reports[node] = message
                self._events += message.events
        elif isinstance(message, Ready):
            self._rounds.ready(node, message.after)
            self._tell_spare(node)
        elif isinstance(message, RanksGone):
            self._rounds.ranks_gone(node, message.round)
        elif isinstance(message, ToldToStop):
            self._told.setdefault(node, (message, now))
        elif isinstance(message, ProbeReply):
            self._trials.heard(node, message)

    def _tell_spare(self, node: str) -> None:
        if self._rounds.running and node in self._rounds.waiting():
            assert self._rounds.current
            there = tuple(n.name for n in self._rounds.current.nodes)
            told = f"the job is running on {text.names(there)}: this node waits for the next round"
            self._link.send(node, Say(lines=(told,)))

    # --- rounds --------------------------------------------------------------------------------

    def next_round(self, open_store: OpenStore, told: ToldToEnd) -> RoundPlace:
        self._rounds.ended()
        self._say_from = self._clock() + SAY_AFTER
        self._rounds.ready(self._own, self._rounds.round_of(self._own))
        while True:
            now = self._clock()
            self.look(now)
            if told() is not None:
                raise WaitInterrupted
            self._end_if_a_user_says_so()
            self._look_before_start(now)
            outcome = self._rounds.form(now, unchecked=self._unchecked)
            if isinstance(outcome, RoundStart):
                return self._begin(outcome, open_store)
            if isinstance(outcome, NodesToGiveUp):
                self._give_up(outcome)
                continue
            if isinstance(outcome, TooFewNodes):
                self._end_job(outcome.sentence, exit_codes.STOPPED_BY_VERDICT, slug="join-timeout")
            self._show(outcome, now)
            self._link.wait(LOOK_AGAIN)

    def _look_before_start(self, now: float) -> None:
        fit = self._policy.most - len(self._unfit)
        if self._unfit and self._rounds.current is None and fit < self._policy.least:
            node, found = next(iter(self._unfit.items()))
            self._end_job(f"not started: {node} cannot start: {found}", exit_codes.CHECKS_FAILED)
        if self._gate is None:
            return
        news = self._gate.look(self._rounds.cards(), now)
        for node, request in news.requests:
            self._ask_to_probe(node, request)
        if news.lines:
            self._screen.say(news.lines)
            self.say(news.lines)
        if news.stop:
            self._screen.say("skip the checks with `holdfast run --no-check …` on every node")
            self._end_job(f"not started: {news.stop}", exit_codes.CHECKS_FAILED)
        self._rounds.leave_out(news.without)
        self._send(news.without, self._left_out(news.why))

    def _give_up(self, outcome: NodesToGiveUp) -> None:
        self._screen.say(f"going on without {text.names(outcome.nodes)}: {outcome.why}")
        for node in outcome.nodes:
            self._link.give_up(node, outcome.why)
            self._rounds.lost(node)

    def _unchecked(self, nodes: Sequence[str]) -> str:
        cards = self._rounds.cards()
        if self._gate is None or self._gate.passed({node: cards[node] for node in nodes}):
            return ""
        return f"checking the paths between {text.names(nodes)}"

    def _left_out(self, why: str) -> EndRound:
        return EndRound(
            round=self._rounds.current.round if self._rounds.current else 0,
            action="stop",
            exit_code=exit_codes.STOPPED_BY_VERDICT,
            reason=f"this node is left out: {why}",
            others_go_on=True,
        )

    def _begin(self, start: RoundStart, open_store: OpenStore) -> RoundPlace:
        others = [node.name for node in start.nodes if node.name != self._own]
        addresses = [self._reached_us_at[node] for node in others] or [LOOPBACK]
        # Most of them first: it is the one that this node's own ranks use.
        addresses.sort(key=lambda address: -addresses.count(address))
        start = msgspec.structs.replace(
            start, store_port=open_store(addresses, 0), saved=self._saved()
        )
        self._rounds.current = start
        self._told, self._reports, self._lost, self._events = {}, {}, {}, []
        self._shown = ()
        self._send(others, start)
        self._screen.say(_formed(start))
        for node in self._rounds.waiting():
            self._tell_spare(node)
        return RoundPlace(start, self._own, addresses[0])

    def _end_if_a_user_says_so(self) -> None:
        for node, (told, _) in self._told.items():
            if told.signal == "SIGINT":
                self._end_job(f"stopped by SIGINT on {node}", 130)

    def _end_job(self, sentence: str, exit_code: int, *, slug: str = "") -> NoReturn:
        """While no round runs; `slug`: of the fault."""
        self._screen.say(run_screen.named("verdict", slug, sentence) if slug else sentence)
        number = self._rounds.current.round if self._rounds.current else 0
        order = EndRound(round=number, action="stop", exit_code=exit_code, reason=sentence)
        self._send(self._here(), order)
        raise JobIsOver(sentence, exit_code)

    def _show(self, outcome: RoundAwaited, now: float) -> None:
        # Of a later round it was said already who is missing: as node-lost.
        first = self._rounds.current is None and outcome.too_few
        missed = first and now >= self._say_from - SAY_AFTER + MISSED_AFTER
        what = (outcome.present, outcome.missing, _SECONDS.sub("", outcome.sentence), missed)
        said = what == self._shown and now < self._shown_at + SAY_AGAIN
        if said or now < self._say_from:
            return
        self._shown, self._shown_at = what, now
        words = outcome.sentence
        words = run_screen.named("notice", "ranks-missing", words) if missed else words
        self._screen.say(words)
        self.say([words])

    # --- what the watch asks -------------------------------------------------------------------

    def round(self) -> RoundStart | None:
        return self._rounds.current

    def states(self) -> Mapping[str, PeerState]:
        heard = self._link.heard()
        return {node: self._state(node, heard.get(node)) for node in self._members()}

    def _state(self, node: str, heard: Heard | None) -> PeerState:
        heard = self._lost.get(node) or heard or Heard("heard", 0.0, "", "", None)
        told, told_at = self._told.get(node, (None, 0.0))
        return PeerState(
            hearing=heard.hearing,
            silent=heard.silent,
            farewell=heard.farewell,
            farewell_words=heard.words,
            machine_answers=heard.machine_answers,
            told=told,
            told_at=told_at,
            report=self._reports.get(node),
        )

    def new_events(self) -> list[tuple[int, dict[str, Any]]]:
        events, self._events = self._events, []
        return events

    def ask_for_evidence(self, number: int) -> None:
        if current := self._rounds.current:
            self._send(self._members(), TakeEvidence(round=current.round, number=number))

    def ask_for_probes(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._trials.want(pairs)

    def probes(self) -> PathProbes | None:
        return self._trials.newest

    def say(self, lines: Sequence[str], *, status: bool = False) -> None:
        nodes = self._members() if status else self._here()
        self._send(nodes, Say(lines=tuple(lines), status=status))

    def record(self, record: msgspec.Struct) -> None:
        document = msgspec.to_builtins(record, enc_hook=str)
        self._send(self._members(), JournalEntry(document=text.printable(document)))

    def abort(self, ranks: Sequence[int]) -> None:
        if current := self._rounds.current:
            self._send(self._members(), AbortRanks(round=current.round, ranks=tuple(ranks)))

    def end_round(self, order: EndRound, *, without: Sequence[str] = ()) -> None:
        self._rounds.ended()
        self._rounds.leave_out(without)
        if order.action != "restart":
            self._send(self._here(), order)
            return
        for node in self._members():
            self._link.send(node, self._left_out(order.reason) if node in without else order)

    def waiting_nodes(self) -> tuple[str, ...]:
        """As many as there is room for."""
        current = self._rounds.current
        room = self._policy.most - (len(current.nodes) if current else 0)
        return self._rounds.waiting()[: max(0, room)]

    def heard_until(self) -> float:
        """By the monotonic clock: when the first of the other nodes of this round is lost, if
        nothing more comes from any of them."""
        heard = self._link.heard()
        left = {node for node, state in self.states().items() if state.farewell == "left"}
        here = [heard[node].lost_at for node in self._members() if node in heard.keys() - left]
        return min(here, default=math.inf)

    def not_joined(self) -> frozenset[str]:
        """Other nodes of the newest round that this coordinator has not heard: that of another
        coordinator, after a takeover. Who has joined has ended its ranks before."""
        return frozenset(self._members()) - self._joined_at.keys()

    def can_do_without(self, nodes: Sequence[str]) -> bool:
        return self._rounds.enough_without(nodes)

    def close(self) -> None:
        self._station.close()
        self._link.close()

    # --- inside --------------------------------------------------------------------------------

    def _members(self) -> list[str]:
        """Every other node of the newest round."""
        nodes = self._rounds.current.nodes if self._rounds.current else ()
        return [node.name for node in nodes if node.name != self._own]

    def _here(self) -> list[str]:
        """Every other node that has joined, in a round or not; the link passes over lost ones."""
        return list(self._joined_at)

    def _send(self, nodes: Sequence[str], message: ToLauncher) -> None:
        for node in nodes:
            self._link.send(node, message)


def _refusal(reason: str) -> EndRound:
    return EndRound(round=0, action="stop", exit_code=exit_codes.STOPPED_BY_VERDICT, reason=reason)


def other_job(theirs: NodeCard, mine: NodeCard) -> str:
    """Why a launcher that anybody could have started belongs to another job; '' where nothing says
    so: arguments, and users of different machines, may differ."""
    script, own = (card.job.partition(" ")[0] for card in (theirs, mine))
    same_machine = theirs.boot_id and theirs.boot_id == mine.boot_id
    if script and own and script != own:
        what = f"it was started with {script}, this job with {own}"
    elif same_machine and None not in (theirs.uid, mine.uid) and theirs.uid != mine.uid:
        what = f"it was started by user {theirs.uid}, this job by user {mine.uid}"
    else:
        return ""
    return f"{what}; give each job another port, or all its nodes the same --rdzv-id NAME"


def _formed(start: RoundStart) -> str:
    """'attempt 1: 4 ranks on 2 nodes: a (0-1), b (2-3)'."""
    world = sum(node.nproc for node in start.nodes)
    spans = [
        f"{node.name} ({text.numbers(range(node.first_rank, node.first_rank + node.nproc))})"
        for node in start.nodes[:8]
    ]
    more = f" and {len(start.nodes) - 8} more" if len(start.nodes) > 8 else ""
    on = f"{text.counted(world, 'rank')} on {text.counted(len(start.nodes), 'node')}"
    return f"attempt {start.attempt}: {on}: {', '.join(spans)}{more}"
