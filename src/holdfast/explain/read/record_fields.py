"""What the fields of a log record mean: text, writer, time, exception. Pure.

The names are those of Docker's json-file, Kubernetes agents (fluentd, fluent bit, vector), journald
(`-o json`), Cloud Logging, CloudWatch, Datadog, Elastic, Loki, and of loggers: structlog,
python-json-logger, loguru, Ray's, zap and klog.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import msgspec

_Record = Mapping[str, object]

_TEXT = ("message", "msg", "MESSAGE", "log", "event", "textPayload", "line", "@message", "body",
         "text")  # fmt: skip
_INSIDE = ("jsonPayload", "record", "_source", "event", "message", "attributes", "fields", "extra")
"""records within which the text, or more about its writer, may be"""
_RANK = ("rank", "RANK", "global_rank", "world_rank", "process_rank")
_LOCAL_RANK = ("local_rank", "LOCAL_RANK")
_PID = ("pid", "_PID", "process", "process_id", "processId", "process.pid")
_HOST = ("pod_name", "hostname", "_HOSTNAME", "host", "host.name", "node_name", "node")
_TIME = ("time", "timestamp", "@timestamp", "ts", "asctime", "date", "datetime", "time_local",
         "__REALTIME_TIMESTAMP")  # fmt: skip
_LEVELS = ("level", "levelname", "severity", "log.level", "status", "lvl")
_EXCEPTION = ("exc_info", "exception", "exc_text", "traceback", "stack_trace", "stacktrace",
              "error.stack_trace", "error.stack", "stack")  # fmt: skip
_WHY = ("error", "err", "reason", "description", "Description", "messageKind")
_DATE = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z| ?[+-]\d\d:?\d\d)?"
)
_NAME = re.compile(r"[A-Za-z0-9][\w.\-]{0,252}")
_META = frozenset((*_RANK, *_LOCAL_RANK, *_PID, *_TIME, *_LEVELS, "v", "lineno", "line", "thread",
                   "thread_id", "caller", "created", "msecs", "relativeCreated"))  # fmt: skip
_KNOWN_LEVELS = frozenset(
    ("DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL", "FATAL", "TRACE")
)
MOST_NUMBERS = 12
_UNITS = (1e17, 1e9), (1e14, 1e6), (1e11, 1e3)
"""seconds since 1970 in nano-, micro- and milliseconds: from which value on, and how many"""


class RecordFields(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    prefix: str
    """date, rank, host and pid as `line_prefix` reads them"""
    level: str = ""
    """as a prefix: where a record has one, it is a message, not a line of a stream"""
    exception: tuple[str, ...] = ()


def read(record: _Record) -> RecordFields | None:
    """None where no field is the text of a log line."""
    whole = _flat(record)
    found = next(((name, one) for name in _TEXT if isinstance(one := whole.get(name), str)), None)
    if found is None and isinstance(raw := whole.get("MESSAGE"), list):  # not UTF-8
        found = "MESSAGE", _of_bytes(raw)
    if found is None:
        return None
    name, text = found
    level = str(_first(whole, _LEVELS) or "").upper()
    known = level in _KNOWN_LEVELS and name not in ("log", "MESSAGE", "textPayload", "line")
    exception = tuple(_exception(whole, text))
    if known:
        text += _why(whole, text) + _numbers(record)
    return RecordFields(
        text=text,
        prefix=_prefix(whole),
        level=f"[{level}] " if known else "",
        exception=exception,
    )


def _flat(record: _Record) -> dict[str, object]:
    """With what stands one or two levels deeper, as far as it is about the writer."""
    whole = dict(record)
    for name in _INSIDE:
        inner = record.get(name)
        if isinstance(inner, dict):
            whole = {**whole, **{k: v for k, v in inner.items() if v is not None}}
    for name, deeper in (("kubernetes", ""), ("resource", "labels"), ("labels", "")):
        about = whole.get(name)
        about = about.get(deeper) if deeper and isinstance(about, dict) else about
        if isinstance(about, dict):
            for key in ("pod_name", "pod", "host", "node_name"):
                if about.get(key) is not None:
                    whole.setdefault("pod_name" if key == "pod" else key, about[key])
    for name, key, to in (
        ("host", "name", "host"), ("process", "pid", "pid"), ("process", "id", "pid"),
        ("time", "repr", "time"), ("level", "name", "level"), ("log", "level", "level"),
        ("error", "stack_trace", "stack_trace"), ("exception", "traceback", "traceback"),
    ):  # fmt: skip
        inner = whole.get(name)
        if isinstance(inner, dict) and inner.get(key) is not None:
            whole[to] = inner[key]
    return whole


def _prefix(record: _Record) -> str:
    rank, local = _number(_first(record, _RANK)), _number(_first(record, _LOCAL_RANK))
    host, pid = _host(record), _number(_first(record, _PID))
    if record.get("_TRANSPORT") == "stdout":  # journald knows who opened the stream: a launcher
        pid = None
    said = f"{_date(record)} "
    if record.get("_TRANSPORT") == "kernel" or record.get("SYSLOG_IDENTIFIER") == "kernel":
        return f"{said}{host or 'localhost'} kernel: "
    said += f"[local{local}]:" if local is not None else ""
    said += f"[rank{rank}]: " if rank is not None else ""
    if pid is not None:
        said += f"(process pid={pid}{f', ip={host}' if host else ''}) "
    elif host:
        said += f"[pod/{host}/log] "
    return said.lstrip()


def _date(record: _Record) -> str:
    value = _first(record, _TIME)
    if isinstance(value, str) and (date := _DATE.match(value)):
        return date[0]
    try:
        seconds = float(value) if isinstance(value, str | int | float) else math.nan
        seconds /= next((unit for least, unit in _UNITS if seconds >= least), 1)
        if seconds < 1e9:
            return ""
        moment = dt.datetime.fromtimestamp(seconds, tz=dt.timezone.utc)
    except (ValueError, OverflowError, OSError):
        return ""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")


def _host(record: _Record) -> str:
    values = (record.get(name) for name in _HOST)
    return next((one for one in values if isinstance(one, str) and _NAME.fullmatch(one)), "")


def _number(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    ours = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9
    return cast("int", value) if ours else None


def _first(record: _Record, names: Sequence[str]) -> object:
    return next((record[name] for name in names if record.get(name) is not None), None)


def _of_bytes(values: list[object]) -> str:
    kept = [one for one in values if isinstance(one, int) and 0 <= one < 256]
    return bytes(kept).decode("utf-8", "replace")


def _why(record: _Record, text: str) -> str:
    """zap, structlog and agents of clouds put the error or the event beside their message."""
    beside = [one for name in _WHY if isinstance(one := record.get(name), str)]
    return "".join(f": {one.strip()}" for one in beside if one not in text)


def _numbers(record: _Record) -> str:
    """`{"event": "step", "loss": NaN}`: numbers are part of what is said."""
    shown = [
        f" {name}={value}"
        for name, value in record.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in _META
    ]
    return "".join(shown[:MOST_NUMBERS])


def _exception(record: _Record, text: str) -> Iterator[str]:
    value = _first(record, _EXCEPTION)
    shown = record.get("text")
    if "record" in record and isinstance(shown, str) and "Traceback" in shown:
        value = shown[shown.index("Traceback") :]  # loguru: the message as a terminal shows it
    if isinstance(value, str) and value.strip() and value.strip() not in text:
        yield from value.rstrip().splitlines()
    elif isinstance(value, list):  # structlog's dict_tracebacks
        for one in value:
            if isinstance(one, dict) and "exc_type" in one:
                yield from _written(one)


def _written(raised: _Record) -> Iterator[str]:
    yield "Traceback (most recent call last):"
    frames = raised.get("frames")
    for frame in frames if isinstance(frames, list) else ():
        if isinstance(frame, dict):
            yield (
                f'  File "{frame.get("filename")}", line {frame.get("lineno")}, '
                f"in {frame.get('name')}"
            )
    yield f"{raised.get('exc_type')}: {raised.get('exc_value')}"
