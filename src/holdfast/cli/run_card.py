"""What a launcher says of its node when it joins the others."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.cli.run_nodes import NodeStart
    from holdfast.run.launch.flags import RunFlags
    from holdfast.run.nodes.messages import NodeCard


def _command(flags: RunFlags) -> str:
    """The script and its arguments: the same on every node, wherever the script is there."""
    import shlex

    from holdfast.redaction import redact
    from holdfast.text import shorten

    typed = flags.torchrun
    words = [os.path.basename(typed.training_script), *typed.training_script_args]
    return shorten(redact(shlex.join(words)), 300)


def node_card(here: NodeStart, *, towards: str) -> NodeCard:
    """`towards` is the address of this node that others are going to see, where it is known."""
    from holdfast.analysis.machine import addresses
    from holdfast.cli.run_checks import without_environment
    from holdfast.run.launch.launch import nproc
    from holdfast.run.nodes import rank_interfaces
    from holdfast.run.nodes.messages import NodeCard
    from holdfast.system.paths.identity import boot_id

    facts = here.facts
    if facts is not None:
        chosen = rank_interfaces.choose(facts, towards).settings
        facts = without_environment(rank_interfaces.with_settings(facts, chosen))
    usable = [a for a in here.own if not (addresses.is_loopback(a) or addresses.is_link_local(a))]
    known = boot_id()
    return NodeCard(
        name=here.name,
        identity=secrets.token_hex(8),
        nproc=nproc(here.flags),
        node_rank=here.plan.index,
        addresses=tuple(sorted(usable, key=lambda a: (a != towards, ":" in a, a))),
        boot_id=known if isinstance(known, str) else "",
        role=here.flags.torchrun.role,
        job=_command(here.flags),
        facts=facts,
        uid=os.getuid(),
        unfit=here.unfit,
    )
