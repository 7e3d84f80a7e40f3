"""Two ranks use one GPU.

What you see   `ncclInvalidUsage … Duplicate GPU detected : rank 1 and rank 0 both on CUDA device
               1b000`, from NCCL 2.30 on `Multiple Ranks are using the same GPU/Partition`, at the
               first collective; the other ranks lose their connections.
Why            Every rank needs its own GPU, and torch puts a process that selects none on the first
               one it sees. Causes: `set_device` is missing, there are more ranks than GPUs, or
               CUDA_VISIBLE_DEVICES names one GPU for all ranks.
How to be sure NCCL compares PCI bus ids among the ranks of one host and names two ranks and the id;
               find the GPU with `nvidia-smi --query-gpu=index,pci.bus_id --format=csv`. The numbers
               are ranks of the communicator; in a subgroup they are not the global ranks.
Fix            Make this the first line of the script:
               `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))`, or pass
               `init_process_group(device_id=…)`. Start at most as many ranks as `nvidia-smi -L`
               shows.
Known limits   While a job runs only NCCL's refusal counts: two Gloo ranks on one GPU are legal and
               not reported. `check` warns of several ranks that are shown one GPU, and between
               nodes of a GPU that two of them are shown; which GPU a script selects it does not
               know. Lint judges complete scripts on NCCL only, where no other code can select the
               device.
Sources        https://docs.nvidia.com/datacenter/tesla/mig-user-guide/ (one instance a process)
               NVIDIA/nccl src/init.cc at v2.29.7-1 and v2.30.7-1: two ranks on one GPU
               https://docs.pytorch.org/docs/stable/distributed.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from holdfast import text
from holdfast.analysis.job import join, phrases
from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, Unread, known, visible_gpus
from holdfast.analysis.machine.visible_gpus import Device
from holdfast.analysis.nodes import Node, NodesFacts, differences
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.exits import Ending
from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.analysis.source.collectives import init_calls
from holdfast.analysis.source.processes import gpu_placement
from holdfast.analysis.source.program import Call, Program, constant
from holdfast.analysis.source.ranks.rank_dependence import rank_questions
from holdfast.analysis.source.source import Source
from holdfast.fault import SHOWN, Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD305",
    slug="duplicate-gpu",
    related=("device-ordinal", "gpu-occupied", "rank-assignment"),
    traits=RunTraits(priority=220),
    gpus_only=True,
    smoke_fix="give every rank its own GPU: set --nproc-per-node to at most the number of GPUs",
)
FAULT.error_text(
    r"Duplicate GPU detected|Multiple ranks .*using the same GPU",  # NCCL to 2.29, from 2.30
    "two ranks use one GPU",
)

PAIR = re.compile(r"Duplicate GPU detected : rank (\d+) and rank (\d+) both on CUDA device (\w+)")
SET_DEVICE = "`torch.cuda.set_device(int(os.environ['LOCAL_RANK']))`"
REFUSAL_TEXT = re.compile(r"Duplicate GPU detected|Multiple [Rr]anks .*using the same GPU")


# --- check ---------------------------------------------------------------------------------------


@FAULT.check(needs=("nvidia", "settings"))
def ranks_are_shown_one_gpu(facts: MachineFacts) -> Finding:
    gpus, ranks = visible_gpus.gpus_here(facts), facts.plan.nproc
    if not gpus:
        return FAULT.does_not_apply(visible_gpus.NO_GPU)
    if not facts.plan.nproc_named or ranks < 2:
        return FAULT.does_not_apply("the number of ranks is not given, or 1: --nproc-per-node N")
    allowed = facts.setting("NCCL_MULTI_RANK_GPU_ENABLE")
    if allowed is not None and allowed.value == "1":
        return FAULT.ok(f"{allowed.name}=1: ranks may share a GPU")
    seen = visible_gpus.seen_by_job(facts)
    if seen.devices is None:
        return FAULT.skipped("the MIG instances of a GPU could not be listed")
    found = _one_instance(ranks, seen.devices) or _one_listed(facts, seen.devices)
    return found or FAULT.ok(f"{ranks} ranks, {text.counted(len(seen.devices), 'GPU')} visible")


def _one_instance(ranks: int, devices: Sequence[Device]) -> Finding | None:
    parts = [device.mig for device in devices if device.mig]
    if not parts:
        return None
    return FAULT.warning(
        f"{ranks} ranks would use the MIG instance {parts[0]}",
        reason="a process sees one MIG instance, the first that is listed, so that all ranks take "
        "the same; NCCL refuses that",
        evidence=[Evidence(quote=f"visible: {', '.join(parts[:SHOWN])}", source="NVML")],
        fix=f"start each rank with its own instance: `{visible_gpus.VARIABLE}=MIG-… python "
        "train.py`; or use whole GPUs: `sudo nvidia-smi -mig 0`",
    )


def _one_listed(facts: MachineFacts, devices: Sequence[Device]) -> Finding | None:
    setting = facts.setting(visible_gpus.VARIABLE)
    if setting is None or len(devices) != 1:
        return None
    ranks, here = facts.plan.nproc, len(known(facts.nvidia).gpus)
    return FAULT.warning(
        f"{setting.name} shows one GPU to {ranks} ranks",
        reason="they share it or fail with 'invalid device ordinal'; NCCL refuses two ranks on one "
        "GPU. Fine only if the launcher gives each rank its own value",
        evidence=[setting.evidence],
        fix=f"list a GPU for each rank: `export {setting.name}={','.join(map(str, range(ranks)))}`"
        if here >= ranks
        else f"start as many ranks as GPUs: `torchrun --nproc-per-node {here} …`",
    )


@FAULT.check_nodes
def nodes_are_shown_one_gpu(facts: NodesFacts) -> Finding | Sequence[Finding]:
    """Two containers or virtual machines of one host that were given the same GPU."""
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node: there is nothing to compare")
    shown, gaps = differences.of_each(facts, _uuids_shown)
    unknown = [FAULT.skipped(gap.why, host=gap.node) for gap in gaps]
    owners: dict[str, list[str]] = {}
    for node, uuids in shown.items():
        for uuid in uuids:
            owners.setdefault(uuid, []).append(node)
    twice = {uuid: nodes for uuid, nodes in owners.items() if len(nodes) > 1}
    if twice:
        nodes = sorted({node for shared in twice.values() for node in shared})
        return [
            FAULT.error(
                f"{text.counted(len(twice), 'GPU')} would be used by ranks of more than one node: "
                f"{text.names(nodes)}",
                reason="these nodes are containers or virtual machines of one host and were shown "
                "the same GPUs; their ranks share memory and time, and NCCL hangs or refuses",
                evidence=[
                    Evidence(quote=f"{uuid} on {text.names(shared)}", source="NVML")
                    for uuid, shared in list(twice.items())[:SHOWN]
                ],
                fix="give each node its own GPUs, by `--gpus '\"device=0,1\"'` of its container "
                "or by CUDA_VISIBLE_DEVICES",
            ),
            *unknown,
        ]
    if not owners:
        return unknown or FAULT.does_not_apply("no node shows a GPU of NVIDIA's")
    return [FAULT.ok(f"{text.counted(len(owners), 'GPU')}, each on one node"), *unknown]


def _uuids_shown(node: Node) -> tuple[str, ...] | Unread:
    nvidia, settings = node.facts.nvidia, node.facts.settings
    if isinstance(nvidia, Unread) or isinstance(settings, Unread):
        return nvidia if isinstance(nvidia, Unread) else Unread(why="its settings are not known")
    devices = visible_gpus.seen_by_job(node.facts).devices or ()
    whole = {gpu.index: gpu.uuid for gpu in nvidia.gpus}
    shown = (device.mig or whole.get(device.gpu, "") for device in devices)
    return tuple(uuid for uuid in shown if uuid)


# --- run -----------------------------------------------------------------------------------------


@FAULT.run
def nccl_refused_shared_gpu(scene: Scene) -> Verdict | None:
    """Only NCCL's error counts. Two heartbeats with one GPU prove nothing: Gloo allows it, and with
    NCCL_HOSTID ranks share a GPU on purpose."""
    refusals = [e for e in exits.endings(scene) if _refused(e)]
    if not refusals or any(not _refused(e) for e in exits.cause(scene)):
        return None
    ranks = {e.rank for e in refusals}
    for ending in refusals:
        ranks |= _pair(scene, ending.view) | _ranks_on_same_device(scene, ending.view)
    victims = exits.fallen(scene, ranks)
    return FAULT.verdict(
        f"{phrases.who(scene, sorted(ranks))} {_shared_device(refusals, ranks)}, which NCCL refuses"
        f"{phrases.exited_as_a_result(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix="give each rank its own GPU: `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))` "
        "before anything else; `nvidia-smi -L` shows how many there are",
        evidence=[phrases.how_it_ended(e) for e in refusals],
    )


def _refused(ending: Ending) -> bool:
    return ending.view.words is not None and bool(REFUSAL_TEXT.search(ending.view.words.text))


def _pair(scene: Scene, reporter: RankView) -> set[int]:
    """The two that NCCL names, if its numbers are global ranks: it names the reporting rank
    first."""
    named = PAIR.search(reporter.words.text) if reporter.words else None
    if not named:
        return set()
    by_number = {_group_rank(view): view.rank for view in scene.ranks}
    first, second = int(named[1]), int(named[2])
    if first != _group_rank(reporter) or second not in by_number:
        return set()
    return {reporter.rank, by_number[second]}


def _ranks_on_same_device(scene: Scene, reporter: RankView) -> set[int]:
    claim = join.claim_of(reporter)
    if claim is None or not claim.device:
        return set()
    return {
        view.rank
        for view in scene.ranks
        if (other := join.claim_of(view)) is not None and other.device == claim.device
    }


def _group_rank(view: RankView) -> int:
    """Its rank in the default group."""
    claim = join.claim_of(view)
    return claim.rank if claim is not None and claim.rank >= 0 else view.rank


def _shared_device(refusals: list[Ending], ranks: set[int]) -> str:
    matches = [PAIR.search(e.view.words.text) for e in refusals if e.view.words]
    devices = sorted({match[3] for match in matches if match})
    alone = len(ranks) == 1
    other = " with another rank" if alone else ""
    if not devices:
        return "used the same GPU as another rank" if alone else "used the same GPU"
    plural = "s" * (len(devices) > 1)
    return f"shared CUDA device{plural} {', '.join(devices)} (PCI bus id){other}"


# --- explain -------------------------------------------------------------------------------------

REFUSED = FAULT.log_pattern(
    "refused",
    r"(?:Duplicate GPU detected ?: ?)?rank (?P<one>\d+) and rank (?P<other>\d+) both on CUDA "
    r"device (?P<device>\w+)|Duplicate GPU detected|Multiple [Rr]anks .*using the same GPU"
    r"|multiple ranks using the same NVML device",
    anchors=(
        "Duplicate GPU detected",
        "both on CUDA device",
        "using the same GPU",
        "the same NVML device",
    ),
    example="vm:1010:1010 [0] init.cc:785 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 "
    "both on CUDA device 1b000",
)


INVALID = FAULT.log_pattern(
    "invalid-usage",
    r"ncclInvalidUsage|NCCL error in: .{1,200}, invalid usage|NCCL Error 5: invalid usage"
    r"|(?P<later>async exception: NCCL error: invalid usage)|(?P<kept>^Last error: ?)",
    anchors=(
        *("ncclInvalidUsage", ", invalid usage", "NCCL error: invalid usage"),
        *("NCCL Error 5", "Last error:"),
    ),
    example="RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:957, "
    "invalid usage, NCCL version 21.0.3",
    # NCCL's warning, where the log has it, says what was invalid.
    role=Role.CONTEXT,
)


@FAULT.explain
def two_ranks_on_one_gpu(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(REFUSED)
    if not seen:
        return _invalid_usage(wreckage)
    one, other, device = (sightings.field(seen, name) for name in ("one", "other", "device"))
    pair = f"ranks {one} and {other} of a communicator" if one else "two or more ranks"
    where = f"CUDA device {device} (PCI bus id)" if device else "the same GPU"
    visible = wreckage.settings.get("CUDA_VISIBLE_DEVICES", "")
    narrow = f"; CUDA_VISIBLE_DEVICES={visible} is set" if visible else ""
    line = seen[0].line
    return FAULT.diagnosis(
        f"{pair} used {where}: NCCL refuses two ranks of one host on one GPU{narrow}",
        confidence=0.97,
        seen=seen,
        culprit=Culprit(rank=line.rank, host=line.host, pid=line.pid, what=where),
        fix=f"make {SET_DEVICE} the first line of the script; start no more ranks on a machine "
        "than it has GPUs; let CUDA_VISIBLE_DEVICES list one GPU for each local rank",
        next="nvidia-smi --query-gpu=index,pci.bus_id --format=csv",
        unknown=["whether these are global ranks: NCCL numbers them within the communicator"]
        if one
        else [],
    )


def _invalid_usage(wreckage: Wreckage) -> Diagnosis | None:
    """The reason is not in the log; this is the most common one that NCCL has for it."""
    seen = [one for one in wreckage.seen(INVALID) if "kept" not in one.fields]
    later = sightings.field(seen, "later")  # not at the start: see collective-mismatch
    if not seen or later or wreckage.roots() or _reason_is_shown(wreckage):
        return None
    line = seen[0].line
    return FAULT.diagnosis(
        f"NCCL refused a call of {sightings.who(seen)} as invalid, and the log lacks the reason: "
        "most often two ranks of one machine use the same GPU",
        confidence=0.45,
        seen=seen,
        culprit=Culprit(rank=line.rank, host=line.host, pid=line.pid),
        fix=f"make {SET_DEVICE} the first line of the script; start no more ranks on a machine "
        "than it has GPUs",
        next="export NCCL_DEBUG=WARN",
        unknown=["what was invalid: NCCL_DEBUG=WARN prints it"],
    )


def _reason_is_shown(wreckage: Wreckage) -> bool:
    """Below 'Last error:', which NCCL leaves empty where it has none."""
    if not sightings.field(wreckage.seen(INVALID), "kept"):
        return False
    told = [r.text.partition("Last error:") for r in wreckage.raised if "Last error:" in r.text]
    return not told or any(reason.strip() for _, _, reason in told)


# --- lint ----------------------------------------------------------------------------------------

LONGEST_CALL = 40
"""characters of a call in a sentence"""


@FAULT.lint_python
def every_rank_selects_same_gpu(program: Program, source: Source) -> Iterator[Finding]:
    """Only complete scripts on NCCL: elsewhere other code may select the device."""
    if not source.complete or init_calls.only_backend(program) != "nccl":
        return
    joined = init_calls.init_calls_of(program)
    alone = any(constant(init.given("world_size")) == 1 for init in joined)
    if alone or not any(init_calls.runs(program, init) for init in joined):
        return
    if not gpu_placement.CHOOSES.search(program.text):
        first = next((use for use in gpu_placement.gpu_uses(program) if use.number is None), None)
        if first is not None:
            yield FAULT.warning(
                f"`{_short_call(first.call)}` is the first GPU on every rank: nothing in this "
                "script gives each rank its own",
                reason="NCCL refuses two ranks of one machine on one GPU (Duplicate GPU detected), "
                "unless whatever starts them shows each rank a single GPU",
                fix=f"make {SET_DEVICE} the first line of the script",
                at=program.place(first.call.node),
            )
        return
    yield from _fixed_device(program)
    yield from _used_before_set_device(program)


def _fixed_device(program: Program) -> Iterator[Finding]:
    """Devices selected by a literal number; outside set_device only where no line of the script
    selects one by anything else."""
    if "VISIBLE_DEVICES" in program.text:
        return
    chosen = list(gpu_placement.choices(program))
    fixed = [one for one in chosen if isinstance(constant(one.number), int)]
    setters = [one for one in fixed if one.call.name in gpu_placement.SETTERS]
    everywhere = len(fixed) == len(chosen) and not gpu_placement.BY_OTHERS.search(program.text)
    for one in setters or (fixed[:1] if everywhere else []):
        yield FAULT.warning(
            f"`{_short_call(one.call)}` selects the same GPU, cuda:{constant(one.number)}, on "
            "every rank",
            reason="NCCL refuses two ranks of one machine on one GPU (Duplicate GPU detected), "
            "unless whatever starts them shows each rank a single GPU",
            fix=f"replace it with {SET_DEVICE}"
            if one in setters
            else "replace it with `torch.device('cuda', int(os.environ['LOCAL_RANK']))`",
            at=program.place(one.call.node),
        )


def _used_before_set_device(program: Program) -> Iterator[Finding]:
    setters = [
        call
        for call in program.called(*gpu_placement.SETTERS)
        if call.node.args and rank_questions(program).number(call.node.args[0])
    ]
    for setter in setters:
        for use in gpu_placement.gpu_uses(program):
            if use.number is None and gpu_placement.before(program, use.call.node, setter.node):
                yield FAULT.warning(
                    f"`{_short_call(use.call)}` runs before {setter.written} (line "
                    f"{setter.node.lineno}), so it goes to the first GPU on every rank",
                    reason="before set_device, 'cuda' means cuda:0: the first GPU fills up with "
                    "the contexts of all ranks, and NCCL refuses a collective on this tensor",
                    fix=f"move line {setter.node.lineno} up, before anything that touches CUDA",
                    at=program.place(use.call.node),
                )
                break


def _short_call(call: Call) -> str:
    return text.shorten(ast.unparse(call.node), LONGEST_CALL)
