#!/bin/sh
# The main job on screen: what `holdfast check` sees here, two faults it names, and four ranks
# that sum. Nothing on the machine is changed; the program of part 2 ends with this script.
holdfast=${1:-holdfast}
python=$(dirname "$holdfast")/python

say() {
    if [ -t 1 ]; then printf '\n\033[1m# %s\033[0m\n' "$*"; else printf '\n# %s\n' "$*"; fi
}

say "1. What on this machine would break a training job?"
"$holdfast" check

say "2. Broken on purpose: a program sits on the master port, and a setting that nobody reads"
line=$(mktemp -u)
mkfifo "$line"
"$python" "$(dirname "$0")/squatter.py" > "$line" &
squatter=$!
trap 'kill $squatter 2>/dev/null; rm -f "$line"' EXIT
read -r port < "$line"
NCCL_REUSE_SOCKET_ADDR=0 "$holdfast" check --port "$port" --only port-in-use,variable-unread

say "3. Do four ranks find each other, and is what they sum right?"
"$holdfast" check --smoke --port 0 --only ranks-missing,group-does-not-form
