"""Whole documents: each block by its language, every place that of the file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.source.source import SourceKind
from holdfast.lint.detect_language import Language
from holdfast.lint.readers import documents
from holdfast.lint.readers.blocks import CodeBlock

GUIDE = """\
# Guide

First `NCCL_DEBUG=INFO`.

```python
import torch.distributed as dist
```

- then

  ```py
  dist.barrier()
  ```

```console
$ export NCCL_DEBUG=WARN \\
    NCCL_IB_DISABLE=1
NCCL_DEBUG=this is output
(venv) user@host:~$ torchrun train.py
```

```
[rank0]: NCCL_DEBUG=INFO
```

```json
{"NCCL_DEBUG": 1}
```
"""


def test_markdown() -> None:
    sources = list(documents.markdown(GUIDE, "guide.md"))
    assert [source.kind for source in sources] == [
        SourceKind.PYTHON,
        SourceKind.PYTHON,
        SourceKind.SHELL,
    ]
    assert not any(source.complete for source in sources)
    later, shell = sources[1:]
    assert later.program is not None
    (barrier,) = later.program.called("torch.distributed.barrier")
    place = later.program.place(barrier.node)
    assert (place.line, place.column) == (12, 3)
    assert [(s.name, s.value, s.place.line, s.place.column) for s in shell.settings] == [
        ("NCCL_DEBUG", "WARN", 16, 10),
        ("NCCL_IB_DISABLE", "1", 17, 5),
    ]
    assert [(c.name, c.place.line, c.place.column) for c in shell.commands] == [
        ("torchrun", 19, 21)
    ]


def test_rst() -> None:
    text = "Do::\n\n    $ export NCCL_DEBUG=INFO\n\n.. code-block:: python\n\n   import os\n"
    kinds = [source.kind for source in documents.rst(text, "guide.rst")]
    assert kinds == [SourceKind.SHELL, SourceKind.PYTHON]


@pytest.mark.parametrize(
    ("word", "text", "language"),
    [
        ("bash", "", Language.SHELL),
        ("console", "", Language.SHELL),
        ("pycon", "", Language.PYTHON),
        ("dockerfile", "", Language.DOCKERFILE),
        ("ini", "", Language.ENV_FILE),
        ("yaml", "services:\n  a: 1\n", Language.COMPOSE),
        ("yaml", "lr: 1\n", None),
        ("json", "import os\n", None),
        ("", "import os\n", Language.PYTHON),
        ("text", "$ torchrun x.py\n", Language.SHELL),
    ],
)
def test_languages(word: str, text: str, language: Language | None) -> None:
    assert documents.language_of(CodeBlock(word, text, 1, 0)) is language


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\n# b\nc\n", "a\n# b\nc\n"),
        ("$ a\nout\n$ b\n", "  a\n\n  b\n"),
        ("$ a \\\n> b\nout\n", "  a \\\n  b\n\n"),
        ("$ a\n# b\n", "  a\n  b\n"),
        ("root@h:/x# a\n", "root@h:/x# a\n"),
        ("(env) $ a\n", "      " + "  a\n"),
    ],
)
def test_prompts_go_and_every_character_keeps_its_place(text: str, kept: str) -> None:
    assert documents.without_prompts(text) == kept


@given(st.text(alphabet="`~\n #$>py-bash=", max_size=120))
def test_whatever_is_found_is_in_the_document(text: str) -> None:
    found = [*documents.markdown(text, "guide.md"), *documents.rst(text, "guide.md")]
    assert all(source.file == "guide.md" and not source.complete for source in found)
    places = [setting.place for source in found for setting in source.settings]
    places += [command.place for source in found for command in source.commands]
    assert all(1 <= place.line <= text.count("\n") + 1 for place in places)
