#!/bin/sh
# The main job on screen: what `holdfast check` sees here, a fault it names, and four ranks
# that sum. Nothing on the machine is changed; the listener of part 2 ends with this script.
holdfast=${1:-holdfast}
python=$(dirname "$holdfast")/python

say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }

say "1. What on this machine would break a training job?   (holdfast check)"
"$holdfast" check

say "2. Break something on purpose: a program takes the master port, a setting nobody reads"
ready=$(mktemp -u)
mkfifo "$ready"
"$python" -c 'import socket, sys
s = socket.create_server(("127.0.0.1", 29612))
open(sys.argv[1], "w").write("listening\n")
import signal; signal.pause()' "$ready" &
squatter=$!
trap 'kill $squatter 2>/dev/null; rm -f "$ready"' EXIT
read -r _ < "$ready"
NCCL_REUSE_SOCKET_ADDR=0 "$holdfast" check --port 29612 --only port-in-use --only variable-unread

say "3. Do four ranks really find each other and sum right?   (holdfast check --smoke)"
"$holdfast" check --smoke --port 29611 --only port-in-use,ranks-missing,group-does-not-form
