#!/bin/sh
# The main job on screen. First what `holdfast check` sees here; then a training of four ranks
# that is broken twice on purpose: noticed, named, restarted, resumed from its own checkpoint.
# Nothing on the machine is changed, and nothing is left behind.
holdfast=${1:-holdfast}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() {
    if [ -t 1 ]; then printf '\n\033[1m# %s\033[0m\n' "$*"; else printf '\n# %s\n' "$*"; fi
}

say "1. What on this machine would break a training job?          holdfast check"
"$holdfast" check --nproc-per-node 4

say "2. A training, killed and later hung on purpose              holdfast run train.py"
# what a dying rank prints is in its log; here the sentences matter, so its traceback is left out
BREAK=1 CHECKPOINT="$work/demo.pt" "$holdfast" run --nproc-per-node 4 --patience 4 \
    --runs "$work/runs" --no-check "$here/train.py" 2>&1 | grep -v '^\[rank[0-9]*\]:'

say "3. What was kept of it                                       holdfast runs"
"$holdfast" runs --runs "$work/runs"
