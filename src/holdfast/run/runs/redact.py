"""What a run's folder and bundle must not reveal: by the name of a thing, and by its form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.redaction import REDACTED, is_secret_name, redact

LONGEST_VALUE = 4096
SHORTEST_SECRET = 8
"""characters: a shorter value would be struck out of ordinary words"""
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)


def from_arguments(arguments: Sequence[str]) -> list[str]:
    """A command line without what looks like a secret, argument by argument."""
    shown = []
    previous = ""
    for argument in arguments:
        asks = redact(f"{previous} x").endswith(f" {REDACTED}")  # an option like --hf-token
        shown.append(REDACTED if asks and not argument.startswith("--") else from_text(argument))
        previous = argument
    return shown


RECORDED = (
    *("HOLDFAST", "NCCL_", "RCCL_", "GLOO_", "UCX_", "FI_", "CCL_", "OMPI_", "I_MPI_", "MV2_"),
    "PMI",
    *("TORCH", "PYTORCH_", "PET_", "TP_", "CUDA_", "NVIDIA_", "HIP_", "ROCR_", "HSA_", "XLA_"),
    *("SLURM", "PBS_", "LSB_", "SGE_", "KUBERNETES_", "MASTER_", "LOCAL_", "GROUP_", "ROLE_"),
    *("OMP_", "MKL_", "KMP_", "OPENBLAS_", "MALLOC_", "LD_", "LC_", "PYTHON", "CONDA_", "TRITON_"),
    *("ACCELERATE_", "FSDP_", "DEEPSPEED_", "DS_", "HOROVOD_", "TRANSFORMERS_", "TOKENIZERS_"),
    *("HF_HOME", "HF_HUB_", "HF_DATASETS_"),
)
"""how names begin of the variables that explain a run"""
RECORDED_NAMES = frozenset(
    {"RANK", "WORLD_SIZE", "NODE_RANK", "HOME", "HOSTNAME", "LANG", "PATH", "PWD", "SHELL", "TERM"}
    | {"TMPDIR", "TMP", "TEMP", "TZ", "USER", "VIRTUAL_ENV", "CUDA", "XDG_RUNTIME_DIR"}
)
NOT_RECORDED = "<not recorded>"


def for_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """All names; the values of those only that a reader of the run may need."""
    shown = from_environment(environment)
    return {
        name: value
        if value == REDACTED or name in RECORDED_NAMES or name.startswith(RECORDED)
        else NOT_RECORDED
        for name, value in shown.items()
    }


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: REDACTED if is_secret_name(name) else from_text(value[:LONGEST_VALUE])
        for name, value in sorted(environment.items())
    }


def from_text(text: str) -> str:
    return redact(_PRIVATE_KEY.sub(REDACTED, text))


def from_data(value: Any, name: str = "") -> Any:
    """Plain data of JSON; `name` is the key it is under."""
    if isinstance(value, str):
        return REDACTED if name and is_secret_name(name) else from_text(value)
    if isinstance(value, dict):
        return {key: from_data(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [from_data(item) for item in value]
    return value


def values_of(environment: Mapping[str, str]) -> list[str]:
    values = {v for name, v in environment.items() if is_secret_name(name)}
    return longest_first(v for v in values if len(v) >= SHORTEST_SECRET)


def longest_first(values: Iterable[str]) -> list[str]:
    """So that one which contains another goes as a whole."""
    return sorted(values, key=lambda v: (-len(v), v))


def from_file(name: str, content: bytes, values: Sequence[str]) -> bytes:
    """Any file is taken for text; bytes that are no text come out as they went in."""
    text = content.decode("utf-8", "surrogateescape")
    for value in values:
        text = text.replace(value, REDACTED)
    if name.endswith(".jsonl"):
        return b"\n".join(_from_json(line) for line in _bytes(text).split(b"\n"))
    return _from_json(_bytes(text)) if name.endswith(".json") else _bytes(from_text(text))


def _from_json(document: bytes) -> bytes:
    """As data, so that it stays JSON; what is none is taken for text."""
    if not document.strip():
        return document
    try:
        return msgspec.json.encode(from_data(msgspec.json.decode(document)))
    except (ValueError, RecursionError):
        return _bytes(from_text(document.decode("utf-8", "surrogateescape")))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
