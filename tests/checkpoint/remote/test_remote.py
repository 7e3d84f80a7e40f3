"""Copies in an object store (moto's server): whole or not there; back when the folder is gone."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
import torch
from moto.server import ThreadedMotoServer

import holdfast
from holdfast.checkpoint.remote.remote_folder import RemoteFolder
from holdfast.checkpoint.remote.uploads import Uploads


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "anybody",
        "AWS_SECRET_ACCESS_KEY": "anything",
        "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{abs(hash(request.node.name))}"
    fsspec.filesystem("s3").mkdir(name)
    return f"s3://{name}/run"


def a_state(value: float = 0.0) -> holdfast.State:
    model = torch.nn.Linear(300, 200)
    torch.nn.init.constant_(model.weight, value)
    return holdfast.State(model=model, best=value)


def train(folder: Path, url: str, value: float, saves: int = 1, **options: int) -> None:
    state = a_state(value)
    with holdfast.Checkpoint(folder, state, every="1h", upload_to=url, **options) as ckpt:
        for _ in range(saves):
            ckpt.step()
            assert ckpt.save()


def test_a_folder_that_is_gone_comes_back_from_the_object_store(
    tmp_path: Path, bucket: str, capfd: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path / "here", bucket, 3.25, saves=2)
    shutil.rmtree(tmp_path / "here")
    state = a_state()
    with holdfast.Checkpoint(tmp_path / "here", state, upload_to=bucket) as ckpt:
        assert ckpt.resume() == 2
    assert state.model is not None
    assert torch.equal(state.model.weight, torch.full((200, 300), 3.25))  # type: ignore[arg-type]
    assert "fetching step-000000002" in capfd.readouterr().err


def test_what_is_here_comes_first(tmp_path: Path, bucket: str) -> None:
    train(tmp_path / "elsewhere", bucket, 1.0, saves=3)
    with holdfast.Checkpoint(tmp_path / "here", a_state(2.0)) as ckpt:
        ckpt.step()
        assert ckpt.save()
    state = a_state()
    with holdfast.Checkpoint(tmp_path / "here", state, upload_to=bucket) as ckpt:
        assert ckpt.resume() == 1
    assert state.extras["best"] == 2.0


def test_as_many_stay_there_as_here_and_others_objects_are_left_alone(
    tmp_path: Path, bucket: str
) -> None:
    there = RemoteFolder(bucket)
    there._files.pipe_file(there._path("step-000000001", "notes.txt"), b"mine")
    train(tmp_path / "here", bucket, 1.0, keep=2)
    state = a_state()
    with holdfast.Checkpoint(tmp_path / "here", state, keep=2, upload_to=bucket) as ckpt:
        ckpt.resume()
        for _ in range(4):
            ckpt.step()
            assert ckpt.save()
            uploads = ckpt._uploads
            assert uploads is not None
            while uploads.busy:
                uploads.poll(0.1)
    assert there.steps() == ["step-000000005", "step-000000004"]
    left = there._files.ls(there._path("step-000000001"), detail=False)
    assert [path.rpartition("/")[2] for path in left] == ["notes.txt"]


def test_without_its_manifest_nothing_there_is_a_checkpoint(tmp_path: Path, bucket: str) -> None:
    train(tmp_path / "here", bucket, 1.0, saves=2)
    there = RemoteFolder(bucket)
    there._files.rm_file(there._path("step-000000002", "manifest.json"))
    assert RemoteFolder(bucket).steps() == ["step-000000001"]


def test_the_manifest_is_the_last_to_come(tmp_path: Path, bucket: str) -> None:
    """The library's own order of calls, as the server could be asked to tell it."""
    train(tmp_path / "here", f"file://{tmp_path}/there", 1.0)
    there = RemoteFolder(bucket)
    order: list[str] = []
    files = there._files
    for name in ("put_file", "pipe_file"):
        original = getattr(files, name)

        def noted(*args: object, original: object = original, name: str = name, **options: object):  # type: ignore[no-untyped-def]
            path = str(args[1] if name == "put_file" else args[0])
            order.append(path.rpartition("/")[2])
            return original(*args, **options)  # type: ignore[operator]

        setattr(files, name, noted)
    there.upload(str(tmp_path / "here" / "step-000000001"))
    assert order[-1] == "manifest.json"
    assert len(order) == 3


def test_a_store_that_cannot_be_reached_is_not_an_empty_one(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:  # bound and not listening: refused at once
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        with (
            holdfast.Checkpoint(tmp_path / "here", a_state(), upload_to=bucket) as ckpt,
            pytest.raises(holdfast.EnvironmentFailure, match="connect"),
        ):
            ckpt.resume()


def test_a_bucket_that_is_not_there_is_said_and_training_continues(
    tmp_path: Path, bucket: str, capfd: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path / "here", "s3://no-such-bucket/run", 1.0, saves=2)
    said = capfd.readouterr().err
    assert "was not uploaded to s3://no-such-bucket/run" in said
    assert sorted(os.listdir(tmp_path / "here"))[-1] == "step-000000002"


def test_an_address_nothing_is_installed_for_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(holdfast.ConfigError, match="nosuch"):
        holdfast.Checkpoint(tmp_path, a_state(), upload_to="nosuch://bucket/run")


def test_the_uploader_ends_with_its_rank(tmp_path: Path) -> None:
    train(tmp_path / "here", f"file://{tmp_path}/there", 1.0)
    uploads = Uploads(f"file://{tmp_path}/again", keep=1, keep_every=None)
    uploads.offer(str(tmp_path / "here" / "step-000000001"))
    process = uploads._process
    assert process is not None
    assert process.stdin is not None
    os.kill(process.pid, signal.SIGSTOP)  # as if the network did not answer
    process.stdin.close()
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(20) in (0, 1)
    deadline = time.monotonic() + 20
    while uploads.busy and time.monotonic() < deadline:
        uploads.poll(0.1)
    assert not uploads.busy
