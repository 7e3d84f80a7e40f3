"""Containers run what the Dockerfile of their image says."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.analysis.source.source import LintingMachine
from holdfast.lint.config import LintConfig
from holdfast.lint.session import LintSession
from holdfast.lint.walk import FoundFile

SHELL = "torchrun --nnodes ${NODES:-2} --nproc-per-node 4 --node-rank $R --master-addr $M train.py"
DOCKERFILE = f"FROM pytorch/pytorch\nENV A=1\nRUN pip install x\nCMD {SHELL}\n"
SERVICES = """
services:
  one:
    build: .
    image: trainer
    environment: {R: 0, M: one}
  two:
    image: trainer
    environment: {R: SECOND, M: one}
"""
ERROR = ("compose.yaml", 8, "one (line 2) and two are both --node-rank 0")


def found(folder: Path, **files: str) -> list[tuple[str, int, str]]:
    paths = []
    for name, text in files.items():
        paths.append(folder / name.replace("_", "."))
        paths[-1].write_text(text.lstrip("\n"))
    session = LintSession(["rendezvous-config", "dns-failure"], LintConfig(), LintingMachine())
    session.files([FoundFile(str(path), named=True) for path in paths], lambda _: None)
    return [
        (Path(one.finding.place.file).name, one.finding.place.line, one.finding.summary)
        for one in session.report().findings
        if one.finding.place
    ]


@pytest.mark.parametrize(
    ("dockerfile", "compose", "expected"),
    [
        (DOCKERFILE, SERVICES.replace("SECOND", "0"), [ERROR]),
        (DOCKERFILE, SERVICES.replace("SECOND", "1"), []),
        (DOCKERFILE, SERVICES.replace("SECOND", "${R}"), []),
        # the exec form fills no variable in
        (DOCKERFILE.replace(SHELL, str(SHELL.split()).replace("'", '"')), SERVICES, []),
        # what the container runs is said there
        (DOCKERFILE, SERVICES.replace("SECOND", "0").replace("  two:", "    command: x\n  two:"), [
            ("compose.yaml", 7, "torchrun waits for 2 nodes, but this file starts 1")]),
        # an image's own value that a container replaces was filled in before
        (DOCKERFILE.replace("A=1", "R=0"), SERVICES.replace("SECOND", "0"), []),
        (DOCKERFILE.replace("torchrun ", "torchrun $MORE "), SERVICES.replace("SECOND", "0"), []),
        (DOCKERFILE.replace("CMD", "RUN"), SERVICES.replace("SECOND", "0"), []),
    ],
)  # fmt: skip
def test_services_of_one_image(
    tmp_path: Path, dockerfile: str, compose: str, expected: list[tuple[str, int, str]]
) -> None:
    assert found(tmp_path, Dockerfile=dockerfile, compose_yaml=compose) == expected


POD = """
apiVersion: batch/v1
kind: Job
spec:
  parallelism: 3
  completions: 3
  template: {spec: {containers: [{name: main, image: trainer, env: [{name: R, value: '1'}]}]}}
"""


@pytest.mark.parametrize(
    ("build", "summary"),
    [
        ("docker build -t trainer .", "all 3 pods of Job are --node-rank 1"),
        ("docker buildx build --tag trainer --file Dockerfile .", "all 3 pods"),
        ("docker build -t other .", ""),
        ("docker build -t trainer -f Other .", ""),
        ("docker build -t trainer --target build .", ""),
        ("docker build -t $NAME .", ""),
    ],
)
def test_pods_of_an_image_that_a_script_builds(tmp_path: Path, build: str, summary: str) -> None:
    said = found(tmp_path, Dockerfile=DOCKERFILE, job_yaml=POD, build_sh=build)
    assert bool(said) == bool(summary)
    assert not summary or any(one[2].startswith(summary) for one in said)


SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: master}\nspec: {ports: [{port: PORT}]}\n"
MEETS = POD.replace("env: [{name: R, value: '1'}]", "command: [torchrun, --master-addr=master]")


def test_manifests_of_a_folder_know_each_others_services(tmp_path: Path) -> None:
    other = SERVICE.replace("PORT", "23456")
    with_port = MEETS.replace("=master]", "=master, --nnodes=3, --master-port=29500, t.py]")
    (one,) = found(tmp_path, job_yaml=with_port, service_yaml=other)
    assert one[2] == "the service master passes on port 23456, not the master's port 29500"
    assert found(tmp_path, job_yaml=with_port, service_yaml=SERVICE.replace("PORT", "29500")) == []
    twice = {"a_yaml": other, "b_yaml": SERVICE.replace("PORT", "1")}
    assert found(tmp_path, job_yaml=with_port, **twice) == []
