"""tools/versions and tools/torchrun_tests: what they make of pytest's report."""

from __future__ import annotations

from tools import torchrun_tests, versions

REPORT = """<testsuites><testsuite>
<testcase classname="tests.run" name="test_a" />
<testcase classname="tests.run" name="test_b"><failure message="assert 1 | 2&#10;more" /></testcase>
<testcase classname="tests.run" name="test_c"><skipped message="needs a GPU" /></testcase>
<testcase classname="tests.run" name="test_launch_shutdown"><failure message="mock" /></testcase>
</testsuite></testsuites>"""


def test_passed_failed_and_skipped_are_counted_with_their_reasons() -> None:
    row = versions.Row("2.8.0", said="with torch 2.8.0 less can be seen")
    versions.read(REPORT, row)
    assert (row.passed, row.failed) == (1, ["tests.run::test_b", "tests.run::test_launch_shutdown"])
    told = versions.table([row])
    assert "| 2.8.0 | 1 | 2 | 1 | 0 min | with torch 2.8.0 less can be seen |" in told
    assert "- tests.run::test_b\n" in told
    assert "- 1: needs a GPU\n" in told


def test_the_environments_get_what_the_tests_need() -> None:
    wanted = versions.requirements()
    assert not any(line.startswith(("torch=", "mypy", "#")) for line in wanted)
    assert {"pytest", "hypothesis", "msgspec", "py-spy"} <= {line.split("==")[0] for line in wanted}


def test_a_test_that_cannot_apply_is_not_counted_as_failed() -> None:
    results = {result.test: result for result in torchrun_tests.read(REPORT)}
    assert [name for name, result in results.items() if result.wrong] == ["test_b"]
    assert results["test_b"].why == "assert 1 / 2"
    assert results["test_launch_shutdown"].outcome == "not applicable"
    told = torchrun_tests.table(list(results.values()), ["tail_log_test.py"])
    assert "1 passed, 1 failed, 1 not applicable, 1 skipped." in told
    assert "no launcher or agent is in them: tail_log_test.py." in told
