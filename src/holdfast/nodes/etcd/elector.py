"""One launcher's part in the election: its registration, its lease, its candidacy.

A thread keeps the leases alive, and puts back what expired while etcd could not be reached. It
never ends anything: `overruled` and `unproven` say how this node stands.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.nodes.etcd.client import Absent, EtcdClient, Put, StoredValue, Unchanged
from holdfast.nodes.etcd.election import (
    JOB_LEASE,
    LEASE,
    Await,
    ElectedNode,
    ElectionCandidate,
    ElectionKeys,
    ElectionView,
    Follow,
    JobEnded,
    KeptJob,
    RegisteredNode,
    StandForElection,
    keys_of,
    next_move,
    view_of,
)
from holdfast.nodes.etcd.etcd_errors import EtcdError, EtcdUnreachable

RENEW_EVERY = LEASE / 4
SAID_AFTER = 4.0
"""seconds without an answer before the user is told: a new leader is elected within two"""


class Elected(NamedTuple):
    """This node coordinates; no node joins before `announce`."""

    token: str
    round: int
    """the newest of the job before this election; 0 when none has started"""
    carried: Mapping[str, Any]
    took_over: bool


Say = Callable[[str], None]


class Elector:
    """`say` is called from its thread as well."""

    def __init__(
        self, client: EtcdClient, run_id: str, name: str, identity: str, *, token: str, say: Say
    ) -> None:
        """`token`: '' to have one made for the run and handed over by etcd."""
        self._client = client
        self._keys: ElectionKeys = keys_of(run_id)
        self._me = ElectionCandidate(name, identity)
        self._given_token = token
        self._say = say
        self._lock = threading.Lock()
        """guards what follows; never held while etcd is asked"""
        self._lease = 0
        self._renewed_at = 0.0
        self._job: KeptJob | None = None
        self._coordinates: ElectedNode | None = None
        self._unsaved = False
        self._overruled = ""
        self._proven: Callable[[float], None] = lambda _: None
        self._settled_from = -math.inf
        """since then launchers that run have had the time to put back what etcd had forgotten"""
        self._registered_job = ""
        self._outage = _Outage(say)
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    # --- asked by the launcher -----------------------------------------------------------------

    def campaign(self) -> Elected | Follow | Await | JobEnded:
        """One try; ask again after a moment while it is Await.

        Raises:
            EtcdUnreachable: it may pass.
            EtcdError: it does not.
        """
        try:
            self._register()
            view = self._view()
        except EtcdUnreachable:
            self._settled_from = math.inf
            raise
        if self._settled_from == math.inf:
            self._settled_from = _now() + LEASE
        settled = _now() >= self._settled_from
        move = next_move(view, self._me, self._keys, settled=settled)
        if isinstance(move, StandForElection):
            return self._stand(move)
        if isinstance(move, Follow):
            with self._lock:
                self._coordinates, self._job = None, view.job
        return move

    def announce(self, addresses: tuple[str, ...], port: int) -> None:
        """This node coordinates and listens: the others may come."""
        with self._lock:
            assert self._coordinates
            self._coordinates = msgspec.structs.replace(
                self._coordinates, addresses=addresses, port=port
            )
            self._unsaved = True
        self._wake.set()

    def publish(self, number: int, carried: Mapping[str, Any]) -> None:
        """As the coordinator: what the next one has to know. Written soon; never waits."""
        self.in_round(number)
        with self._lock:
            if self._job is None or not self._coordinates:
                return
            self._job = msgspec.structs.replace(self._job, round=number, carried=dict(carried))
            self._unsaved = True
        self._wake.set()

    def in_round(self, number: int) -> None:
        """Ranks of this node are in it: from here on this node keeps the job, and may take over."""
        with self._lock:
            if self._job is not None:
                known = max(number, self._job.round)
                self._job = msgspec.structs.replace(self._job, round=known)
                self._me = self._me._replace(job=self._job.id, round=number)
        self._wake.set()

    @property
    def overruled(self) -> str:
        """Who coordinates instead of this node; '' while none does."""
        return self._overruled

    def unproven(self) -> bool:
        """Another may have been elected: etcd has not confirmed our lease within its time."""
        with self._lock:
            return _now() - self._renewed_at >= LEASE

    def tell_proof(self, proven: Callable[[float], None]) -> None:
        """While this node coordinates: `proven` is told until when of CLOCK_BOOTTIME no other can
        have been elected, now and by this elector's thread whenever that has moved on."""
        self._proven = proven
        self._tell_proof()

    def _tell_proof(self) -> None:
        with self._lock:
            until, proven = self._renewed_at + LEASE, self._coordinates and not self._overruled
        if proven:
            self._proven(until)

    def step_down(self) -> None:
        """This node does not coordinate any more: the next may be elected at once."""
        with self._lock:
            self._coordinates, self._overruled = None, ""
            lease, self._lease = self._lease, 0
        if lease:
            with contextlib.suppress(EtcdError):
                self._client.revoke(lease)

    def end_job(self, why: str) -> None:
        """As the coordinator, at its end: no node is to take over. The job of another that was
        elected meanwhile stays as it is."""
        with self._lock:
            job, mine = self._job, self._coordinates
        if job and mine and not self._overruled:
            ended = msgspec.structs.replace(job, ended=why)
            with contextlib.suppress(EtcdError):  # then it is forgotten in half a minute
                self._change_as(mine, (Put(self._keys.job, _json(ended), job.lease),))
                with self._lock:
                    self._job = None

    def close(self) -> None:
        """This launcher ends; where it coordinated, another may be elected at once."""
        self._closing = True
        self._wake.set()
        if self._thread:
            self._thread.join(10)
        self.step_down()

    # --- inside --------------------------------------------------------------------------------

    def _view(self) -> ElectionView:
        return self._read()[1]

    def _read(self) -> tuple[Mapping[str, StoredValue], ElectionView]:
        found = self._client.read(self._keys.prefix)
        try:
            return found, view_of(found, self._keys)
        except ValueError as problem:  # msgspec's are
            raise EtcdError(
                f"what etcd holds below {self._keys.prefix} cannot be read: {problem}",
                hint="use the same version of holdfast on every node, or another --rdzv-id",
            ) from None

    def _register(self) -> None:
        """Under a lease of ours, which the thread keeps from here on."""
        if not self._lease:
            asked = _now()
            lease = self._client.grant(LEASE)
            self._client.change((), (self._own_entry(lease),))
            with self._lock:
                self._lease, self._renewed_at = lease, asked
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep, name="etcd-lease", daemon=True)
            self._thread.start()

    def _own_entry(self, lease: int) -> Put:
        entry = _json(RegisteredNode(name=self._me.name, job=self._me.job))
        return Put(self._keys.node(self._me.identity), entry, lease)

    def _stand(self, move: StandForElection) -> Elected | Await:
        job = move.job or KeptJob(
            id=secrets.token_hex(8),
            lease=self._client.grant(JOB_LEASE),
            token="" if self._given_token else secrets.token_hex(32),
        )
        me = ElectedNode(name=self._me.name, identity=self._me.identity, job=job.id)
        lease = self._lease
        writes = [Put(self._keys.coordinator, _json(me), lease)]
        if move.job is None:
            writes.append(Put(self._keys.job, _json(job), job.lease))
        if not self._client.change(move.only_if, writes):
            return Await("another node was elected at the same moment")
        with self._lock:
            self._coordinates, self._job, self._overruled = me, job, ""
        return Elected(job.token, job.round, job.carried, took_over=job.round > 0)

    def _keep(self) -> None:
        while not self._closing:
            asked = _now()
            try:
                if self._renew():
                    self._tell_proof()
                    self._save()
                    self._outage.over()
            except Exception as problem:  # noqa: BLE001 - whatever it is: leases are kept on
                self._outage.began(asked, problem, coordinates=bool(self._coordinates))
            self._wake.wait(RENEW_EVERY)
            self._wake.clear()

    def _renew(self) -> bool:
        """Whether there was anything to renew."""
        with self._lock:
            lease, mine = self._lease, self._coordinates
        if not lease:
            return False
        self._keep_job()
        asked = _now()
        if self._client.keep_alive(lease):
            with self._lock:
                if self._lease == lease:
                    self._renewed_at = asked
            if (job := self._me.job) != self._registered_job:
                self._client.change((), (self._own_entry(lease),))
                self._registered_job = job
        else:
            self._put_back(mine)
        return True

    def _keep_job(self) -> None:
        """Who was in its newest round keeps it for an election, also while this one runs."""
        with self._lock:
            job, me, mine = self._job, self._me, self._coordinates
        if job is None or self._overruled or not (mine or me.round >= job.round > 0):
            return
        if self._client.keep_alive(job.lease):
            return
        if mine:
            lease = self._client.grant(JOB_LEASE)
        else:  # the coordinator may have put it back under another
            view = self._view()
            lease = view.job.lease if view.job and view.job.id == job.id else 0
        with self._lock:
            if lease and self._job and self._job.id == job.id:
                self._job = msgspec.structs.replace(self._job, lease=lease)
                self._unsaved = True

    def _put_back(self, mine: ElectedNode | None) -> None:
        """etcd was away for us so long that our lease ended. What we hold is still so, unless
        another took it meanwhile."""
        asked = _now()
        lease = self._client.grant(LEASE)
        conditions: list[Absent | Unchanged] = []
        writes = [self._own_entry(lease)]
        if mine:
            conditions.append(Absent(self._keys.coordinator))
            writes.append(Put(self._keys.coordinator, _json(mine), lease))
        if self._client.change(conditions, writes):
            with self._lock:
                self._lease, self._renewed_at, self._unsaved = lease, asked, True
        else:
            self._find_out(mine, lease, asked)

    def _find_out(self, mine: ElectedNode | None, lease: int, asked: float) -> None:
        """There is a coordinator already: ourselves, under a lease that lives, or another."""
        held = self._view().coordinator
        if held is not None and mine is not None and held.identity != mine.identity:
            self._client.change((), (self._own_entry(lease),))
            with self._lock:
                self._lease, self._renewed_at = lease, asked
                self._overruled = held.name

    def _save(self) -> None:
        """What changed since; only while we hold the key."""
        with self._lock:
            if not (self._unsaved and self._coordinates and self._job) or self._overruled:
                return
            mine, job, lease = self._coordinates, self._job, self._lease
            self._unsaved = False
        writes = (
            Put(self._keys.coordinator, _json(mine), lease),
            Put(self._keys.job, _json(job), job.lease),
        )
        done = False
        try:
            done = self._change_as(mine, writes)
        finally:
            with self._lock:
                self._unsaved |= not done

    def _change_as(self, mine: ElectedNode, writes: Sequence[Put]) -> bool:
        """Only while this node is the coordinator that etcd knows."""
        found, view = self._read()
        held = view.coordinator
        if held is None or held.identity != mine.identity:
            return False
        created = found[self._keys.coordinator].created
        return self._client.change((Unchanged(self._keys.coordinator, created),), writes)


class _Outage:
    """Tells the user once that etcd is away, and once that it is back."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._since = 0.0
        self._told = False

    def began(self, asked: float, problem: Exception, *, coordinates: bool) -> None:
        self._since = self._since or asked
        if self._told or _now() - self._since < SAID_AFTER:
            return
        self._told = True
        began = time.strftime("%H:%M:%S", time.localtime(time.time() - (_now() - self._since)))
        meaning = (
            "the job goes on, and no other node can take over until it is back"
            if coordinates
            else "this node goes on while it hears the coordinator"
        )
        why = problem.sentence if isinstance(problem, EtcdError) else repr(problem)
        self._say(f"etcd does not answer since {began}: {why}; {meaning}")

    def over(self) -> None:
        if self._told:
            self._say(f"etcd answers again, after {_now() - self._since:.0f} s")
        self._since, self._told = 0.0, False


def _json(entry: msgspec.Struct) -> str:
    return msgspec.json.encode(entry).decode()


def _now() -> float:
    """Time in which the machine was suspended counts: etcd counted it too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
