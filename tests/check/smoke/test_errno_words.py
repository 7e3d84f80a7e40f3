from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine.smoke_failures import FOREIGN_STORE
from holdfast.check.smoke.errno_words import errno_in, meanings_of_errnos, translate
from tests.places import SOURCE


@pytest.mark.parametrize(
    ("text", "slug", "words"),
    [
        # as torch 2.13 said it, with a listener on the port
        (
            (
                "DistNetworkError: The server socket has failed to listen on any local network "
                "address. port: 45877, useIpv6: false, code: -98, name: EADDRINUSE, message: "
                "address already in use"
            ),
            "port-in-use",
            "EADDRINUSE",
        ),
        ("[Errno 111] connecting to 127.0.0.1:29500: Connection refused", "peer-unreachable", "re"),
        ("[Errno 110] Connection timed out", "peer-unreachable", "dropped"),
        ("[Errno 113] No route to host", "peer-unreachable", "EHOSTUNREACH"),
        ("[Errno 13] Permission denied", "permission-denied", "SELinux"),
        ("[Errno 24] Too many open files", "fd-limit", "ulimit -n"),
        ("Failed to init uv loop", "fd-limit", "limit on open files"),
        ("[Errno 12] Cannot allocate memory", "host-oom", "no memory"),
        ("[Errno 11] Resource temporarily unavailable", "process-limit", "ulimit -u"),
        ("[Errno -2] connecting to a:1: Name or service not known", "dns-failure", "resolve"),
        ("[Errno -3] Temporary failure in name resolution", "dns-failure", "resolve"),
        (
            "device.cc:84] ifa != nullptr. Unable to find address for: eth99",
            "nic-name-missing",
            "matches no interface",
        ),
        (
            (
                "Error while creating shared memory segment /dev/shm/nccl-x (size 9637888), error: "
                "No space left on device (28)"
            ),
            "shm-too-small",
            "/dev/shm",
        ),
        ("ncclInvalidUsage: Duplicate GPU detected : rank 0 and rank 1", "duplicate-gpu", "GPU"),
        ("Multiple Ranks are using the same GPU/Partition. Set NCCL_MULT", "duplicate-gpu", "GPU"),
        ("Multiple ranks detected using the same GPU on this node", "duplicate-gpu", "GPU"),
        (
            "timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:1",
            "peer-unreachable",
            "ECONNREFUSED",
        ),
        ("Ping failed, invalid value returned from server", "port-in-use", "not torch's store"),
        ("RuntimeError: holdfast: another job's store at h:1", "foreign-job-on-port", "another"),
    ],
)
def test_names_the_cause(text: str, slug: str, words: str) -> None:
    cause = translate(text)
    assert cause is not None
    assert cause.slug == slug
    assert words in cause.words


def test_a_rank_says_foreign_store_as_it_is_looked_for() -> None:
    """rank.py may import nothing of holdfast, so the words stand in two files."""
    assert FOREIGN_STORE in (SOURCE / "check" / "smoke" / "rank.py").read_text()


def test_the_first_errno_counts() -> None:
    assert errno_in("Connection refused, after 3 tries: Connection timed out") == 111
    assert errno_in("ETIMEDOUT, then ECONNREFUSED") == errno.ETIMEDOUT


@pytest.mark.parametrize("version", ["2.18.3", "2.23.4", ""])
def test_abort_from_an_old_nccl_hides_the_true_error(version: str) -> None:
    cause = translate("Call to connect returned Software caused connection abort", nccl=version)
    assert cause is not None
    assert "before 2.24" in cause.words
    assert "'refused'" in cause.words
    assert "'timed out'" in cause.words


@pytest.mark.parametrize("version", ["2.24.3", "2.28.9", "3.0.1"])
def test_abort_from_a_newer_nccl_is_what_it_says(version: str) -> None:
    cause = translate("Software caused connection abort", nccl=version)
    assert cause is not None
    assert "before 2.24" not in cause.words


@pytest.mark.parametrize(
    "text",
    ["", "ValueError: bad value", "code: -98765", "[Errno 9999] strange", "EADDRINUSEFUL"],
)
def test_is_silent_about_what_it_does_not_know(text: str) -> None:
    assert translate(text) is None


@given(st.sampled_from(sorted(meanings_of_errnos())), st.text(max_size=20))
def test_every_known_errno_is_found_by_number_name_and_words(number: int, noise: str) -> None:
    for text in (f"[Errno {number}]", errno.errorcode[number], os.strerror(number)):
        assert errno_in(text) == number
    translate(noise)  # never raises
