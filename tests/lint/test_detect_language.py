"""Which language: by name, then by content, and None for what is none of ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.lint import detect_language
from holdfast.lint.detect_language import Language


@pytest.mark.parametrize(
    ("path", "language"),
    [
        ("train.py", Language.PYTHON),
        ("a/b/TRAIN.PY", Language.PYTHON),
        ("launch.sh", Language.SHELL),
        ("job.sbatch", Language.SHELL),
        ("job.slurm", Language.SHELL),
        ("Dockerfile", Language.DOCKERFILE),
        ("Dockerfile.gpu", Language.DOCKERFILE),
        ("dockerfile-dev", Language.DOCKERFILE),
        ("Containerfile", Language.DOCKERFILE),
        ("gpu.dockerfile", Language.DOCKERFILE),
        ("compose.yaml", Language.COMPOSE),
        ("docker-compose.override.yml", Language.COMPOSE),
        (".env", Language.ENV_FILE),
        (".env.local", Language.ENV_FILE),
        ("gpu.env", Language.ENV_FILE),
        (".deepspeed_env", Language.ENV_FILE),
        ("nccl.conf", Language.NCCL_CONF),
        ("/etc/nccl.conf", Language.NCCL_CONF),
        (".nccl.conf", Language.NCCL_CONF),
        ("hostfile", Language.HOSTFILE),
        ("hostfile_2nodes", Language.HOSTFILE),
        ("README.md", Language.DOCUMENT),
        ("notes.txt", Language.DOCUMENT),
        ("guide.rst", Language.RST),
        ("demo.ipynb", Language.NOTEBOOK),
        ("values.yaml", None),
        ("run", None),
        ("model.bin", None),
        ("docker_utils", None),
    ],
)
def test_by_name(path: str, language: Language | None) -> None:
    assert detect_language.by_name(path) is language


@pytest.mark.parametrize(
    ("path", "text", "language"),
    [
        ("run", "#!/bin/bash -l\necho\n", Language.SHELL),
        ("run", "#!/usr/bin/env bash\n", Language.SHELL),
        ("run", "#!/usr/bin/env -S python3 -u\n", Language.PYTHON),
        ("run", "#!/opt/conda/bin/python3.11\n", Language.PYTHON),
        ("run", "#!/usr/bin/perl\nexport X=1\n", None),
        ("job", "#SBATCH --nodes=2\nsrun hostname\n", Language.SHELL),
        ("hosts", "# the nodes\nnode-a slots=8\nnode-b slots=8\n", Language.HOSTFILE),
        ("hosts", "node-a:4\nnode-b:4\n", Language.HOSTFILE),
        ("hosts", "127.0.0.1 localhost\n", None),
        ("settings.conf", "# ours\nNCCL_DEBUG=WARN\nNCCL_IB_HCA==mlx5_0\n", Language.NCCL_CONF),
        ("other.conf", "NCCL_DEBUG=WARN\n[section]\n", None),
        ("image", "FROM debian:12\nRUN true\n", Language.DOCKERFILE),
        ("stack.yml", "services:\n  a: {image: b}\n", Language.COMPOSE),
        ("pod.yaml", "apiVersion: v1\nkind: Pod\n", Language.YAML),
        ("acc.yaml", "distributed_type: MULTI_GPU\nnum_processes: 8\n", Language.YAML),
        ("values.yaml", "learning_rate: 1\n", None),
        ("LICENSE", "import nothing\nAll rights\n", None),
        ("empty", "", None),
    ],
)
def test_by_content(path: str, text: str, language: Language | None) -> None:
    assert detect_language.by_content(path, text) is language


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("$ torchrun train.py\n", Language.SHELL),
        ("export NCCL_DEBUG=INFO\n", Language.SHELL),
        ("pip install torch==2.9.1\n", Language.SHELL),
        ("pkill -f train.py\n", Language.SHELL),
        ("pkill: only one pattern can be provided\n", None),
        ("import torch.distributed as dist\ndist.barrier()\n", Language.PYTHON),
        ("def f(x):\n    return x\n", Language.PYTHON),
        ("$ cat step.py\n[...]\ndef f(x):\n    return x\n", Language.SHELL),
        ("--- a/step.py\n+++ b/step.py\n@@ -1 +1 @@\n def f(x):\n", None),
        ("[rank 0/4] pid 12 gpu cuda:0\n", None),
        ("Traceback (most recent call last):\n", None),
        ("", None),
    ],
)
def test_a_block_without_a_language(text: str, language: Language | None) -> None:
    assert detect_language.of_snippet(text) is language


def test_only_what_may_be_ours_is_opened() -> None:
    assert detect_language.may_tell_by_content("jobs/launch")
    assert detect_language.may_tell_by_content("job.yaml")
    for name in ("Makefile", "GNUmakefile", "Jenkinsfile", ".bashrc", "data.json"):
        assert not detect_language.may_tell_by_content(f"a/{name}")


@given(st.text(max_size=200))
def test_any_text_has_an_answer_and_a_first_line_decides(text: str) -> None:
    for answer in (detect_language.by_content("file", text), detect_language.of_snippet(text)):
        assert answer is None or isinstance(answer, Language)
    assert detect_language.by_content("file", f"#!/bin/bash\n{text}") is Language.SHELL
    assert detect_language.by_content("file", f"#!/usr/bin/env python3\n{text}") is Language.PYTHON
