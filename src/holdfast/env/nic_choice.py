"""Whether the interface that NCCL or Gloo takes by itself has to be corrected. Pure."""

from __future__ import annotations

from holdfast.analysis.machine import (
    CouldNotLook,
    MachineFacts,
    gloo_choice,
    nccl_choice,
    nic_filter,
    way_out,
)
from holdfast.analysis.machine.interface_choice import InterfaceChoice


def sentence(name: str, facts: MachineFacts) -> str:
    """What a setting that selects interfaces comes to here; '' for others, or when not known."""
    try:
        if name == nic_filter.GLOO:
            return gloo_choice.choose(facts).sentence
        if name in (nic_filter.NCCL, nccl_choice.COMM_ID, nccl_choice.FAMILY):
            return nccl_choice.bootstrap(facts).sentence
    except CouldNotLook:
        pass
    return ""


def better(facts: MachineFacts) -> tuple[str, str]:
    """The interface to name, and the one NCCL would take; ('', '') where its choice will do."""
    if not facts.plan.multi_node:
        return "", ""
    try:
        return _better(nccl_choice.unfiltered(facts), facts)
    except CouldNotLook:
        return "", ""


def better_for_gloo(facts: MachineFacts) -> tuple[str, str]:
    """The interface to name, and why Gloo would take loopback; ('', '') where it does not."""
    if not facts.plan.multi_node:
        return "", ""
    try:
        choice = gloo_choice.by_own_name(facts)
        right, chosen = _better(choice, facts)
    except CouldNotLook:
        return "", ""
    return (right, choice.because) if chosen else ("", "")


def _better(choice: InterfaceChoice, facts: MachineFacts) -> tuple[str, str]:
    right = way_out.leads_out(facts)
    wrong = [doubt.taken.name for doubt in way_out.doubts(choice, facts)]
    return (right, wrong[0]) if wrong and right not in ("", wrong[0]) else ("", "")
