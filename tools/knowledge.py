"""What holdfast knows of torch and NCCL, compared with what they are: `make knowledge`.

    python -m tools.knowledge                     # the installed ones, then the package index
    python -m tools.knowledge --offline           # the installed ones only
    python -m tools.knowledge --torch FOLDER --nccl FILE    # unpacked wheels: …/torch, libnccl.so.2

Compared are: the tables of variables (names, and NCCL's defaults), torchrun's options, the format
of the flight recorder, and the texts that patterns of `explain` rely on. Where the index has a
newer release than the tables were read from, its wheel is fetched without dependencies (torch: half
a gigabyte) and compared as well: that is what would have to be learned. Nothing is imported or run.

Exit codes: 0 all agrees, 1 something differs, 2 nothing could be compared.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from holdfast.analysis.variables.table import tables
from holdfast.analysis.versions import release
from tools import knowledge_nccl, knowledge_torch, refresh_releases

PACKAGES = {"torch": ("torch",), "NCCL": ("nvidia-nccl-cu13", "nvidia-nccl-cu12")}
READERS = {"torch": "PyTorch", "NCCL": "NCCL"}
NOT_FETCHED = (".a", ".h", ".cuh", ".bc", ".ltoir")
"""of a wheel, what is not looked at: torch's headers are, by name"""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--torch", type=Path, metavar="FOLDER", help="a folder `torch`")
    parser.add_argument("--nccl", type=Path, metavar="FILE", help="a libnccl.so.2")
    parser.add_argument("--offline", action="store_true", help="do not ask the package index")
    asked = parser.parse_args(words)
    torch, nccl = asked.torch or installed_torch(), asked.nccl or installed_nccl()
    differing = [compare("torch", torch), compare("NCCL", nccl)]
    if not asked.offline:
        differing += [compare_newer(product) for product in PACKAGES]
    known = [number for number in differing if number is not None]
    if not known:
        print("nothing could be compared: give --torch FOLDER or --nccl FILE")
        return 2
    print("all agrees" if not any(known) else f"{sum(known)} to look at")
    return int(any(known))


def compare(product: str, place: Path | None) -> int | None:
    """Print what differs; how much does, None where there is nothing to compare with."""
    if place is None or not place.exists():
        print(f"{product}: not here{f' ({place})' if place else ''}")
        return None
    try:
        version, differences = (
            knowledge_torch.differences(place)
            if product == "torch"
            else knowledge_nccl.differences(place)
        )
    except (OSError, ValueError) as problem:
        print(f"{product}: {place} cannot be compared: {problem}")
        return None
    print(f"{product} {version or '(version unknown)'}, {place}: {len(differences) or 'no'} "
          f"difference{'' if len(differences) == 1 else 's'}")  # fmt: skip
    for line in differences:
        print(f"  {line}")
    return len(differences)


def table_version(product: str) -> str:
    return tables().version_of_reader[READERS[product]].rpartition(" ")[2]


# --- what is here --------------------------------------------------------------------------------


def installed_torch() -> Path | None:
    spec = importlib.util.find_spec("torch")  # finds the folder, imports nothing
    return Path(spec.origin).parent if spec and spec.origin else None


def installed_nccl() -> Path | None:
    torch = installed_torch()
    found = sorted(torch.parent.glob("nvidia/nccl/lib/libnccl.so.2")) if torch else []
    return found[0] if found else None


# --- what the package index has ------------------------------------------------------------------


def compare_newer(product: str) -> int | None:
    newest = ("", "")
    for package in PACKAGES[product]:
        try:
            versions = refresh_releases.ask_pypi(package)
        except OSError as problem:
            print(f"{product}: the package index could not be asked about {package}: {problem}")
            return None
        plain = [version for version in versions if version.replace(".", "").isdecimal()]
        best = max(plain, key=release, default="")
        newest = max(newest, (best, package), key=lambda pair: release(pair[0]))
    version, package = newest
    if release(version) <= release(table_version(product)):
        print(f"{product}: the index has nothing newer than {table_version(product)}")
        return 0
    print(f"{product} {version} is on the index, the tables are of {table_version(product)}:")
    with tempfile.TemporaryDirectory(prefix="holdfast-knowledge-") as folder:
        place = fetch(package, version, Path(folder))
        if place is None:
            return 1
        different = compare(product, place / ("torch" if product == "torch" else knowledge_nccl.IN))
    return 1 + (different or 0)


def fetch(package: str, version: str, folder: Path) -> Path | None:
    """The wheel's files that are looked at."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary",
               ":all:", "--dest", str(folder), f"{package}=={version}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        said = done.stderr.strip().rpartition("\n")[2]
        print(f"  {package} {version} could not be fetched: {said}")
        return None
    with zipfile.ZipFile(wheels[0]) as wheel:
        for name in wheel.namelist():
            if name.endswith(NOT_FETCHED) and not name.endswith("c10d/FlightRecorder.hpp"):
                continue
            wheel.extract(name, folder)
    wheels[0].unlink()
    return folder


if __name__ == "__main__":
    sys.exit(main())
