"""What can be wrong with etcd, each as a sentence a user can read.

EtcdError
├── EtcdUnreachable   nothing answers at any endpoint, or not in time: it may come back
│   ├── NoLeader      its members are up and have no majority
│   └── LeaseExpired  it did not hear of us for so long that our lease ended
├── NotEtcd           something else answers there, or etcd speaks another protocol (TLS)
├── EtcdTooOld        no v3 API, or no JSON gateway
└── EtcdDenied        it wants a user, another password or more rights
"""

# ruff: noqa: N818 - their names are what happened
from __future__ import annotations

from holdfast.errors import EnvironmentFailure


class EtcdError(EnvironmentFailure):
    """etcd did not do what was asked; `sentence` names the endpoint and what was seen."""


class EtcdUnreachable(EtcdError):
    """No answer from any endpoint in time. The only kind that may pass by itself."""


class NoLeader(EtcdUnreachable):
    """Members answer, but fewer than a majority of them see each other."""


class LeaseExpired(EtcdUnreachable):
    """What was to be written under it was not; a new lease may be asked for."""


class NotEtcd(EtcdError):
    """What answers there is not etcd, or not in the protocol that was asked for."""


class EtcdTooOld(EtcdError):
    """It has no v3 API that can be spoken over HTTP."""


class EtcdDenied(EtcdError):
    """It does not let this user read or write our keys."""
