"""The few things that an election needs of etcd: one snapshot, one transaction, leases.

Several endpoints are members of one cluster: the one that answered last is asked first, the others
when it does not. Every call ends within its deadline. Thread-safe: calls share nothing but which
member answered last.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from holdfast.nodes.channel_errors import endpoint as in_words
from holdfast.nodes.etcd import gateway
from holdfast.nodes.etcd.access import USER, EtcdAccess
from holdfast.nodes.etcd.etcd_errors import (
    EtcdDenied,
    EtcdError,
    EtcdTooOld,
    EtcdUnreachable,
    LeaseExpired,
    NoLeader,
    NotEtcd,
)

T = TypeVar("T")

SECONDS, OTHERS_SECONDS, HEALTH_SECONDS = 2.0, 1.0, 0.5
"""for the member that answered last, for each other one, and for whether one has a leader: with
three members a call ends within 6 s, before a lease does"""
_UNAVAILABLE = (503, 504, 500)
_NO_LEASE, _BAD_TOKEN = "requested lease not found", "invalid auth token"
_DENIED = (
    "user name is empty",
    "authentication failed",
    "permission denied",
    "user name not found",
)
PREFIXES = {(3, 3): "/v3beta"}
OLDEST = (3, 3)


class StoredValue(NamedTuple):
    value: str
    created: int
    """the revision of etcd at which this key came to be"""
    changed: int
    lease: int


class Absent(NamedTuple):
    key: str


class Unchanged(NamedTuple):
    """It is the same key as then, whatever its value."""

    key: str
    created: int


class Put(NamedTuple):
    key: str
    value: str
    lease: int = 0


class Delete(NamedTuple):
    key: str


class EtcdClient:
    def __init__(self, access: EtcdAccess) -> None:
        self.access = access
        self._tls = gateway.context(access)
        self._prefix = ""
        self._token = ""
        self._last_good = 0

    def version(self) -> str:
        """The first thing to ask: whether etcd is there, and speaks to us."""
        return self._some_member(self._version)

    def read(self, prefix: str) -> dict[str, StoredValue]:
        """All keys that begin so, as of one moment that is not older than this call."""
        first = prefix.encode()
        after = first[:-1] + bytes([first[-1] + 1])
        document = self._call("/kv/range", {"key": _coded(first), "range_end": _coded(after)})
        with self._understood():
            return {_plain(found["key"]): _stored(found) for found in document.get("kvs", ())}

    def change(self, only_if: Sequence[Absent | Unchanged], then: Sequence[Put | Delete]) -> bool:
        """All of it or nothing; whether it was done."""
        question = {
            "compare": [_condition(one) for one in only_if],
            "success": [_operation(one) for one in then],
        }
        return bool(self._call("/kv/txn", question).get("succeeded"))

    def grant(self, seconds: int) -> int:
        document = self._call("/lease/grant", {"TTL": str(seconds)})
        with self._understood():
            return int(document["ID"])

    def keep_alive(self, lease: int) -> bool:
        """False when etcd knows no such lease any more."""
        answer = self._call("/lease/keepalive", {"ID": str(lease)})
        with self._understood():
            return int(answer.get("result", {}).get("TTL", 0)) > 0

    def revoke(self, lease: int) -> None:
        """Its keys go with it; one that is gone already is fine."""
        self._call("/lease/revoke", {"ID": str(lease)}, missing_is_fine=True)

    @contextlib.contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except (AttributeError, LookupError, TypeError, ValueError) as problem:
            raise NotEtcd(
                f"{self.access.in_words()} answers, but not as etcd does: {problem!r}"
            ) from None

    # --- one question, several members ---------------------------------------------------------

    def _call(
        self, path: str, question: Mapping[str, Any], *, missing_is_fine: bool = False
    ) -> dict[str, Any]:
        def ask(where: tuple[str, int], seconds: float) -> dict[str, Any]:
            answer = self._authorised(where, path, question, seconds)
            if answer.status == 404 and missing_is_fine:
                return {}
            return _good(in_words(*where), answer, self.access)

        return self._some_member(ask)

    def _some_member(self, ask: Callable[[tuple[str, int], float], T]) -> T:
        problems: list[EtcdError] = []
        count = len(self.access.endpoints)
        for turn in range(count):
            number = (self._last_good + turn) % count
            where = self.access.endpoints[number]
            try:
                answer = ask(where, OTHERS_SECONDS if turn else SECONDS)
            except LeaseExpired:
                raise
            except EtcdUnreachable as problem:
                problems.append(self._without_a_leader(where, problem))
            except NotEtcd as problem:
                problems.append(problem)
            else:
                self._last_good = number
                return answer
        raise _worst(problems)

    def _without_a_leader(self, where: tuple[str, int], problem: EtcdUnreachable) -> EtcdError:
        """A member that has no majority takes questions and answers none of them."""
        if isinstance(problem, NoLeader):
            return problem
        try:
            answer = gateway.ask(where, "/health", tls=self._tls, seconds=HEALTH_SECONDS)
        except EtcdError:
            return problem
        if str(answer.document.get("health")) == "false":
            return _no_leader(in_words(*where))
        return problem

    def _authorised(
        self, where: tuple[str, int], path: str, question: Mapping[str, Any], seconds: float
    ) -> gateway.GatewayAnswer:
        if not self._prefix:
            self._version(where, seconds)
        if self.access.user and not self._token:
            self._log_in(where, seconds)
        answer = self._post(where, path, question, seconds)
        if _BAD_TOKEN in str(answer.document.get("error", "")):  # they last five minutes
            self._log_in(where, seconds)
            answer = self._post(where, path, question, seconds)
        return answer

    def _post(
        self, where: tuple[str, int], path: str, question: Mapping[str, Any], seconds: float
    ) -> gateway.GatewayAnswer:
        return gateway.ask(
            where,
            self._prefix + path,
            dict(question),
            tls=self._tls,
            seconds=seconds,
            token=self._token,
        )

    def _log_in(self, where: tuple[str, int], seconds: float) -> None:
        self._token = ""
        who = {"name": self.access.user, "password": self.access.password}
        answer = self._post(where, "/auth/authenticate", who, seconds)
        if "authentication is not enabled" in str(answer.document.get("error", "")):
            return
        self._token = str(_good(in_words(*where), answer, self.access).get("token", ""))

    def _version(self, where: tuple[str, int], seconds: float) -> str:
        name = in_words(*where)
        answer = gateway.ask(where, "/version", tls=self._tls, seconds=seconds)
        version = answer.document.get("etcdserver")
        if not isinstance(version, str):
            raise NotEtcd(
                f"{name} answers over HTTP, but it is not etcd: it has no /version of etcd's kind",
                hint="check --rdzv-endpoint: it must be a client address of etcd (port 2379)",
            )
        number = _number(version)
        if number < OLDEST:
            raise EtcdTooOld(
                f"etcd {version} at {name} has no v3 API over HTTP",
                hint="holdfast needs etcd 3.3 or later; or use `--rdzv-backend c10d`",
            )
        self._prefix = PREFIXES.get(number, "/v3")
        return version


def _worst(problems: Sequence[EtcdError]) -> EtcdError:
    """What is wrong for good comes before what may pass; with several members all are named."""
    chosen = next((one for one in problems if not isinstance(one, EtcdUnreachable)), None)
    chosen = chosen or next((one for one in problems if isinstance(one, NoLeader)), problems[0])
    if len(problems) == 1 or type(chosen) is not EtcdUnreachable:
        return chosen
    return EtcdUnreachable("; ".join(one.sentence for one in problems))


def _good(name: str, answer: gateway.GatewayAnswer, access: EtcdAccess) -> dict[str, Any]:
    """The answer, or the sentence for what etcd says instead."""
    if answer.status == 200:
        return answer.document
    said = str(answer.document.get("error") or answer.document.get("message") or "")
    if any(words in said for words in _DENIED):
        raise _denied(name, said, access)
    if _NO_LEASE in said:
        raise LeaseExpired(f"{name}: {said}")
    if "no leader" in said:
        raise _no_leader(name)
    if answer.status in _UNAVAILABLE:
        raise EtcdUnreachable(f"{name}: {said or f'HTTP status {answer.status}'}")
    if answer.status == 404 and not said:
        raise EtcdTooOld(
            f"etcd at {name} does not offer its v3 API over HTTP",
            hint="start etcd with `--enable-grpc-gateway`, or use `--rdzv-backend c10d`",
        )
    raise EtcdError(f"{name}: {said or f'HTTP status {answer.status}'}")


def _no_leader(name: str) -> NoLeader:
    return NoLeader(
        f"etcd at {name} has no leader: fewer than a majority of its members see each other",
        hint=f"`etcdctl --endpoints {name} endpoint status --cluster`",
    )


def _denied(name: str, said: str, access: EtcdAccess) -> EtcdDenied:
    words = said.removeprefix("etcdserver: ")
    if not access.user:
        return EtcdDenied(
            f"etcd at {name} wants a user: {words}", hint=f"export {USER}=NAME:PASSWORD"
        )
    if "permission" in words:
        return EtcdDenied(
            f"etcd at {name} does not let user {access.user} use the keys below /holdfast/",
            hint="etcdctl role grant-permission ROLE --prefix=true readwrite /holdfast/",
        )
    return EtcdDenied(f"etcd at {name}: {words} (user {access.user}, {USER})")


def _number(version: str) -> tuple[int, int]:
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def _coded(text: bytes) -> str:
    return base64.b64encode(text).decode()


def _plain(coded: str) -> str:
    return base64.b64decode(coded).decode(errors="replace")


def _stored(found: Mapping[str, str]) -> StoredValue:
    return StoredValue(
        _plain(found.get("value", "")),
        int(found["create_revision"]),
        int(found["mod_revision"]),
        int(found.get("lease", 0)),
    )


def _condition(one: Absent | Unchanged) -> dict[str, str]:
    created = 0 if isinstance(one, Absent) else one.created
    return {
        "key": _coded(one.key.encode()),
        "target": "CREATE",
        "result": "EQUAL",
        "create_revision": str(created),
    }


def _operation(one: Put | Delete) -> dict[str, Any]:
    key = _coded(one.key.encode())
    if isinstance(one, Delete):
        return {"request_delete_range": {"key": key}}
    value = _coded(one.value.encode())
    return {"request_put": {"key": key, "value": value, "lease": str(one.lease)}}
