"""One rule for secrets: by the names of things, and by the form of texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.redaction import REDACTED, is_secret_name, redact


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "HFTOKEN", "WANDB_API_KEY", "wandb_key", "hf.pat", "GITHUB_PAT", "auth"),
        *("MY_CREDS", "GIT_ASKPASS_PW", "MYSECRETTHING", "SLACK_WEBHOOK", "SSH_PRIVATE"),
        *("KUBECONFIG_DATA", "db_pass", "DB_PASSWORD", "passcode", "apiKey", "accessToken"),
        *("MLFLOW_TRACKING_PASSWORD", "SESSION_COOKIE", "SENTRY_DSN", "api_tokens", "MYSSHKEY"),
        *("AWS_SECRET_ACCESS_KEY", "optimizer.hf_token", "JWT", "url_sig", "ETCDCTL_USER"),
    ],
)
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("tokenizer", "max_tokens", "token_count", "tokens_per_batch", "num_tokens", "tokens"),
        *("max_new_tokens", "eos_token", "pad_token", "TOKENIZERS_PARALLELISM", "NCCL_IB_PKEY"),
        *("PWD", "OLDPWD", "lr", "author", "keyboard", "bypass", "forward_pass", "passes", ""),
        *("SSH_AUTH_SOCK", "GIT_ASKPASS", "pattern", "path", "signal", "sort_key", "keep"),
    ],
)
def test_plain_names(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "text",
    [
        *("login pass=SECRET", "{'db_pass': 'SECRET'}", "passcode: SECRET", "my_creds=SECRET"),
        *("Cookie: session=SECRET; x=SECRET", "Set-Cookie: a=SECRET; Path=/"),
        "https://x.blob.core.windows.net/c/f?sv=2024&sig=SECRET%3D&se=1",
        "https://b.s3.amazonaws.com/k?X-Amz-Signature=SECRET&x=1",
        "https://hooks.slack.com/services/T00/B00/SECRET",
        "npm_SECRET" + "a1" * 16,
        "pypi-SECRET" + "Ag-" * 16,
        "nvapi-SECRET" + "a1" * 16,
        "r8_SECRET" + "a1" * 16,
        "glsa_SECRET" + "a1" * 16,
        "db_url=postgres://u:SECRET@h",
        "eyJhbGciOiJIUzI1NiJ9.SECRET.sig",
    ],
)
def test_secret_texts(text: str) -> None:
    assert "SECRET" in text
    assert "SECRET" not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        *("backward pass: 12 ms", "forward_pass=0.3", "tests pass: 12", "bypass=1", "compass=N"),
        *("max_tokens=100", "token_count: 7", "tokenizer: gpt2", "npm_config_registry=x"),
        *("https://example.com/?page=2&lang=en", "step 3 loss 0.1", "pypi-server"),
    ],
)
def test_plain_texts(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "unit",
    [
        *("eyJ-", "eyJa", "sk-", "a://", "-token-", "token ", "cookie:", "hf_", "pass='", "?sig="),
        *("-----BEGIN ", "0a", "token=\"'", "hooks.slack.com/"),
    ],
)
def test_a_hostile_megabyte_takes_no_longer_than_any_other(unit: str) -> None:
    """Where it was quadratic, this took a quarter of an hour."""
    hostile = unit * (1_000_000 // len(unit))
    assert redact(hostile) is not None


@given(st.text(), st.text())
def test_a_text_is_only_ever_replaced_by_the_mark(before: str, after: str) -> None:
    found = redact(f"{before} hf_abcdefghijkl {after}")
    assert "hf_abcdefghijkl" not in found
    assert REDACTED in found
