"""Compose files, Kubernetes manifests and Accelerate's configuration."""

from __future__ import annotations

import itertools

import pytest

from holdfast.lint.readers import compose as compose_reader
from tests.analysis.source.made_sources import compose, shell, yaml

COMPOSE = """
x-common: &common
  ipc: host
services:
  trainer:
    <<: *common
    image: img
    network_mode: host
    privileged: true
    shm_size: 8gb
    sysctls:
      net.core.somaxconn: 1024
    ulimits: {memlock: -1, nofile: {soft: 1, hard: 2}}
    environment:
      A: 1
      B: ${B:-x}
      C: ${C}
      D:
    command: >
      bash -c "sleep 3 &&
      torchrun --nproc-per-node 8 train.py"
    deploy:
      resources:
        reservations:
          devices: [{driver: nvidia, count: 4, capabilities: [gpu]}]
  other:
    environment: [A=2, E]
    privileged: false
    entrypoint: ["torchrun"]
    command: ["--standalone", "x.py"]
"""


def test_compose_settings() -> None:
    found = [(s.name, s.value, s.known, s.place.line) for s in compose(COMPOSE).settings]
    assert found == [
        ("A", "1", True, 14),
        ("B", "x", True, 15),
        ("C", "${C}", False, 16),
        ("A", "2", True, 26),
    ]


def test_compose_services_are_containers() -> None:
    trainer, other = compose(COMPOSE).containers
    options = {(option.name, option.value, option.place.line) for option in trainer.options}
    assert (trainer.engine, trainer.service, trainer.image) == ("compose", "trainer", "img")
    assert options >= {
        ("ipc", "host", 2),
        ("network", "host", 7),
        ("privileged", "true", 8),
        ("shm-size", "8gb", 9),
        ("sysctl", "net.core.somaxconn=1024", 11),
        ("ulimit", "memlock=-1", 12),
        ("ulimit", "nofile=1:2", 12),
        ("env", "A=1", 14),
        ("gpus", "4", 24),
    }
    assert other.option("privileged") is None


def test_compose_commands() -> None:
    source = compose(COMPOSE)
    first, second = source.launches
    assert (first.place.line, first.place.column, first.script) == (20, 7, "train.py")
    assert [setting.name for setting in first.settings] == ["A", "B", "C"]
    assert second.script == "x.py"
    assert second.flag("standalone") is not None


def test_a_manifest() -> None:
    source = yaml(
        """
        kind: PyTorchJob
        spec:
          pytorchReplicaSpecs:
            Master:
              template:
                spec:
                  hostNetwork: true
                  hostIPC: false
                  containers:
                    - name: pytorch
                      image: img
                      env:
                        - name: A
                          value: "1"
                        - name: B
                          valueFrom: {fieldRef: {fieldPath: x}}
                      command: ["bash", "-c"]
                      args:
                        - |
                          sleep 5
                          torchrun train.py
                      resources: {limits: {nvidia.com/gpu: 8}}
        """
    )
    (setting,) = source.settings
    assert (setting.name, setting.value, setting.place.line) == ("A", "1", 13)
    (container,) = source.containers
    assert (container.engine, container.service) == ("kubernetes", "pytorch")
    found = [(option.name, option.value) for option in container.options]
    assert found == [("network", "host"), ("gpus", "8"), ("env", "A=1")]
    (launch,) = source.launches
    assert (launch.place.line, launch.place.column) == (21, 19)


def test_accelerates_configuration() -> None:
    (launch,) = yaml(
        """
        compute_environment: LOCAL_MACHINE
        num_machines: 2
        main_process_ip: null
        deepspeed_config:
          zero_stage: 3
        """
    ).launches
    assert launch.kind == "accelerate"
    found = [(flag.name, flag.value, flag.place.line) for flag in launch.flags]
    assert found == [
        ("compute-environment", "LOCAL_MACHINE", 1),
        ("num-machines", "2", 2),
        ("zero-stage", "3", 5),
    ]
    assert launch.machines == 2


def test_what_does_not_concern_us_holds_nothing() -> None:
    for text in ("a: [", "- 1", "%YAML 9\n--- !!python/object:os.system", "services: 1", "\t"):
        assert not compose(text).containers
        assert not yaml(text).launches


def test_bombs_stay_small() -> None:
    rows = "\n".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60))
    bomb = f"a0: &a0 [x]\n{rows}\nservices: {{x: {{command: *a59, environment: *a59}}}}"
    assert len(compose(bomb).containers) == 1
    assert compose_reader.read("[" * 50_000, "x").containers == ()
    merged = "\n".join(f"a{i}: &a{i}\n  <<: [*a{i - 1}, *a{i - 1}]" for i in range(1, 40))
    assert compose(f"a0: &a0 {{b: c}}\n{merged}\nservices: *a39").containers == ()


# --- too deep, too long --------------------------------------------------------------------------

POD = "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: a, env: [{name: A, value: b}]}]}\n"
DEEP = f"spec: {{containers: {'[' * 200}{']' * 200}}}\n"
INDENTED = "containers:\n" + "".join(f"{' ' * depth}a:\n" for depth in range(1, 500))
SCHEMA = f"kind: CustomResourceDefinition\n{DEEP}"


@pytest.mark.parametrize(
    ("text", "line", "settings"),
    [
        (DEEP, 1, 0),
        (f"{POD}---\n{DEEP}", 5, 1),  # what comes before it is read all the same
        (f"{POD}---\n{INDENTED}", 4, 1),
        (f"{POD}---\n{POD * 4000}", None, 1),
        (f"{SCHEMA}---\n{POD}", 0, 1),  # nothing runs there, so nothing is missing
        (f"{POD}---\n{SCHEMA}", 0, 1),
        (POD, 0, 1),
    ],
)
def test_what_is_not_read_is_said(text: str, line: int | None, settings: int) -> None:
    found = yaml(text)
    assert len(found.settings) == settings
    if line == 0:
        assert found.refused is None
    else:
        assert found.refused is not None
        assert "not read from here on" in found.refused.error
        assert line is None or found.refused.place.line == line


def test_a_document_that_unfolds_without_end_is_read_in_part() -> None:
    names = itertools.pairwise("abcdefghijklmnop")
    bomb = "".join(f"{name}: &{name} [*{one}{f', *{one}' * 8}]\n" for one, name in names)
    found = yaml(f"a: &a {{name: A, value: b}}\n{bomb}spec: {{containers: [{{env: *p}}]}}\n")
    assert found.refused is None  # aliases are shared, not copied

    wide = "{" + ", ".join(f"k{n}: 1" for n in range(400)) + "}"
    merged = f"m: &m {wide}\n<<: [*m{', *m' * 300}]\nspec: {{containers: []}}\n"
    merged_often = yaml(merged)
    assert merged_often.refused is not None
    assert "too many parts" in merged_often.refused.error


def test_shell_that_is_nested_too_deeply_is_read_in_part() -> None:
    deep = shell("A=1\n" + "echo $(" * 200 + "date" + ")" * 200)
    assert deep.refused is not None
    assert "nested too deeply" in deep.refused.error
    assert [setting.name for setting in deep.settings] == ["A"]
    assert shell("echo $(echo $(date))").refused is None
