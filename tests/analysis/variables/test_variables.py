"""The table of variables agrees with itself and with the torch that is installed."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import mmap
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis import variables
from holdfast.analysis.nccl_numbers import nccl_int
from holdfast.analysis.variables import parsing, values
from holdfast.analysis.variables.table import FILES, FOLDER, parse, tables
from holdfast.analysis.versions import release

ROWS = list(variables.everything().values())
TORCH = release(importlib.metadata.version("torch"))
"""not imported: it takes seconds. The table is of a newer one."""
WORDS = [re.compile(stem + rb"[A-Z0-9_]+") for stem in (b"TORCH", b"NCCL_", b"GLOO_")]
"""each begins with fixed letters, which `re` finds quickly in a large library"""
READS = re.compile(rb"(?:environ|getenv|get_env)\W{1,6}(?:get\W{1,4})?[\"']([A-Z0-9_]+)[\"']")


@pytest.fixture(scope="module")
def torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")  # finds the folder, imports nothing
    if spec is None or spec.origin is None:
        pytest.skip("needs torch installed")
    return Path(spec.origin).parent


def content_of(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def words_in(path: Path) -> set[str]:
    """Words that may name a variable; not after a digit, which is a C++ symbol: 24TORCH_…E."""
    with content_of(path) as content:
        return {
            match[0].decode()
            for pattern in WORDS
            for match in pattern.finditer(content)
            if not content[max(match.start() - 1, 0) : match.start()].isdigit()
        }


def names_read_in(path: Path) -> set[str]:
    with content_of(path) as content:
        return {match.decode() for match in READS.findall(content)}


def test_each_row_is_complete() -> None:
    for row in ROWS:
        assert row.source, row
        assert row.effect, row
        assert re.fullmatch(r"[A-Z][A-Z0-9_]*\*?", row.name), row
        assert not row.since or release(row.since), row
        assert not row.instead or variables.lookup(row.instead), row


def test_names_are_unique() -> None:
    names = [row.name for row in tables().rows]
    assert sorted(names) == sorted(set(names))


def test_every_file_is_read_and_dated() -> None:
    assert sorted(FILES) == sorted(path.name for path in FOLDER.iterdir())
    for name in FILES:
        assert re.search(r"^# as of \d{4}-\d\d-\d\d", (FOLDER / name).read_text(), re.M), name


def test_every_row_has_a_reader_and_a_prefix_has_a_version() -> None:
    assert all(row.reader for row in ROWS)
    assert all(tables().version_of_prefix.values())


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("NCCL_X\t2.1\t\t1", "4 columns, expected 5"),
        ("NCCL_X\t2.1\tgone\t1\twhat it does", "NCCL_X: state 'gone'"),
    ],
)
def test_a_line_written_otherwise_is_refused(line: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse(["# reader: NCCL", line])


def test_states() -> None:
    lines = ["A\t\tuntil 2.4 use B\t\tx", "B\t\tuse C\t\tx", "C\t\tobsolete\t\tx"]
    first, second, third = parse(["# reader: NCCL", *lines]).rows
    assert (first.until, first.instead, first.obsolete) == ("2.4", "B", False)
    assert (second.until, second.instead) == ("", "C")
    assert third.obsolete


def test_each_prefix_is_covered() -> None:
    for prefix in variables.prefixes():
        assert [row for row in ROWS if row.is_read and row.name.startswith(prefix)], prefix


def test_lookup_finds_exact_names_before_families() -> None:
    exact = variables.lookup("ACCELERATE_DEEPSPEED_ZERO_STAGE")
    family = variables.lookup("ACCELERATE_DEEPSPEED_SOMETHING_NEW")
    assert exact is not None
    assert exact.default == "2"
    assert family is not None
    assert family.name == "ACCELERATE_DEEPSPEED_*"
    assert variables.lookup("NCCL_NO_SUCH_THING") is None


def test_prefix_of_takes_the_longest() -> None:
    assert variables.prefix_of("TORCH_NCCL_BLOCKING_WAIT") == "TORCH_NCCL_"
    assert variables.prefix_of("NCCL_DEBUG") == "NCCL_"
    assert variables.prefix_of("LD_LIBRARY_PATH") == ""


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("NCCL_SOKCET_IFNAME", "NCCL_SOCKET_IFNAME"),
        ("nccl_debug", "NCCL_DEBUG"),
        ("NCCL_DEBUG ", "NCCL_DEBUG"),
        ("PET_NPROC_PER_NODES", "PET_NPROC_PER_NODE"),
        ("NCCL_COMPLETELY_DIFFERENT", ""),
    ],
)
def test_nearest(slip: str, meant: str) -> None:
    assert variables.nearest(slip) == meant


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("NCL_DEBUG", "NCCL_DEBUG"),
        ("NCLL_DEBUG", "NCCL_DEBUG"),
        ("OMP_NUM_THREAD", "OMP_NUM_THREADS"),
        ("OPM_NUM_THREADS", "OMP_NUM_THREADS"),
        ("CUDA_VISIBLE_DEVCIES", "CUDA_VISIBLE_DEVICES"),
        ("MASTER_ADR", "MASTER_ADDR"),
        # names of other programs, of the user, and right ones
        *[(name, "") for name in ("RCCL_DEBUG", "HCCL_SOCKET_IFNAME", "CCL_DEBUG", "MCCL_DEBUG")],
        *[(name, "") for name in ("UCC_LOG_LEVEL", "KMP_STACKSIZE", "PMIX_RANK", "HF_HOME")],
        *[(name, "") for name in ("MASTER_PORTS", "LOCAL_RANKS", "NUM_NODES", "NCCL_IB_HCA2")],
        *[(name, "") for name in ("NCCL_DEBUG", "OMP_NUM_THREADS", "SLURM_NTASK", "HOME")],
    ],
)
def test_a_slip_is_known_behind_any_prefix(slip: str, meant: str) -> None:
    assert variables.misspelt(slip) == meant


def test_no_known_name_is_a_slip_of_another() -> None:
    """Each of them is a proof that names so close to each other do exist."""
    assert [row.name for row in ROWS if variables.misspelt(row.name)] == []


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("NCCL_IB_DISABLE", "true", True),
        ("NCCL_P2P_DISABLE", "Yes", True),
        ("NCCL_RAS_ENABLE", "on", True),
        ("NCCL_IB_DISABLE", "1", False),
        ("NCCL_IB_DISABLE", "0x1", False),
        ("NCCL_IB_DISABLE", "false", False),  # 0 is what it says
        ("NCCL_SET_THREAD_NAME", "true", False),  # read as a word since 2.30
        ("NCCL_RUN_DIAGNOSTICS", "true", False),  # newer than what was looked at
        ("NCCL_DEBUG", "true", False),
        ("NCCL_P2P_LEVEL", "on", False),
        ("TORCH_NCCL_BLOCKING_WAIT", "true", False),  # torch takes words
    ],
)
def test_words_where_nccl_reads_a_number(name: str, value: str, word: bool) -> None:
    row = variables.lookup(name)
    assert row is not None
    assert values.word_for_one(row, value) is word
    assert not word or nccl_int(value) == 0


def test_nothing_that_no_program_reads_is_suggested() -> None:
    myths = [row.name for row in ROWS if not row.is_read]
    assert "NCCL_REUSE_SOCKET_ADDR" in myths
    assert [name for name in myths if variables.nearest(name) in myths] == []


def test_import_is_light() -> None:
    """The table is parsed when it is first asked, and torch is never touched."""
    code = (
        "import sys, holdfast.analysis.variables as v\n"
        "assert v.everything.cache_info().currsize == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


# --- against the installed torch ---------------------------------------------------------------


@pytest.fixture(scope="module")
def library_words(torch_folder: Path) -> set[str]:
    """Read once: libtorch_cpu.so has hundreds of megabytes."""
    names = ("libtorch_cpu.so", "libtorch_python.so", "libc10.so")
    return set().union(*(words_in(torch_folder / "lib" / name) for name in names))


def test_the_names_in_the_libraries_of_torch_are_known(library_words: set[str]) -> None:
    """Those of the recorder and of Gloo; other words with these prefixes are macros and texts."""
    judged = ("TORCH_FR_", "TORCH_GLOO_", "TORCH_DISTRIBUTED_", "TORCHELASTIC_", "TORCH_NCCL_")
    found = {word for word in library_words if word.startswith(judged) and word[-1] != "_"}
    assert "TORCH_FR_BUFFER_SIZE" in found
    assert [name for name in found if variables.lookup(name) is None] == []


def test_every_variable_that_torch_distributed_reads_is_known(torch_folder: Path) -> None:
    read: set[str] = set()
    for file in (torch_folder / "distributed").rglob("*.py"):
        if file.stat().st_size:
            read |= {name for name in names_read_in(file) if variables.prefix_of(name)}
    assert "TORCH_DIST_INIT_BARRIER" in read
    assert [name for name in read if variables.lookup(name) is None] == []


def test_every_row_of_torch_is_in_the_installed_torch(
    torch_folder: Path, library_words: set[str]
) -> None:
    """Of a CPU build: cuda/nccl.cpp is not compiled into it, and Gloo's TLS is optional."""
    texts = [*torch_folder.glob("distributed/**/*.py"), torch_folder / "compiler/config.py"]
    texts += (torch_folder / "include/torch/csrc/distributed/c10d").glob("*.hpp")
    held = library_words.union(*(words_in(text) for text in texts if text.stat().st_size))
    claimed = {
        row.name
        for row in ROWS
        if row.reader in ("PyTorch", "Gloo in PyTorch", "torchrun")
        and not row.name.endswith("*")
        and not row.name.startswith("PET_")
        and "cuda/nccl.cpp" not in row.source
        and not row.obsolete
        and release(row.since) <= TORCH
    }
    assert len(claimed) > 50
    # A linker may keep NCCL_BLOCKING_WAIT only as the tail of TORCH_NCCL_BLOCKING_WAIT.
    assert [n for n in sorted(claimed - held) if not any(w.endswith(n) for w in held)] == []


def test_every_other_row_of_torch_is_read_by_its_python_files_or_libraries(
    torch_folder: Path,
) -> None:
    places = [torch_folder / "lib" / "libc10.so"]
    for part in ("", "_logging", "compiler", "cuda", "utils", "distributed/**"):
        places += torch_folder.glob(f"{part}/*.py" if part else "*.py")
    places.append(torch_folder / "lib" / "libtorch_cpu.so")  # the largest last, for what is left
    claimed = {
        row.name
        for row in ROWS
        if row.reader in ("torch.distributed", "your script", "torch itself")
        and not row.name.endswith("*")
        and release(row.since) <= TORCH
    }
    missing = set(claimed)
    for place in places:
        if place.stat().st_size:
            with content_of(place) as content:
                missing -= {name for name in missing if content.find(name.encode()) >= 0}
    assert len(claimed) > 20
    assert missing == set()


def test_pet_rows_are_exactly_the_flags_of_torchrun(torch_folder: Path) -> None:
    tree = ast.parse((torch_folder / "distributed" / "run.py").read_text(encoding="utf-8"))
    read = {
        "PET_" + _destination(call)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and _keyword(call, "action") in ("env", "check_env")
    }
    known = {row.name: row for row in ROWS if row.is_read and row.name.startswith("PET_")}
    assert {name for name, row in known.items() if release(row.since) <= TORCH} == read


def _keyword(call: ast.Call, name: str) -> str:
    found = [k.value for k in call.keywords if k.arg == name]
    return found[0].id if found and isinstance(found[0], ast.Name) else ""


def _destination(call: ast.Call) -> str:
    """argparse: the first long option, dashes to underscores."""
    options = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
    first = next(str(option) for option in options if str(option).startswith("--"))
    return first[2:].replace("-", "_").upper()


# --- how values are read -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "boolean", "integer", "nccl"),
    [
        ("1", True, 1, 1),
        ("TRUE", True, None, 0),
        ("f", False, None, 0),
        ("0", False, 0, 0),
        (" 12abc", None, 12, 12),
        ("0x10", None, 0, 16),
        ("010", None, 10, 8),
        ("-3", None, -3, -3),
        ("", None, None, 0),
        ("on", None, None, 0),
    ],
)
def test_values(text: str, boolean: bool | None, integer: int | None, nccl: int) -> None:
    assert parsing.torch_bool(text) is boolean
    assert parsing.torch_int(text) == integer
    assert nccl_int(text) == nccl


@given(st.integers(-(2**31), 2**31 - 1), st.sampled_from(["", " ", "\t"]), st.text(max_size=3))
def test_numbers_survive(number: int, before: str, after: str) -> None:
    text = f"{before}{number}"
    assert parsing.torch_int(text) == nccl_int(text) == number
    parsing.torch_int(text + after)
    nccl_int(text + after)


@given(st.text())
def test_nothing_makes_the_readers_raise(text: str) -> None:
    assert parsing.torch_bool(text) in (True, False, None)
    assert parsing.torch_int(text) is None or isinstance(parsing.torch_int(text), int)
    assert isinstance(nccl_int(text), int)
    assert variables.prefix_of(text) in ("", *variables.prefixes())
    variables.lookup(text)
