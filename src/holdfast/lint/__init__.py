"""WHAT A USER WROTE -> FINDINGS.

    configuration.py   [tool.holdfast] of the nearest pyproject.toml
    walk.py            paths -> files, their text, and why one could not be read
    session.py         one lint: recipes first, then scripts one by one
    tally.py           what came of it
    sniff.py           which language a file is written in, by name and by content
    reading.py         the text of a file -> Sources, by the reader of its language
    readers.py         which reader that is
    lines.py           lines as editors, Python and GitHub count them

    python.py          Python -> Source
    environ.py         what it puts into its environment
    shell/             shell -> Source: parsed by tree-sitter's bash grammar
    launching.py       commands -> launches and containers
    arguments.py       command lines -> options under their canonical names
    launch_options.py  which options the launchers have
    engines.py         command lines of docker, podman and their like
    given.py           settings they hand on: docker -e, mpirun -x, srun --export
    dockerfile.py      Dockerfiles
    compose.py         compose files
    yaml_file.py       Kubernetes manifests, Accelerate's configuration
    second_opinion.py  what bash says of a script that the grammar stumbles over
    yaml_nodes.py      YAML with the place of every value
    env_file.py        .env, .deepspeed_env, nccl.conf
    hostfile.py        hostfiles
    documents.py       Markdown, reStructuredText, text
    blocks.py          their code blocks
    prose.py           their running text
    mending.py         Python in them that Python refuses
    notebook.py        notebooks

    linking.py         which launch starts which script
    ignoring.py        `# holdfast: ignore[slug]`
    judge.py           Sources -> findings, in order, nothing twice

All readers are pure functions from text to Sources; only walk.py and configuration.py touch files.
"""
