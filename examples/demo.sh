#!/bin/sh
# The main job on screen. First what `holdfast check` sees here; then a training of four ranks, once
# undisturbed and once broken twice on purpose: noticed, named, restarted, resumed. At the end both
# are compared, bit for bit; the exit code is 1 if they differ.
# Nothing on the machine is changed, and nothing is left behind.
holdfast=${1:-holdfast}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() {
    if [ -t 1 ]; then printf '\n\033[1m# %s\033[0m\n' "$*"; else printf '\n# %s\n' "$*"; fi
}

run() { # NAME: train in folders of that name; what it printed is kept in a file, too
    # what a dying rank prints is in its log; here the sentences matter, so its traceback is left out
    CHECKPOINTS="$work/$1" "$holdfast" run --nproc-per-node 4 --patience 4 --no-check \
        --runs "$work/runs" "$here/train.py" 2>&1 |
        grep --line-buffered -v '^\[rank[0-9]*\]:' | tee "$work/$1.txt"
}

curve() { # NAME: its losses and the digest of its weights; a step done again must agree with itself
    grep -E '^(step [0-9]+: loss|done at step) ' "$work/$1.txt" | sort -u
}

say "1. What on this machine would break a training job?          holdfast check"
"$holdfast" check --nproc-per-node 4

say "2. Undisturbed training                                      holdfast run train.py"
run undisturbed

say "3. The same, killed and later hung on purpose                BREAK=1 holdfast run train.py"
BREAK=1 run broken

say "4. What was kept of it                                       holdfast runs"
"$holdfast" runs --runs "$work/runs"

say "5. Was anything lost?"
curve undisturbed >"$work/expected"
curve broken >"$work/found"
step=$(sed -n 's/^holdfast> rank 0 resumed at step \([0-9]*\) from .*/\1/p' "$work/broken.txt" | tail -n 1)
if [ -n "$step" ] && grep -q '^done' "$work/expected" && cmp -s "$work/expected" "$work/found"; then
    weights=$(sed -n 's/^done.*weights //p' "$work/found")
    echo "resumed at step $step, weights $weights, loss identical to the undisturbed run"
else
    echo "NOT the same as the undisturbed run:"
    diff "$work/expected" "$work/found"
    exit 1
fi
