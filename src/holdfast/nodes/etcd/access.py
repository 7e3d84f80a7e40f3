"""Where etcd is and how it is spoken to, from `--rdzv-endpoint` and `--rdzv-conf`; pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from holdfast.analysis.machine.rendezvous import split_endpoint
from holdfast.errors import ConfigError

BACKENDS = ("etcd", "etcd-v2")
"""as torchrun names them; both mean the same etcd here"""
PORT = 2379
USER = "ETCDCTL_USER"
"""as etcd's own client reads it: NAME:PASSWORD, which no command line should show"""
_CERT, _KEY, _CA = ("cert", "ssl_cert"), ("key", "ssl_cert_key"), ("cacert", "ca_cert")
"""torch's names for the etcd backend, and for the etcd-v2 backend"""
SETTINGS = frozenset({"protocol", *_CERT, *_KEY, *_CA})
"""of --rdzv-conf"""


@dataclasses.dataclass(frozen=True)
class EtcdAccess:
    endpoints: tuple[tuple[str, int], ...]
    tls: bool = False
    cert: str = ""
    key: str = ""
    ca: str = ""
    user: str = ""
    password: str = dataclasses.field(default="", repr=False)

    def in_words(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self.endpoints)


def etcd_access(
    endpoint: str, conf: Mapping[str, str], environment: Mapping[str, str]
) -> EtcdAccess:
    """`endpoint` may be a list with commas: the members of one etcd cluster."""
    endpoints = tuple(_endpoint(one) for one in endpoint.split(",") if one.strip())
    if not endpoints:
        raise ConfigError(
            "--rdzv-backend etcd needs the address of etcd",
            hint=f"--rdzv-endpoint HOST:{PORT}, or several members: HOST1:{PORT},HOST2:{PORT}",
        )
    tls = _protocol(endpoint, conf)
    cert, key, ca = (_first(conf, names) for names in (_CERT, _KEY, _CA))
    if (cert or key or ca) and not tls:
        raise ConfigError(
            "--rdzv-conf names a certificate for etcd, and the protocol is http",
            hint="add `protocol=https` to --rdzv-conf",
        )
    user, colon, password = environment.get(USER, "").partition(":")
    password = password if colon else environment.get("ETCDCTL_PASSWORD", "")
    return EtcdAccess(endpoints, tls, cert, key, ca, user, password)


def _protocol(endpoint: str, conf: Mapping[str, str]) -> bool:
    protocol = conf.get("protocol", "https" if "https://" in endpoint else "http").strip().lower()
    if protocol not in ("http", "https"):
        raise ConfigError(f"--rdzv-conf protocol: unknown value {protocol!r} (http or https)")
    return protocol == "https"


def _endpoint(one: str) -> tuple[str, int]:
    bare = one.strip().removeprefix("http://").removeprefix("https://").rstrip("/")
    host, port = split_endpoint(bare)
    if not host or (port is None and ":" in host) or any(letter in host for letter in " /@"):
        raise ConfigError(
            f"--rdzv-endpoint: {one.strip()[:60]!r} is no address of etcd",
            hint=f"write HOST:{PORT}; an IPv6 address in brackets: [fd00::1]:{PORT}",
        )
    return host, PORT if port is None else port


def _first(conf: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((conf[name] for name in names if conf.get(name)), "")
