"""WHAT A USER WROTE -> FINDINGS.

    walk.py       paths -> files, their bytes, and why one could not be read
    sniff.py      which language a file is written in, by name and by content
    python.py     Python -> Source
    shell/        shell -> Source: parsed by tree-sitter's bash grammar
    launching.py  commands -> launches and containers, flags under their canonical names
    dockerfile.py, compose.py, env_file.py, hostfile.py, yaml_file.py
    documents.py  Markdown and text -> fenced blocks, inline code, settings in prose
    linking.py    which launch starts which script
    ignoring.py   `# holdfast: ignore[slug]`, --select, --ignore, [tool.holdfast]
    judge.py      Sources -> findings, in order

All readers are pure functions from text to Sources; only walk.py and configuration touch files.
"""
