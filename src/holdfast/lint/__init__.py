"""WHAT A USER WROTE -> FINDINGS.

    configuration.py  [tool.holdfast.lint] of the nearest pyproject.toml
    walk.py       paths -> files, their text, and why one could not be read
    sniff.py      which language a file is written in, by name and by content
    session.py    one lint: recipes first, then scripts one by one; tally.py: what came of it
    reading.py    the text of a file -> Sources, by the reader of its language (readers.py)
    python.py     Python -> Source; environ.py: what it puts into its environment
    shell/        shell -> Source: parsed by tree-sitter's bash grammar
    launching.py  commands -> launches and containers, flags under their canonical names
    dockerfile.py, compose.py, env_file.py, hostfile.py, yaml_file.py
    documents.py  Markdown and text -> code blocks (blocks.py), running text (prose.py)
    mending.py    Python in documents that Python refuses; notebook.py: notebooks
    linking.py    which launch starts which script
    ignoring.py   `# holdfast: ignore[slug]`
    judge.py      Sources -> findings, in order, nothing twice

All readers are pure functions from text to Sources; only walk.py and configuration touch files.
"""
