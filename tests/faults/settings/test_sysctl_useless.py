from tests.analysis.source.made_sources import dockerfile, shell, yaml
from tests.faults.table import flags, leaves, lint_table

test_lint = lint_table(
    "sysctl-useless",
    flags(
        "warning",
        shell("sudo sysctl -w net.ipv4.tcp_fin_timeout=10\n"),
        lines=[1],
        saying=["FIN_WAIT_2", "60 s", "ss -ltnp"],
    ),
    flags(
        "warning",
        shell("sysctl -q -w net.ipv4.tcp_tw_reuse=1 net.ipv4.ip_forward=1\n"),
        lines=[1],
        saying=["outgoing connections", "never a bind"],
    ),
    flags(
        "warning",
        shell("true\necho 'net.ipv4.tcp_fin_timeout = 15' | sudo tee -a /etc/sysctl.conf\n"),
        lines=[2],
        saying=["tcp_fin_timeout"],
    ),
    flags(
        "warning",
        shell("echo 1 | tee /proc/sys/net/ipv4/tcp_tw_reuse >/dev/null\n"),
        lines=[1],
        saying=["tcp_tw_reuse"],
    ),
    flags(
        "warning",
        shell("docker run --sysctl net.ipv4.tcp_tw_reuse=1 trainer torchrun train.py\n"),
        lines=[1],
        saying=["tcp_tw_reuse"],
    ),
    flags(
        "warning",
        shell("echo 30 > /proc/sys/net/ipv4/tcp_fin_timeout\n"),
        lines=[1],
        saying=["tcp_fin_timeout"],
    ),
    flags(
        "error",
        shell("sysctl -w net.ipv4.tcp_tw_recycle=1\n"),
        lines=[1],
        saying=["Linux 4.12 removed it"],
    ),
    flags(
        "warning",
        dockerfile("FROM x\nRUN echo net.ipv4.tcp_fin_timeout=5 >> /etc/sysctl.conf\n"),
        lines=[2],
        saying=["FIN_WAIT_2"],
    ),
    flags(
        "warning",
        shell(
            """
            sudo tee /etc/sysctl.d/80-job.conf > /dev/null <<EOF
            # for the rendezvous port
            net.core.wmem_max = 1048576
            net.ipv4.tcp_tw_reuse = 1
            EOF
            """
        ),
        lines=[4],
        saying=["never a bind"],
    ),
    flags(
        "warning",
        shell("cat <<'X' | sudo tee -a /etc/sysctl.conf\nnet/ipv4/tcp_fin_timeout=9\nX\n"),
        lines=[2],
        saying=["net.ipv4.tcp_fin_timeout"],
    ),
    flags(
        "warning",
        yaml(
            """
            kind: Pod
            spec:
              securityContext:
                sysctls:
                  - name: net.ipv4.tcp_tw_reuse
                    value: "1"
              containers:
                - name: main
                  image: trainer:3
                - name: side
                  image: helper:1
            """
        ),
        lines=[5],
        saying=["tcp_tw_reuse"],
    ),
    flags(
        "warning",
        shell('tune() { sudo sysctl -w "$@"; }\ntune net.ipv4.tcp_tw_reuse=1\n'),
        lines=[2],
        saying=["tcp_tw_reuse"],
    ),
    leaves(shell("grep -q net.ipv4.tcp_tw_reuse=1 /etc/sysctl.conf\n")),
    leaves(shell("cat > notes.md <<EOF\nnet.ipv4.tcp_tw_reuse = 1\nEOF\n")),
    leaves(shell("sysctl net.ipv4.tcp_fin_timeout\n")),  # only asks
    leaves(
        shell("sysctl -w net.core.rmem_max=67108864 net.ipv4.ip_local_port_range='20000 32000'\n")
    ),
    leaves(shell("grep tcp_tw_reuse /etc/sysctl.conf; cat /proc/sys/net/ipv4/tcp_tw_reuse\n")),
    leaves(shell("echo 'tcp_tw_reuse is of no use here'\n")),
)
