import pytest

from holdfast.catalogue import by_slug
from tests.analysis.source.made_sources import shell
from tests.faults.table import flags, leaves, lint_table

test_lint = lint_table(
    "shell-recipe",
    flags(
        "warning",
        shell(
            "for port in 29500 29501; do\n  torchrun --master-port $port train.py && break\ndone"
        ),
        lines=[1],
        saying=["whatever the last failure was", "--standalone"],
    ),
    leaves(shell("for port in 29500 29501; do torchrun --master-port $port a.py & done; wait")),
    # pkill
    flags(
        "error",
        shell("true\npkill -9 -f finetune.py torchrun\n"),
        lines=[2],
        saying=["takes one pattern, but got 2", "ends nothing", "'finetune.py|torchrun'"],
    ),
    flags("error", shell("pgrep -u me a b | wc -l\n"), lines=[1], saying=["finds nothing"]),
    leaves(shell("pkill -f -u alice --signal TERM finetune.py\n")),
    leaves(shell("pkill -P $$ -TERM\npkill -f '(a|b)'\nkillall a b c\npgrep -d , -f x\n")),
    leaves(shell('pkill -f "$A" "$B"\n')),
    # more than its own
    flags("warning", shell("pkill -9 python3\n"), lines=[1], saying=["runs in Python", "notebook"]),
    flags("warning", shell("killall -q -9 python\n"), lines=[1], saying=["not only this job"]),
    flags("note", shell("pkill -u $USER -f python\n"), lines=[1], saying=["runs in Python"]),
    flags("warning", shell("kill -9 $(pgrep -f python)\n"), lines=[1], saying=["by pid"]),
    flags(
        "warning",
        shell("ps aux | grep python | grep -v grep | awk '{print $2}' | xargs kill -9\n"),
        lines=[1],
        saying=["runs in Python"],
    ),
    flags("note", shell("fuser -k 29500/tcp\n"), lines=[1], saying=["whichever job it belongs to"]),
    flags("note", shell("kill -9 $(lsof -t -i:29500)\n"), lines=[1], saying=["ss -ltnp"]),
    leaves(shell("pkill -f finetune.py\nkill $PID; kill -9 $(pgrep -f finetune.py)\n")),
    leaves(shell("fuser -v /dev/nvidia0\npgrep python\nps aux | grep python\n")),
    # pauses
    flags(
        "warning",
        shell("pkill -f finetune.py\nsleep 5\ntorchrun finetune.py\n"),
        lines=[2],
        saying=["`sleep 5` after `pkill`", "TIME_WAIT"],
    ),
    leaves(shell("pkill -f finetune.py\nsleep 5\necho done\n")),
    leaves(shell("kill $P\nwait $P\nsleep 1\ntorchrun finetune.py\n")),
    leaves(shell("sleep 5\ntorchrun finetune.py\n")),
    leaves(shell("pkill -f f.py\nwhile pgrep -f f.py; do sleep 1; done\ntorchrun f.py\n")),
    # looking for a port
    flags(
        "warning",
        shell(
            """
            port=20000
            while netstat -ltn | grep -q ":$port "; do
              port=$((port + 1))
            done
            torchrun --master-port $port train.py
            """
        ),
        lines=[2],
        saying=["netstat", "taken before the job binds it", "--standalone"],
    ),
    flags(
        "warning",
        shell(
            """
            for PORT in $(seq 20000 20100); do
              if ! lsof -i :$PORT; then break; fi
            done
            """
        ),
        lines=[1],
        saying=["lsof"],
    ),
    *(
        flags(
            "warning",
            shell(f"for n in {counted}; do\n  nc -z localhost $n || break\ndone\n"),
            lines=[1],
            saying=["nc"],
        )
        for counted in ("$(seq 23000 23100)", "{23000..23100}", "$(seq 23000 10 23100)")
    ),
    flags(
        "warning",
        shell(
            """
            while :; do
              PORT=$((20000 + RANDOM % 900))
              (echo > /dev/tcp/127.0.0.1/$PORT) 2> /dev/null || break
            done
            """
        ),
        lines=[1],
        saying=["/dev/tcp"],
    ),
    leaves(shell("until (echo > /dev/tcp/$HEAD/29500) 2> /dev/null; do sleep 1; done\n")),
    leaves(shell("for i in $(seq 1 30); do\n  nc -z $HEAD 29500 && break\n  sleep 1\ndone\n")),
    flags(
        "error",
        shell("for h in $HOSTS; do\n  ssh $h 'pkill -f launch.sh step.py'\ndone\n"),
        lines=[2],
        saying=["pkill takes one pattern"],
    ),
    flags(
        "note",
        shell(
            "P=$(python -c \"import socket; s = socket.socket(); s.bind(('', 0)); "
            'print(s.getsockname()[1])")\n'
        ),
        lines=[1],
        saying=["binding to 0", "ephemeral"],
    ),
    leaves(shell("until nc -z $MASTER_ADDR 29500; do sleep 1; done\n")),
    leaves(shell("for host in a b; do nc -z $host 22; done\n")),
    # for ever
    flags(
        "note",
        shell("while true; do\n  torchrun train.py\n  sleep 10\ndone\n"),
        lines=[1],
        saying=["restarts torchrun without limit", "--max-restarts"],
    ),
    flags(
        "note",
        shell("until deepspeed train.py; do sleep 5; done\n"),
        lines=[1],
        saying=["holdfast run"],
    ),
    leaves(shell("for seed in 1 2 3; do torchrun train.py --seed $seed; done\n")),
    leaves(shell("while read -r config; do torchrun train.py $config; done < configs\n")),
    # left in the background
    flags(
        "error",
        shell("#!/bin/bash\n#SBATCH --nodes=1\ntorchrun a.py &\ntorchrun b.py &\necho started\n"),
        lines=[4],
        saying=["when its batch script ends", "`wait`"],
    ),
    leaves(shell("#!/bin/bash\n#SBATCH --nodes=1\ntorchrun a.py &\ntorchrun b.py &\nwait\n")),
    leaves(shell("#!/bin/bash\n#SBATCH --nodes=1\nserve.py &\ntorchrun b.py\n")),
    leaves(shell("torchrun a.py &\n")),
    # not exported, or too late
    flags(
        "warning",
        shell("NCCL_DEBUG=INFO\ntorchrun train.py\n"),
        lines=[1],
        saying=["export NCCL_DEBUG=INFO"],
    ),
    flags(
        "warning",
        shell("torchrun train.py\nexport NCCL_DEBUG=INFO\n"),
        lines=[2],
        saying=["after the last launch"],
    ),
    leaves(shell("NCCL_DEBUG=INFO torchrun train.py\n")),
    leaves(shell("NCCL_DEBUG=INFO\nexport NCCL_DEBUG\ntorchrun train.py\n")),
    leaves(shell("NCCL_DEBUG=INFO\nmpirun -x NCCL_DEBUG=$NCCL_DEBUG python train.py\n")),
    leaves(shell("NCCL_DEBUG=INFO\n")),
    leaves(shell("torchrun train.py\n\nexport NCCL_DEBUG=INFO\n", complete=False)),
    leaves(shell("export NCCL_DEBUG=INFO\ntorchrun train.py\nunset NCCL_DEBUG\n")),
    # doors
    flags("warning", shell("sudo setenforce 0\n"), lines=[1], saying=["SELinux", "ausearch"]),
    flags("warning", shell("sudo ufw disable\n"), lines=[1], saying=["ufw allow from"]),
    flags(
        "warning",
        shell("systemctl disable --now firewalld.service\n"),
        lines=[1],
        saying=["firewall", "loopback"],
    ),
    flags("warning", shell("iptables -F\n"), lines=[1], saying=["whole machine"]),
    leaves(shell("setenforce 1\nufw allow 29500\nsystemctl stop nginx\niptables -t nat -F\n")),
    leaves(shell("iptables -F DOCKER-USER\nsystemctl status firewalld\n")),
)


@pytest.mark.parametrize("tool", ["ss", "lsof", "nc"])
def test_a_loop_that_only_waits_is_left_alone(tool: str) -> None:
    text = f"while ! {tool} -z $HOST 29500; do echo waiting; sleep 1; done\n"
    assert by_slug("shell-recipe").ask_lint(shell(text)) == []
