"""The catalogue refuses what is unfinished: no page, no source, no tests for a face."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import catalogue
from holdfast.analysis.machine import CouldNotLook, MachineFacts
from holdfast.analysis.machine.smoke_failures import SmokeFailure
from holdfast.analysis.nodes import Node, NodesFacts
from holdfast.analysis.scene.scene import Scene
from holdfast.errors import ConfigError
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Evidence, Finding, Status
from tests.faults.machines import a_machine, a_plan, an_unreadable_machine
from tests.faults.made_nodes import some_nodes, unreadable_nodes
from tests.faults.of import module_of_tests
from tests.faults.recording_facts import RecordingFacts
from tests.places import SOURCE
from tests.run.scenes import a_scene, nothing_known

ENTRIES = catalogue.entries()
SLUGS = [entry.fault.slug for entry in ENTRIES]


def faults_with(verb: str) -> pytest.MarkDecorator:
    """Every fault that this verb asks."""
    asked = [entry.fault for entry in ENTRIES if getattr(entry.fault, f"{verb}_faces")]
    return pytest.mark.parametrize("fault", asked, ids=[fault.slug for fault in asked])


def test_every_file_is_found() -> None:
    files = {path.stem for path in SOURCE.glob("faults/*/*.py") if path.stem != "__init__"}
    assert {slug.replace("-", "_") for slug in SLUGS} == files


@pytest.mark.parametrize("entry", ENTRIES, ids=SLUGS)
def test_its_folder_is_its_family(entry: catalogue.Entry) -> None:
    folders = {
        path.parent.name
        for path in SOURCE.glob(f"faults/*/{entry.fault.slug.replace('-', '_')}.py")
    }
    assert folders == {catalogue.family(entry.fault).folder}


@pytest.mark.parametrize("entry", ENTRIES, ids=SLUGS)
def test_has_faces_tests_and_sources(entry: catalogue.Entry) -> None:
    assert entry.fault.faces, "a fault without a face does nothing"
    assert entry.fault.code[4] in catalogue.FAMILIES
    assert any(re.search(r"https?://|\w+/\w+", source) for source in entry.page.sources)
    tests = module_of_tests(entry.fault)
    # What a drill does is proven by doing it (tests/drill); tests/faults/test_drills.py asks all.
    asked = [f for f in entry.fault.faces if f != "drill"]
    asked = [f for f in asked if f != "check" or entry.fault.check_faces]
    for face in [*asked, *(["check_nodes"] if entry.fault.nodes_faces else [])]:
        table = getattr(tests, f"test_{face}", None)
        assert table, f"{tests.__name__} has no test_{face} table"
        assert any(case.speaks for case in table.cases), "no case where it must speak"
        assert any(case.expected == "silent" for case in table.cases), "none where it is silent"


@faults_with("check")
def test_silent_on_a_healthy_machine(fault: Fault) -> None:
    for plan in (a_plan(), a_plan(nproc=8, min_nodes=2, max_nodes=2, port_origin="MASTER_PORT")):
        concerns = [f for f in fault.ask_check(a_machine(plan)) if f.status.concern]
        assert concerns == []


@faults_with("check")
def test_never_says_ok_about_what_it_could_not_read(fault: Fault) -> None:
    plan = a_plan(min_nodes=2, max_nodes=2, master_addr="node-b", checkpoint_folders=("/c",))
    for finding in fault.ask_check(an_unreadable_machine(plan)):
        assert finding.status is Status.SKIPPED, finding
        assert finding.reason
        assert "bug in holdfast" not in finding.reason, finding


@faults_with("nodes")
@pytest.mark.parametrize("count", [2, 3, 8])
def test_silent_about_healthy_nodes(fault: Fault, count: int) -> None:
    for facts in (some_nodes(count), some_nodes(count, mtu=9000, master_addr="node-a")):
        assert [f for f in fault.ask_nodes(facts) if f.status.concern] == []


@faults_with("nodes")
def test_never_says_ok_about_nodes_it_could_not_read(fault: Fault) -> None:
    if fault.slug in ("node-lost", "ranks-missing"):
        return  # they ask who came, and that is known
    for finding in fault.ask_nodes(unreadable_nodes()):
        assert finding.status is Status.SKIPPED, finding
        assert finding.reason
        assert "bug in holdfast" not in finding.reason, finding


@faults_with("nodes")
def test_one_node_alone_has_no_one_to_differ_from(fault: Fault) -> None:
    for finding in fault.ask_nodes(some_nodes(1)):
        assert not finding.status.concern, finding
        assert "bug in holdfast" not in finding.reason, finding


@faults_with("run")
@pytest.mark.parametrize(
    "scene", [a_scene(), a_scene(()), nothing_known()], ids=["healthy", "empty", "unknown"]
)
def test_a_notice_needs_something_seen(fault: Fault, scene: Scene) -> None:
    assert list(fault.ask_run(scene)) == []


@pytest.mark.parametrize("entry", ENTRIES, ids=SLUGS)
def test_related_faults_exist_and_are_others(entry: catalogue.Entry) -> None:
    assert set(entry.fault.related) <= set(SLUGS) - {entry.fault.slug}


@faults_with("check")
def test_broken_gpus_do_not_stop_the_start_of_a_job_that_may_use_none(fault: Fault) -> None:
    if not fault.needs & {"nvidia", "cuda", "fabric", "pci", "gpu_direct", "rdma_cards"}:
        return
    cases = module_of_tests(fault).test_check.cases
    assert fault.gpus_only or not [case.line for case in cases if case.expected == "error"]


def test_what_stops_a_start() -> None:
    broken, taken = catalogue.by_slug("gpu-hardware"), catalogue.by_slug("port-in-use")
    assert catalogue.stops_a_start(taken.error("x", reason="y", fix="z"))
    assert not catalogue.stops_a_start(taken.warning("x", reason="y", fix="z"))
    assert not catalogue.stops_a_start(broken.error("x", reason="y", fix="z"))


@faults_with("check")
def test_a_check_face_asks_for_no_fact_that_it_did_not_name(fault: Fault) -> None:
    """Else `check --only` would not read it, and say that it could not look."""
    touched = set()
    for face in fault.check_faces:
        for case in module_of_tests(fault).test_check.cases:
            facts = RecordingFacts(case.facts)
            with contextlib.suppress(CouldNotLook):
                face(facts.as_facts)
            allowed = {"plan", "host", *fault.check_needs[face]}
            assert facts.touched <= allowed, f"{face.__name__} {case.expected} (line {case.line})"
            touched |= facts.touched
    assert touched, "the table asks nothing of the facts"


def test_a_face_may_need_only_what_can_be_read() -> None:
    with pytest.raises(ValueError, match="made-up needs plan, prot, which is no fact"):
        Fault(code="HOLD199", slug="made-up").check(needs=("prot", "port", "plan"))


def test_a_name_imports_only_its_own_file() -> None:
    """`check --only port-in-use` must not wait for the other faults."""
    program = """
import sys
from holdfast import catalogue
print([fault.slug for fault in catalogue.choose(["port-in-use"], [])])
print(sum(name.startswith("holdfast.faults.") for name in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    chosen, imported = done.stdout.splitlines()
    assert chosen == "['port-in-use']"
    assert int(imported) < 5


def test_pages_are_there_where_python_drops_docstrings() -> None:
    program = "from holdfast import catalogue; print([e.page for e in catalogue.entries()])"
    command = [sys.executable, "-OO", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{[entry.page for entry in ENTRIES]}\n"


@pytest.mark.parametrize("name", ["HOLD101", "hold1", "1", "Port-In-Use", "9"])
def test_a_choice_by_files_is_the_choice_among_all(name: str) -> None:
    among_all = [e.fault for e in ENTRIES if catalogue._is_named(e.fault, name)]
    assert catalogue.choose([name], []) == among_all


@pytest.mark.parametrize("failure", SmokeFailure)
def test_every_failure_of_a_smoke_test_is_claimed_by_one_fault(failure: SmokeFailure) -> None:
    assert [e.fault for e in ENTRIES if failure in e.fault.smoke_failures] == [
        catalogue.fault_of(failure)
    ]


def test_an_errno_belongs_to_one_fault() -> None:
    claimed = {(m.number, m.nccl_before) for m in catalogue.error_meanings() if m.number}
    assert len(claimed) == sum(1 for m in catalogue.error_meanings() if m.number)


def test_a_run_face_needs_traits() -> None:
    with pytest.raises(ValueError, match="needs traits"):
        Fault(code="HOLD199", slug="made-up").run(lambda _scene: None)
    fault = Fault(code="HOLD199", slug="made-up", traits=RunTraits(priority=1))
    fault.run(lambda _scene: None)
    assert fault.faces == ("run",)


def test_a_code_or_slug_is_checked_at_birth() -> None:
    with pytest.raises(ValueError, match="three digits"):
        Fault(code="HF101", slug="fine")
    with pytest.raises(ValueError, match="words-with-dashes"):
        Fault(code="HOLD101", slug="Not_Fine")


def test_a_page_without_a_section_is_refused() -> None:
    fault = Fault(code="HOLD199", slug="made-up")
    with pytest.raises(ValueError, match="lacks: Why, How to be sure, Fix, Sources"):
        catalogue.page_of(fault, "Title.\n\nWhat you see   something\n")


def test_a_check_that_breaks_is_skipped_and_says_so() -> None:
    fault = Fault(code="HOLD199", slug="made-up")

    @fault.check(needs=())
    def broken(_facts: MachineFacts) -> Finding:
        raise ZeroDivisionError("oops")

    (finding,) = fault.ask_check(a_machine())
    assert finding.status is Status.SKIPPED
    assert "bug in holdfast, made-up (broken): ZeroDivisionError: oops" in finding.reason


def test_an_exact_name_gives_one_page_and_a_word_the_nearest() -> None:
    assert [p.slug for p in catalogue.search("HOLD101")] == ["port-in-use"]
    assert [p.slug for p in catalogue.search("port-in-use")] == ["port-in-use"]
    assert catalogue.search("port")[0].slug.startswith("port-")
    assert catalogue.search("shm")[0].slug == "shm-too-small"
    assert catalogue.search("no such words at all") == []


def test_choose_by_code_slug_and_family() -> None:
    assert [f.slug for f in catalogue.choose(["port-in-use"], [])] == ["port-in-use"]
    family = catalogue.choose(["1"], ["HOLD101"])
    assert {f.code[4] for f in family} == {"1"}
    assert "port-in-use" not in [f.slug for f in family]
    with pytest.raises(ConfigError, match="no fault is called 'prot-in-use'"):
        catalogue.choose(["prot-in-use"], [])


@given(st.text(max_size=40))
def test_search_takes_any_words(words: str) -> None:
    pages = catalogue.search(words)
    assert len({page.code for page in pages}) == len(pages)


def test_evidence_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Evidence(quote="seen").quote = "changed"  # type: ignore[misc]


def test_a_question_that_cannot_look_or_breaks_refutes_nothing() -> None:
    fault = Fault(code="HOLD999", slug="made-up")
    facts = some_nodes(2)

    @fault.refuted_by_nodes
    def cannot_look(_: NodesFacts, __: Node) -> bool:
        raise CouldNotLook("no reach")

    assert not fault.is_refuted(facts, facts.nodes[0])
    fault.refutations.clear()

    @fault.refuted_by_nodes
    def breaks(_: NodesFacts, __: Node) -> bool:
        raise KeyError("a bug")

    assert not fault.is_refuted(facts, facts.nodes[0])
