"""What a rank of a healthy job may wait for, while the others wait for it (quiet_pauses.py).

The process shows no activity at all meanwhile: no CPU, no I/O, no socket traffic.
"""

import fcntl
import http.client
import http.server
import os
import pdb  # noqa: T100
import subprocess
import tempfile
import threading
import time


def ask_a_server(seconds: float) -> bytes:
    """One answer at the end, no byte before: a model server, a judge, a remote evaluation."""

    class Slow(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(seconds)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"generated")

        def log_message(self, *_: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    line = http.client.HTTPConnection("127.0.0.1", server.server_port)
    line.request("GET", "/")
    answer = line.getresponse().read()
    server.shutdown()
    return answer


def run_a_command(seconds: float) -> None:
    """An upload, a copy, `srun`: what it does cannot be seen from here."""
    subprocess.run(["sleep", str(seconds)], check=True)


def join_a_thread(seconds: float) -> None:
    thread = threading.Thread(target=time.sleep, args=(seconds,))
    thread.start()
    thread.join()


def wait_for_a_lock(seconds: float) -> None:
    """Held by another process, as a data preparation of another job would."""
    with (
        tempfile.NamedTemporaryFile() as file,
        subprocess.Popen(["flock", file.name, "sleep", str(seconds)]),
    ):
        time.sleep(0.5)
        fcntl.flock(file, fcntl.LOCK_EX)


def read_a_pipe(seconds: float) -> None:
    ours, theirs = os.pipe()
    command = ["sh", "-c", f"sleep {seconds}; echo go"]
    with subprocess.Popen(command, stdout=theirs):
        os.close(theirs)
        os.read(ours, 1)
    os.close(ours)


def debug(_: float) -> None:
    """Its user looks at something; the table types `continue` in the end."""
    pdb.set_trace()  # noqa: T100


def save_in_a_thread(seconds: float) -> None:
    """To a disk that takes a piece now and then, while the main thread waits for the last one."""

    def write() -> None:
        end = time.monotonic() + seconds
        with tempfile.TemporaryFile() as file:
            while time.monotonic() < end:
                file.write(os.urandom(65536))
                file.flush()
                os.fsync(file.fileno())
                time.sleep(seconds / 4)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()


WAITS = {
    "command": run_a_command,
    "debugger": debug,
    "lock": wait_for_a_lock,
    "pipe": read_a_pipe,
    "save-thread": save_in_a_thread,
    "server": ask_a_server,
    "thread": join_a_thread,
}
