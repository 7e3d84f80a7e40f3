"""What is a secret: by the name of a thing, and by the form of a text. One rule for everything.

Command lines, settings, journals, bundles and the configuration in a checkpoint's manifest all ask
here. Pure, and linear in the length of the text: logs of many megabytes go through it.
"""

from __future__ import annotations

import re

REDACTED = "<redacted>"

# In a text, or on a command line, a name is secret when it *ends* in one of these: --hf-token and
# WANDB_API_KEY are, --tokenizer and --max-tokens are not.
SENSITIVE = (
    r"(?:token|secret|passw(?:or)?d|passphrase|passcode|pwd|psk|jwt|credentials?|creds|auth"
    r"|etcdctl_user"  # NAME:PASSWORD
    r"|(?:api|access|secret|private|auth|account|wandb)[-_]?key)"
)

# --- names -------------------------------------------------------------------------------------

_SECRET_PART = re.compile(
    r"secret|passw(?:or)?d|passphrase|passcode|credential|webhook|apikey|api_key|accesskey|privatekey"
)
"""in a name wherever it is: MYSECRETTHING"""
_SECRET_WORDS = frozenset({"creds", "cred", "jwt", "psk", "bearer", "cookie", "cookies"})
"""one of the words of a name"""
_SECRET_LAST = frozenset(
    {"token", "key", "keys", "auth", "pass", "pw", "pwd", "pat", "dsn", "salt"}
    | {"sig", "signature", "private"}
)
"""the last word: hf_token is a secret, token_count and tokenizer are not"""
_PLAIN_BEFORE = frozenset(
    {"pad", "eos", "bos", "unk", "mask", "sep", "cls", "image", "audio", "video", "special"}
    | {"start", "end", "stop", "sort", "label", "text", "primary", "public", "forward", "backward"}
)
"""eos_token and sort_key are parts of a model or a table"""
_TOKENS_BEFORE = frozenset(
    {"api", "access", "auth", "hf", "refresh", "session", "bot", "user", "github", "my"}
)
"""max_tokens and num_tokens are counts; api_tokens are not"""
# HFTOKEN, MYSSHKEY; NCCL_IB_PKEY is a number, and not a key of that kind
_SECRET_END = re.compile(rf"{SENSITIVE}$|(?<!_p)key$")
_PLAIN = frozenset({"PWD", "OLDPWD", "key", "keys"})
"""folders, though 'pwd' is a password's name elsewhere; and what tables and stores have"""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def is_secret_name(name: str) -> bool:
    """Whether the value of such a variable or key must not be shown, whatever it looks like."""
    if name in _PLAIN:
        return False
    words = [word.lower() for word in _WORDS.findall(name[:256])] or [""]
    joined = "_".join(words)
    if _SECRET_PART.search(joined.replace("_", "")) or _SECRET_WORDS & set(words):
        return True
    if "kubeconfig" in words and words[-1] == "data":
        return True
    before = words[-2] if len(words) > 1 else ""
    if words[-1] == "tokens":
        return before in _TOKENS_BEFORE
    if before in _PLAIN_BEFORE:
        return False
    return words[-1] in _SECRET_LAST or _SECRET_END.search(joined) is not None


# --- texts -------------------------------------------------------------------------------------

_QUOTED_OR_BARE = r"""(?:"[^"]*"?|'[^']*'?|[^\s"']+)"""
_IN_TEXT = (
    # scheme://user:password@host
    (re.compile(r"(\w://)[^\s/?#]*@"), rf"\1{REDACTED}@"),
    # hooks.slack.com/services/…, discord.com/api/webhooks/…
    (
        re.compile(
            r"(hooks\.slack\.com/|discord(?:app)?\.com/api/webhooks/|\.webhook\.office\.com/)"
            r"[^\s\"'<>]+"
        ),
        rf"\1{REDACTED}",
    ),
    # ?sig=…&X-Amz-Signature=…
    (
        re.compile(
            r"([?&;](?:sig|signature|x-(?:amz|goog)-(?:signature|credential|security-token)"
            r"|code|key|(?:access_)?token)=)[^&\s\"'#<>]+",
            re.IGNORECASE,
        ),
        rf"\1{REDACTED}",
    ),
    # Authorization: Bearer …
    (re.compile(r"\b(bearer|basic)\s+[^\s\"']+", re.IGNORECASE), rf"\1 {REDACTED}"),
    # a Cookie or Set-Cookie header, to the end of its line
    (re.compile(r"""\b((?:set-)?cookie["']?\s*:\s*)[^\r\n]+""", re.IGNORECASE), rf"\1{REDACTED}"),
    # NAME=value, name: value, "name": "value"; but `-v $PWD:/work` is a folder
    (
        re.compile(
            rf"""(?!(?<=\$)PWD:)({SENSITIVE}["']?\s*[=:]\s*){_QUOTED_OR_BARE}""", re.IGNORECASE
        ),
        rf"\1{REDACTED}",
    ),
    # pass=value, 'db_pass': value; but `forward_pass=3` and `backward pass: 12 ms` are times
    (
        re.compile(
            rf"""(?<![a-z])(?<!ward_)(?<!ward-)(pass(?:=|["']\s*[=:]\s*)){_QUOTED_OR_BARE}""",
            re.IGNORECASE,
        ),
        rf"\1{REDACTED}",
    ),
    # --name value
    (
        re.compile(rf"(?<!\S)(-[\w.-]*{SENSITIVE}\s+)(?!--){_QUOTED_OR_BARE}", re.IGNORECASE),
        rf"\1{REDACTED}",
    ),
    # Keys that show by their own form, wherever they are: Hugging Face, GitHub, npm, Replicate,
    # Grafana, AWS, Weights & Biases (40 hex digits; that also hides a commit id, which is no loss).
    (
        re.compile(
            r"\b(?:hf_\w{10,}|gh[a-z]_\w{20,}|github_pat_\w{20,}|npm_[A-Za-z0-9]{30,}|r8_\w{20,}"
            r"|glsa_\w{20,}|AKIA[0-9A-Z]{16}|[0-9a-f]{40})(?!\w)"
        ),
        REDACTED,
    ),
    # The same, with hyphens: OpenAI and alike, GitLab, Slack, PyPI, NVIDIA, Google, signed web
    # tokens. Not after a hyphen: each run of such characters is looked at once.
    (
        re.compile(
            r"(?<![\w-])(?:sk-[\w-]{16,}|glpat-[\w-]{16,}|xox[a-z]-[\w-]{10,}|pypi-[\w-]{32,}"
            r"|nvapi-[\w-]{16,}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w.-]+)(?!\w)"
        ),
        REDACTED,
    ),
)


def redact(text: str) -> str:
    """The text without what looks like a password, a token or a key."""
    for pattern, replacement in _IN_TEXT:
        text = pattern.sub(replacement, text)
    return text
