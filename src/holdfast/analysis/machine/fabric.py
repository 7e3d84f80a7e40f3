"""The services that NVSwitch and multi-node NVLink need, as far as they can be seen from here."""

from __future__ import annotations

from holdfast.analysis.machine.fact import Fact, Unread


class ServiceState(Fact, frozen=True):
    """A service of the host, by whatever showed it."""

    state: str
    """'active', 'failed', 'inactive', 'activating', 'not installed'"""
    sign: str
    """how we know: "systemctl: ActiveState=active", 'process 812 nv-fabricmanager'"""
    pid: int | None = None
    version: str = ""
    """of its program; '' when it could not be read"""
    result: str = ""
    """of a failed one, in systemd's words, or the last line of its log"""
    up_seconds: float | None = None


class FabricFacts(Fact, frozen=True):
    nvswitches: int
    """NVSwitch devices that this machine or container shows"""
    manager: ServiceState | Unread
    imex: ServiceState | Unread
    imex_channels: tuple[str, ...] = ()
    """device nodes under /dev/nvidia-caps-imex-channels"""
    boot_seconds: float | None = None
    """since the machine started: the fabric takes minutes to come up"""
