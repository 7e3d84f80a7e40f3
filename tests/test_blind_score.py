"""tools/blind_score: only the closed set is scored, and the page says what came out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools import blind_score
from tools.blind_score import RefusedError, digest_of

IN_USE = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
    "network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, "
    "message: address already in use"
)


def case(number: int, kind: str, cause: str, log: str, **more: object) -> dict[str, Any]:
    source = f"https://example.org/thread/{number}"
    digest = digest_of(log.encode())
    return {"kind": kind, "cause": cause, "label": "strong", "source": source, "log": log,
            "digest": digest, **more}  # fmt: skip


CASES = [
    case(2, "ordinary", "port-in-use", IN_USE),
    case(4, "unusual", "disk-full", IN_USE),
    case(6, "healthy", "healthy", "epoch 1 step 10 loss 2.31\nepoch 1 step 20 loss 2.28"),
]


def written(folder: Path, cases: list[dict[str, Any]]) -> Path:
    file = folder / "X.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in cases))
    return file


def test_the_page_counts_by_kind_and_lists_every_thread(tmp_path: Path) -> None:
    file = written(tmp_path, CASES)
    digest = digest_of(file.read_bytes())
    scored = blind_score.score(blind_score.read_set(file, digest))
    told = blind_score.page("X", digest, "abc", scored, "2026-11-16")
    assert "| ordinary | 1/1 | 100 % (21-100) | 1/1 | 0 | 0/0 |" in told
    assert "| unusual | 0/1 | 0 % (0-79) | 0/1 | 1 | 0/0 |" in told
    assert "| healthy | 1/1 | 100 % (21-100) | 1/1 | 0 | 0/0 |" in told
    assert "| **confidently wrong** | unusual | disk-full (strong) | port-in-use" in told
    assert f"| https://example.org/thread/6 | `{CASES[2]['digest'][:16]}` |" in told
    assert digest in told
    assert IN_USE not in told


def test_a_set_that_changed_after_it_was_closed_is_refused(tmp_path: Path) -> None:
    digest = digest_of(written(tmp_path, CASES).read_bytes())
    changed = written(tmp_path, CASES[1:])
    with pytest.raises(RefusedError, match="is not the set that was closed"):
        blind_score.read_set(changed, digest)
    forged = written(tmp_path, [{**CASES[0], "log": "another text"}])
    with pytest.raises(RefusedError, match="thread/2: the text does not have the digest"):
        blind_score.read_set(forged, digest_of(forged.read_bytes()))


def test_a_set_without_a_row_is_not_closed(tmp_path: Path) -> None:
    table = tmp_path / "blind-closed.tsv"
    table.write_text("set\tclosed\tcases\tsha256\nX\t2026-11-16 13:50 UTC\t3\tabc\n")
    assert blind_score.closed_digest("X", table) == "abc"
    with pytest.raises(RefusedError, match="set Y is not closed"):
        blind_score.closed_digest("Y", table)


def test_a_set_is_scored_once(tmp_path: Path) -> None:
    (tmp_path / "blind-X-2026-11-16.md").write_text("scored")
    with pytest.raises(RefusedError, match="scored before"):
        blind_score.run("X", written(tmp_path, CASES), tmp_path)
