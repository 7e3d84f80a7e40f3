"""What shells, systemd and crash reporters print of a program that a signal ended."""

from __future__ import annotations

import functools
import re

from holdfast.analysis.logs.pattern import LogPattern, Role

_saw = functools.partial(LogPattern, role=Role.CONFIRMATION)

_BY_SIGNAL = (
    r"(?:[Kk]illed|[Ss]egmentation fault|Memory fault|[Aa]bort(?:ed)?|[Bb]us error|[Tt]erminated"
    r"|[Ff]loating (?:point )?exception|[Ii]llegal (?:hardware )?instruction)"
)
SHELL_ENDED = _saw(
    name="launchers: shell-ended",
    # bash and ksh in a script; any of them at a prompt; their jobs; zsh; fish; PyCharm's console.
    pattern=rf"(?:line \d+|^): +(?P<pid>\d+):? (?P<how>{_BY_SIGNAL})\b"
    r"|^(?P<word>Killed|Segmentation fault|Bus error|Aborted)(?: \(core dumped\))?\s*$"
    rf"|^\[\d+\] {{0,2}}[+-] +(?:\d+ )?(?P<job>{_BY_SIGNAL}) |^zsh: (?P<zsh>{_BY_SIGNAL})\b"
    r"|^fish: (?:Job|Process) \d+, '.* terminated by signal (?P<name>SIG[A-Z]+)"
    r"|Process finished with exit code (?P<code>-?\d{1,3})\b",
    anchors=(
        "Killed",
        "Segmentation fault",
        "Bus error",
        "Aborted",
        " Terminated",
        ": Memory fault",
        ": Abort",
        "]  + ",
        "]  - ",
        "zsh: ",
        "fish: ",
        "Process finished with exit code ",
    ),
    example="run.sh: line 12:  1011 Killed                  python train.py",
)
_TRANSLATIONS = {
    "killed": (
        *("Getötet", "已杀死", "強制結束", "強制終了", "Processus arrêté", "Terminado (killed)"),
        *("Убито", "죽었음", "Ucciso", "Morto", "Unicestwiony"),
    ),
    "segmentation fault": (
        *("Speicherzugriffsfehler", "段错误", "程式記憶體區段錯誤", "Erreur de segmentation"),
        *("Violación de segmento", "Ошибка сегментирования", "세그멘테이션 오류"),
        *("Errore di segmentazione", "Falha de segmentação", "Naruszenie ochrony pamięci"),
    ),
    "bus error": (
        *("Bus-Zugriffsfehler", "总线错误", "匯流排錯誤", "Erreur du bus", "バスエラー"),
        *("Error del bus", "Ошибка шины", "버스 오류", "Errore di bus", "Erro no barramento"),
        "Błąd szyny",
    ),
    "abort": (
        *("Abgebrochen", "已放弃", "Abandon", "Abortado", "Аварийный останов", "중지됨"),
        *("Annullato", "Przerwane"),
    ),
}
"""glibc's strsignal in other languages (libc.mo), which shells print"""
TRANSLATED = {word: how for how, words in _TRANSLATIONS.items() for word in words}
_WORDS = "|".join(map(re.escape, TRANSLATED))
_FATAL_WORDS = "|".join(re.escape(word) for word, how in TRANSLATED.items() if how != "abort")
SHELL_TRANSLATED = _saw(
    name="launchers: shell-translated",
    pattern=rf": +(?P<pid>\d{{1,9}}) (?P<translated>{_WORDS})(?:\s|$)"
    # At a prompt or by dash; 'Abandon' alone may be anybody's word.
    rf"|^(?P<alone>{_FATAL_WORDS})(?: ?\([^()]{{1,40}}\))?\s*$",
    anchors=tuple(TRANSLATED),
    example="run.sh: Zeile 12:  1011 Getötet                 python train.py",
)
HOW = ("how", "word", "job", "zsh", "translated", "alone")
"""their fields that hold the name of a signal in words"""


def in_english(word: str) -> str:
    """The name of a signal, in lower case."""
    return TRANSLATED.get(word, word).lower()


_OURS = r"(?:python|pt_|torchrun|ray::)[^)\s]{0,30}"
"""a crash reporter sees every program of the machine; only one of the job matters"""
COREDUMP = _saw(
    name="native-crash: core-dumped",
    # systemd-coredump, `coredumpctl list` and abrt.
    pattern=rf"Process (?P<pid>\d{{1,9}}) \({_OURS}\) of user \d+ (?:dumped core"
    r"|terminated abnormally with signal \d+/(?P<short>[A-Z]+)|killed by (?P<name>SIG[A-Z]+))"
    r"|^ *(?P<listed>\d{1,9}) +\d+ +\d+ (?P<sign>SIG[A-Z]+) +\w+ +"
    rf"\S{{0,200}}/{_OURS}",
    anchors=(
        *(" dumped core", "terminated abnormally with signal ", " killed by SIG"),
        *(" SIGSEGV ", " SIGBUS ", " SIGILL ", " SIGFPE ", " SIGABRT "),
    ),
    example="Process 1011 (python3.12) of user 1000 dumped core.",
    slug="native-crash",
)
IN_LIBRARY = _saw(
    name="native-crash: in-library",
    # The first frames of a stack trace by systemd-coredump.
    pattern=r"^\s*#[0-2]\s+0x[0-9a-f]+ \S.{0,200} "
    r"\((?P<library>lib(?:nccl|torch|cuda|c10|gloo|mpi|ib)[\w.\-]{0,60}) \+ 0x[0-9a-f]+\)",
    anchors=(" + 0x",),
    example="#0  0x00007f1c2a005a00 n/a (libnccl.so.2 + 0x5a00)",
    slug="native-crash",
)
