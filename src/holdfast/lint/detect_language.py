"""Which language a file is written in: by its name, and where that does not tell, by its text."""

from __future__ import annotations

import enum
import os
import re


class Language(enum.Enum):
    PYTHON = "Python"
    SHELL = "shell"
    DOCKERFILE = "Dockerfile"
    COMPOSE = "compose file"
    YAML = "YAML"
    ENV_FILE = "env file"
    NCCL_CONF = "nccl.conf"
    HOSTFILE = "hostfile"
    DOCUMENT = "document"
    RST = "reStructuredText"
    NOTEBOOK = "notebook"


BY_ENDING = {
    ".py": Language.PYTHON,
    ".pyw": Language.PYTHON,
    ".sh": Language.SHELL,
    ".bash": Language.SHELL,
    ".slurm": Language.SHELL,
    ".sbatch": Language.SHELL,
    ".job": Language.SHELL,
    ".dockerfile": Language.DOCKERFILE,
    ".containerfile": Language.DOCKERFILE,
    ".env": Language.ENV_FILE,
    ".md": Language.DOCUMENT,
    ".markdown": Language.DOCUMENT,
    ".txt": Language.DOCUMENT,
    ".adoc": Language.DOCUMENT,
    ".rst": Language.RST,
    ".ipynb": Language.NOTEBOOK,
}
BY_NAME = (
    (r"(?:docker|container)file(?:[.-].*)?", Language.DOCKERFILE),
    (r"(?:docker-)?compose[\w.-]*\.ya?ml", Language.COMPOSE),
    (r"\.env(?:\..+)?|\.deepspeed_env", Language.ENV_FILE),
    (r"[\w.-]*nccl[\w.-]*\.conf", Language.NCCL_CONF),
    (r"hostfile[\w.-]*|[\w.-]+[._-]hostfile|machinefile[\w.-]*", Language.HOSTFILE),
)
OTHERS = frozenset({"makefile", "gnumakefile", "justfile", "jenkinsfile", "vagrantfile"})
"""languages of their own, even where the first line says bash"""
HEAD = 4096
"""characters that are looked at to tell a language"""

_SHEBANG = re.compile(r"#!\s*\S*?(?:/env\s+(?:-S\s+)?)?(?P<program>[\w.-]+)(?:\s|$)")
_HOST_LINE = re.compile(
    r"[\w.-]+(?:\s+slots\s*=\s*\d+|:\d+)(?:\s+max[_-]slots\s*=\s*\d+)?\s*(?:#.*)?"
)
_NCCL_LINE = re.compile(r"NCCL_[A-Z0-9_]+=.*")
_SHELL_LINE = re.compile(
    r"(?:\$ |export [A-Za-z_]\w*=|#SBATCH |(?:sudo |srun )?(?:torchrun|deepspeed|horovodrun|mpirun"
    r"|accelerate launch|docker run|podman run|python3? (?:-m )?[\w./-]+|pip3? install|sysctl -w"
    r"|pkill -|ulimit -)\b)"
)
_DIFF_LINE = re.compile(r"diff --git |@@ -\d+|--- a/|\+\+\+ b/")
_PYTHON_LINE = re.compile(
    r"(?:import [\w.]+(?: as \w+)?|from [\w.]+ import .+|(?:async )?def \w+\(.*|class \w+.*:)\s*"
    r"(?:#.*)?$"
)


def by_name(path: str) -> Language | None:
    """None: not by its name. YAML never by its ending: most of it is not ours."""
    name = os.path.basename(path)
    for pattern, language in BY_NAME:
        if re.fullmatch(pattern, name, re.IGNORECASE):
            return language
    return BY_ENDING.get(os.path.splitext(name)[1].lower())


def may_tell_by_content(path: str) -> bool:
    """Whether a file of a folder is worth opening although its name does not tell."""
    name = os.path.basename(path)
    ending = os.path.splitext(name)[1].lower()
    ours = ending in ("", ".conf", ".yaml", ".yml") and name.lower() not in OTHERS
    return ours and not name.startswith(".")


def by_content(path: str, text: str) -> Language | None:
    """Only what is certain: a text that begins with 'import' may not be a script."""
    if os.path.splitext(path)[1].lower() in (".yaml", ".yml"):
        return of_yaml(text)
    head = text[:HEAD]
    if found := _SHEBANG.match(head):
        return _by_program(found["program"])
    lines = [line for line in head.splitlines() if line.strip() and not line.startswith("#")]
    if re.search(r"^#SBATCH\s", head, re.MULTILINE):
        return Language.SHELL
    for form, language in ((_NCCL_LINE, Language.NCCL_CONF), (_HOST_LINE, Language.HOSTFILE)):
        if lines and all(form.fullmatch(line.strip()) for line in lines[:20]):
            return language
    if re.match(r"FROM\s+\S+", lines[0] if lines else "") and re.search(
        r"^(?:RUN|CMD|ENTRYPOINT|COPY|ENV|WORKDIR)\s", head, re.MULTILINE
    ):
        return Language.DOCKERFILE
    return None


def _by_program(program: str) -> Language | None:
    if program.startswith(("python", "pypy")):
        return Language.PYTHON
    return Language.SHELL if program in ("sh", "bash", "dash", "zsh", "ksh", "ash") else None


def of_yaml(text: str) -> Language | None:
    """Only what starts containers or ranks is ours."""
    keys = set(re.findall(r"^([A-Za-z_]+)\s*:", text, re.MULTILINE))
    if "services" in keys:
        return Language.COMPOSE
    if {"apiVersion", "kind"} <= keys:
        return Language.YAML
    if {"compute_environment", "distributed_type"} & keys and "num_processes" in keys:
        return Language.YAML
    return None


def of_snippet(text: str) -> Language | None:
    """Of a block in a document that does not name its language; None unless it is plain."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if any(_DIFF_LINE.match(line) for line in lines[:20]):
        return None
    if lines and lines[0].startswith("$ "):  # what follows may be a program, as `cat` shows it
        return Language.SHELL
    if any(_PYTHON_LINE.match(line) for line in lines[:20]):
        return Language.PYTHON
    if any(_SHELL_LINE.match(line) for line in lines[:20]):
        return Language.SHELL
    return None
