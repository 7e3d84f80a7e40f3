"""tools/knowledge.py: what it says where torch, NCCL or the index differ from the tables."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.system.elf_files import elf_bytes
from tools import (
    knowledge,
    knowledge_nccl,
    knowledge_torch,
    nccl_library,
    refresh_releases,
    wordings,
)

DEFAULT_20, DEFAULT_0 = b"\xbe\x14\0\0\0", b"\x31\xf6"
DEFAULT_MINUS_2 = b"\x48\xc7\xc6\xfe\xff\xff\xff"
LONG_DEFAULT = b"\x48\xbe" + struct.pack("<q", 1 << 40)


def a_library(*reads: tuple[str, bytes], holds: tuple[str, ...] = ()) -> bytes:
    """Code that reads these variables, each with the instruction that sets its default."""
    texts = [*(name for name, _ in reads), *holds]
    constants, places = b"\0", {}
    for text in texts:
        places[text] = len(constants)
        constants += text.encode() + b"\0"
    code = b""
    for name, default in reads:
        code += default + b"\x48\x8d\x3d"
        code += struct.pack("<i", places[name] - len(code) - 4)
        code += b"\xe8\0\0\0\0" + b"\x90" * 30
    return elf_bytes(constants, code=code)


def test_a_library_tells_which_variables_it_reads_and_their_defaults(tmp_path: Path) -> None:
    reads = [
        ("NCCL_A", DEFAULT_20),
        ("NCCL_B", DEFAULT_0),
        ("NCCL_C", DEFAULT_MINUS_2),
        ("NCCL_D", LONG_DEFAULT),
        ("NCCL_TEXT", b""),
        ("NCCL_TWO", DEFAULT_20),
        ("NCCL_TWO", DEFAULT_0),
    ]
    held = ("NCCL_ONLY_PRINTED", "NCCL_DEBUG", "NOT_NCCL_X")
    (tmp_path / "libnccl.so.2").write_bytes(a_library(*reads, holds=held))
    assert nccl_library.variables(tmp_path / "libnccl.so.2") == {
        "NCCL_A": 20,
        "NCCL_B": 0,
        "NCCL_C": -2,
        "NCCL_D": 1 << 40,
        "NCCL_DEBUG": None,  # of the registry, which no call names
        "NCCL_TEXT": None,
        "NCCL_TWO": None,  # two places differ
    }


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x01\x01", b"\x7fELF\x02\x01" + b"\0" * 80])
def test_what_is_no_library_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(nccl_library.NoNcclError):
        nccl_library.variables(tmp_path / "x")


def test_what_nccl_has_and_the_table_has_not(tmp_path: Path) -> None:
    reads = [
        ("NCCL_BRAND_NEW", DEFAULT_20),
        ("NCCL_IB_RETRY_CNT", DEFAULT_20),
        ("NCCL_IB_TIMEOUT", DEFAULT_20),
        ("NCCL_BUFFSIZE", DEFAULT_MINUS_2),
    ]
    held = ("NCCL version 2.32.3+cuda13.0", " NCCL WARN ")
    (tmp_path / "libnccl.so.2").write_bytes(a_library(*reads, holds=held))
    version, found = knowledge_nccl.differences(tmp_path / "libnccl.so.2")
    assert version == "2.32.3"
    assert "variable NCCL_BRAND_NEW is read, and not in the table (default 20)" in found
    assert "variable NCCL_IB_RETRY_CNT: its default is 20, in the table 7" in found
    assert "variable NCCL_P2P_DISABLE is in the table, and not in the library" in found
    assert "text 'Connection closed by remote peer' is not in it: was it reworded?" in found
    said = "\n".join(found)
    for name in ("NCCL_IB_TIMEOUT", "NCCL_BUFFSIZE", "NCCL_RINGS", "' NCCL WARN '"):
        assert f"{name} " not in said  # as the table says; until 2.4.8; there


def test_what_torch_has_and_the_tables_have_not(tmp_path: Path) -> None:
    torch = tmp_path / "torch"
    (torch / "distributed").mkdir(parents=True)
    (torch / "version.py").write_text("__version__ = '2.15.0+cpu'\n")
    (torch / "distributed" / "run.py").write_text(
        'parser.add_argument("--nnodes", "--n_nodes")\nparser.add_argument("--brand-new")\n'
        'os.environ["TORCH_FR_BRAND_NEW"]; logger.warning("closing signal %s")\n'
    )
    header = torch / knowledge_torch.RECORDER
    header.parent.mkdir(parents=True)
    header.write_text('DEFINE_CONSTANT(version_val, "3.0")\n')
    version, found = knowledge_torch.differences(torch)
    assert version == "2.15.0+cpu"
    said = "\n".join(found)
    assert "variable TORCH_FR_BRAND_NEW is in torch, and not in the table" in found
    assert "variable TORCH_DIST_USE_NCCL2 is in the table, and not in torch" in found
    assert "torchrun --brand-new is not in the table of options" in found
    assert "torchrun --max-restarts is in the table of options, and not in torch" in found
    assert "the flight recorder writes format 3.0, read as 2.10" in said
    assert "text 'Root Cause (first observed failure):' is not in it" in said
    assert "closing signal" not in said
    assert "Aborting process on rank" not in said  # only of builds for GPUs


def test_texts_of_newer_and_older_versions_are_not_asked_for() -> None:
    assert all(len(row) == 4 for row in wordings.rows())
    assert wordings.missing("nccl", "2.31.2", [b""]) != []
    assert "ATTN" not in "".join(wordings.missing("nccl", "2.31.2", [b""]))
    assert "ATTN" in "".join(wordings.missing("nccl", "2.32.3", [b""]))


def test_exit_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = ["--offline", "--torch", str(tmp_path / "torch"), "--nccl", str(tmp_path / "nccl")]
    assert knowledge.main(nowhere) == 2
    assert "give --torch FOLDER or --nccl FILE" in capsys.readouterr().out
    (tmp_path / "nccl").write_bytes(b"text")
    assert knowledge.main(nowhere) == 2
    assert "cannot be compared: not a 64-bit little-endian ELF file" in capsys.readouterr().out
    monkeypatch.setattr(knowledge_nccl, "differences", lambda _: ("2.32.3", []))
    assert knowledge.main(nowhere) == 0
    assert "all agrees" in capsys.readouterr().out
    monkeypatch.setattr(knowledge_nccl, "differences", lambda _: ("2.33.1", ["variable X is new"]))
    assert knowledge.main(nowhere) == 1
    assert "  variable X is new\n1 to look at" in capsys.readouterr().out


def test_a_newer_release_on_the_index_is_fetched_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    published = {"nvidia-nccl-cu13": ["2.32.3", "2.99.1", "2.99.2rc1"], "nvidia-nccl-cu12": []}
    monkeypatch.setattr(refresh_releases, "ask_pypi", published.__getitem__)
    fetched = []

    def fetch(package: str, version: str, _: Path) -> Path:
        fetched.append((package, version))
        return tmp_path

    monkeypatch.setattr(knowledge, "fetch", fetch)
    (tmp_path / knowledge_nccl.IN).parent.mkdir(parents=True)
    (tmp_path / knowledge_nccl.IN).write_bytes(b"")
    monkeypatch.setattr(knowledge_nccl, "differences", lambda _: ("2.99.1", ["variable X is new"]))
    assert knowledge.compare_newer("NCCL") == 2
    assert fetched == [("nvidia-nccl-cu13", "2.99.1")]
    assert "NCCL 2.99.1 is on the index, the tables are of 2.32.3" in capsys.readouterr().out
    published["nvidia-nccl-cu13"] = ["2.32.3"]
    assert knowledge.compare_newer("NCCL") == 0
    assert "nothing newer than 2.32.3" in capsys.readouterr().out


def test_an_index_that_does_not_answer_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreachable(_: str) -> list[str]:
        raise OSError("Name or service not known")

    monkeypatch.setattr(refresh_releases, "ask_pypi", unreachable)
    assert knowledge.compare_newer("torch") is None
    assert "could not be asked about torch: Name or service" in capsys.readouterr().out


@pytest.mark.long
def test_the_installed_torch_agrees_with_the_tables() -> None:
    assert knowledge.main(["--offline"]) == 0
