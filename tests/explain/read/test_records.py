"""JSON records of runtimes, agents and loggers, and lines that only look like one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import catalogue
from holdfast.explain.diagnose import diagnose
from holdfast.explain.gather import gather_bytes
from holdfast.explain.read import records
from holdfast.explain.read.line_prefix import head

TRACE = 'Traceback (most recent call last):\n  File "t.py", line 3, in f\nValueError: boom'
KILLED = (
    "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal SIGKILL"
)

RECORDS = [
    # Docker's json-file
    ({"log": "hello\n", "stream": "stderr", "time": "2026-11-15T01:02:03Z"}, {"at": 1794704523.0}),
    # fluent bit in Kubernetes
    (
        {"date": 1794704523.4, "log": "hello", "kubernetes": {"pod_name": "train-0", "host": "n1"}},
        {"host": "train-0", "at": 1794704523.4},
    ),
    # journalctl -o json
    (
        {"__REALTIME_TIMESTAMP": "1794704523400000", "_HOSTNAME": "n1", "_PID": "12",
         "MESSAGE": "hello"},
        {"host": "n1", "pid": 12, "at": 1794704523.4},
    ),
    ({"MESSAGE": list(b"hello"), "_HOSTNAME": "n1"}, {"host": "n1"}),
    ({"MESSAGE": "hello", "_TRANSPORT": "kernel", "_HOSTNAME": "n1",
      "__REALTIME_TIMESTAMP": "1794704523400000"}, {"host": "n1"}),
    # Cloud Logging
    (
        {"textPayload": "hello", "timestamp": "2026-11-15T01:02:03.4Z", "severity": "ERROR",
         "resource": {"labels": {"pod_name": "train-0"}}},
        {"host": "train-0", "at": 1794704523.4},
    ),
    ({"jsonPayload": {"message": "hello", "rank": 3}, "insertId": "x"}, {"rank": 3}),
    # CloudWatch, Datadog, Elastic, Loki
    ({"timestamp": 1794704523400, "message": "hello"}, {"at": 1794704523.4}),
    ({"message": "hello", "host": "n1", "status": "error", "service": "x"}, {"host": "n1"}),
    ({"@timestamp": "2026-11-15T01:02:03.4Z", "message": "hello", "host": {"name": "n1"},
      "process": {"pid": 12}}, {"host": "n1", "pid": 12}),
    ({"labels": {"pod": "train-0"}, "line": "hello"}, {"host": "train-0"}),
    # structlog, python-json-logger, loguru, zap
    ({"event": "hello", "level": "info", "rank": 3, "local_rank": 1}, {"rank": 3, "local_rank": 1}),
    ({"message": "hello", "levelname": "ERROR", "process": 12}, {"pid": 12}),
    ({"text": "x", "record": {"message": "hello", "process": {"id": 12},
      "time": {"repr": "2026-11-15 01:02:03.400000+00:00"}, "level": {"name": "INFO"}}},
     {"pid": 12, "at": 1794704523.4}),
    ({"level": "error", "ts": 1794704523.4, "msg": "hello", "caller": "a.go:3"},
     {"at": 1794704523.4}),
]  # fmt: skip


@pytest.mark.parametrize(("record", "told"), RECORDS, ids=lambda v: str(v)[:40])
def test_text_and_writer(record: dict[str, object], told: dict[str, object]) -> None:
    (line,) = records.texts(json.dumps(record))
    found = head(line)
    assert found.text == "hello"
    assert {name: getattr(found, name) for name in told} == told


@pytest.mark.parametrize(
    "line",
    [
        "{'loss': nan, 'grad_norm': 1.0}",
        '{"step": 3, "loss": 0.1}',
        '{"message": {"x": 1}}',
        '{"message": "cut short',
        "[rank0]: a dict {} in a sentence",
        'RuntimeError: the server said {"message": "no"}',
        "{" * 3000 + "}" * 3000,
        "[rank0]: step 3",
        "",
    ],
    ids=lambda line: line[:20],
)
def test_other_lines_stay_as_they_are(line: str) -> None:
    assert records.texts(line) == [line]


def test_a_record_in_a_record_behind_a_prefix() -> None:
    inner = json.dumps({"event": "hello", "rank": 2, "level": "error", "exception": TRACE})
    outer = json.dumps({"log": inner + "\n", "stream": "stderr", "time": "2026-11-15T01:02:03Z"})
    lines = records.texts(f"[pod/train-0/main] {outer}")
    heads = [head(line) for line in lines]
    assert [one.text for one in heads] == ["hello", *TRACE.splitlines()]
    assert {(one.rank, one.host) for one in heads} == {(2, "train-0")}


def test_numbers_and_reasons_beside_the_message_are_part_of_it() -> None:
    line = '{"event": "step", "level": "info", "step": 7, "loss": NaN, "rank": 1}'
    assert head(records.texts(line)[0]).text == "step step=7 loss=nan"
    line = '{"msg": "pod failed", "level": "error", "error": "exit 137", "ts": 1794704523}'
    assert head(records.texts(line)[0]).text == "pod failed: exit 137"


@pytest.mark.parametrize(
    "record",
    [
        {"event": "crash", "level": "error", "exception": TRACE},
        {"message": "crash", "levelname": "ERROR", "exc_info": TRACE},
        {"message": "crash", "log": {"level": "error"}, "error": {"stack_trace": TRACE}},
        {"event": "crash", "level": "error", "exception": [
            {"exc_type": "ValueError", "exc_value": "boom",
             "frames": [{"filename": "t.py", "lineno": 3, "name": "f"}]}]},
        {"text": f"2026-11-15 01:02:03.4 | ERROR | t:f:3 - crash\n{TRACE}\n", "record": {
            "message": "crash", "level": {"name": "ERROR"},
            "exception": {"type": "ValueError", "value": "boom", "traceback": True}}},
    ],
    ids=["structlog", "python-json-logger", "elastic", "structlog-dicts", "loguru"],
)  # fmt: skip
def test_an_exception_beside_the_message(record: dict[str, object]) -> None:
    texts = [head(line).text for line in records.texts(json.dumps(record))]
    assert texts == ["crash", *TRACE.splitlines()]


def test_one_field_to_a_line() -> None:
    assert records.texts('    "textPayload": "a \\"b\\"\\nc",') == ['a "b"', "c"]


def test_what_a_record_hides_cannot_reach_the_screen() -> None:
    assert records.texts('{"log": "a\\u001b[31mb\\u202ec"}') == [r"ab\u202ec"]


def _log(lines: list[str], wrap: str) -> bytes:
    names = {"docker": ("log", "\n"), "journald": ("MESSAGE", ""), "plain": ("", "")}
    key, end = names[wrap]
    out = [json.dumps({key: line + end}) if key else line for line in lines]
    return "".join(f"{one}\n" for one in out).encode()


@pytest.mark.parametrize("wrap", ["docker", "journald"])
def test_the_diagnosis_of_a_wrapped_log_is_that_of_the_plain_one(wrap: str) -> None:
    said = ["[rank1]: step 3", *[f"[rank1]: {line}" for line in TRACE.splitlines()],
            "[rank0]: Some other line", KILLED]  # fmt: skip
    faults = [entry.fault for entry in catalogue.entries()]
    plain, wrapped = (
        diagnose(gather_bytes({"job.log": _log(said, how)}), faults).diagnoses
        for how in ("plain", wrap)
    )
    assert plain
    assert plain == wrapped


def test_a_traceback_within_one_record_is_read_whole() -> None:
    long = "\n".join(["Traceback (most recent call last):",
                      *(f'  File "lib{n}.py", line {n}, in f{n}\n{" " * 90}x' for n in range(25)),
                      'KeyError: "<lost>"'])  # fmt: skip
    lines = [json.dumps({"event": "start", "rank": rank, "level": "info"}) for rank in range(4)]
    lines.append(json.dumps({"event": "crash", "rank": 2, "level": "error", "exc_info": long}))
    lines += [json.dumps({"event": "more", "rank": 2, "level": "info"})] * 3
    found = gather_bytes({"job.log": "\n".join(lines).encode()})
    (raised,) = found.raised
    assert (raised.kind, raised.text, raised.rank, raised.line.number) == (
        "KeyError", '"<lost>"', 2, 5)  # fmt: skip
    assert raised.frames[0].file == "lib24.py"


@pytest.mark.parametrize(("minutes", "backwards"), [(range(9, 0, -1), True), (range(1, 10), False)])
def test_records_with_the_newest_first_are_named(minutes: range, backwards: bool) -> None:
    lines = [
        json.dumps({"textPayload": f"step {n}", "timestamp": f"2026-11-15T01:{n:02}:03Z"})
        for n in minutes
    ]
    (source,) = gather_bytes({"job.log": "\n".join(lines).encode()}).sources
    assert ("newest to the oldest" in source.problem) is backwards


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "message",
                    "log",
                    "time",
                    "rank",
                    "host",
                    "kubernetes",
                    "process",
                    "exc_info",
                    "level",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(_VALUES)
def test_never_raises_and_always_gives_single_lines(value: object) -> None:
    for line in records.texts(json.dumps(value)):
        assert "\n" not in line and "\r" not in line  # noqa: PT018
        head(line)
