"""Logs of programs that have nothing to do with training: lines made by their own formats.

The words of errors are in them, since programs fail and say so; none is about a rank or a GPU job.
"""

# ruff: noqa: E501 - lines as the programs write them

from __future__ import annotations

SYSTEM = """\
Nov 15 06:25:01 web-3 CRON[20441]: pam_unix(cron:session): session opened for user root
Nov 15 06:25:02 web-3 systemd[1]: Starting Daily apt upgrade and clean activities...
Nov 15 06:25:03 web-3 systemd[1]: apt-daily-upgrade.service: Deactivated successfully.
Nov 15 06:25:09 web-3 sshd[20611]: Failed password for invalid user admin from 203.0.113.7 port 52944 ssh2
Nov 15 06:25:11 web-3 sshd[20611]: Connection closed by invalid user admin 203.0.113.7 port 52944 [preauth]
Nov 15 06:25:40 web-3 sshd[20702]: error: kex_exchange_identification: Connection closed by remote host
Nov 15 06:26:00 web-3 dbus-daemon[811]: [system] Activating via systemd: service name='org.freedesktop.timedate1'
Nov 15 06:26:12 web-3 NetworkManager[902]: <info>  [1731651972.1] dhcp4 (eth0): state changed new lease
Nov 15 06:27:30 web-3 kernel: audit: type=1400 audit(1731652050.1:41): apparmor="ALLOWED" operation="open"
Nov 15 06:28:00 web-3 systemd[1]: fstrim.service: Main process exited, code=exited, status=1/FAILURE
Nov 15 06:28:00 web-3 systemd[1]: fstrim.service: Failed with result 'exit-code'.
"""
WEB = """\
203.0.113.9 - - [15/Nov/2026:06:25:01 +0000] "GET /index.html HTTP/1.1" 200 1043 "-" "curl/8.5.0"
203.0.113.9 - - [15/Nov/2026:06:25:02 +0000] "POST /api/v1/run HTTP/1.1" 502 157 "-" "Mozilla/5.0"
203.0.113.9 - - [15/Nov/2026:06:25:03 +0000] "GET /rank/3/error HTTP/1.1" 404 153 "-" "Mozilla/5.0"
2026/11/15 06:25:02 [error] 31#31: *77 connect() failed (111: Connection refused) while connecting to upstream, client: 203.0.113.9, server: app, upstream: "http://127.0.0.1:8000/api"
2026/11/15 06:25:03 [error] 31#31: *78 upstream timed out (110: Connection timed out) while reading response header from upstream
2026/11/15 06:25:04 [warn] 31#31: *79 upstream server temporarily disabled while connecting to upstream
[Sun Nov 15 06:25:09.143 2026] [proxy:error] [pid 811:tid 140] (111)Connection refused: AH00957: HTTP: attempt to connect to 127.0.0.1:8000 failed
"""
DATABASE = """\
2026-11-15 06:25:01.143 UTC [71] LOG:  checkpoint starting: time
2026-11-15 06:25:31.201 UTC [71] LOG:  checkpoint complete: wrote 44 buffers (0.3%); 0 WAL file(s) added
2026-11-15 06:26:02.881 UTC [912] ERROR:  duplicate key value violates unique constraint "users_pkey"
2026-11-15 06:26:02.881 UTC [912] DETAIL:  Key (id)=(7) already exists.
2026-11-15 06:26:07.114 UTC [915] FATAL:  terminating connection due to administrator command
2026-11-15 06:26:08.120 UTC [916] LOG:  could not receive data from client: Connection reset by peer
2026-11-15T06:26:09.301Z 0 [Warning] [MY-010055] [Server] IP address '203.0.113.9' could not be resolved: Name or service not known
1:M 15 Nov 2026 06:26:11.004 * Background saving started by pid 902
1:M 15 Nov 2026 06:26:12.020 # Connection with replica 203.0.113.8:6379 lost.
{"t":{"$date":"2026-11-15T06:26:13.400+00:00"},"s":"E","c":"NETWORK","id":22943,"ctx":"conn9","msg":"Error receiving request from client","attr":{"error":{"code":6,"codeName":"HostUnreachable"}}}
"""
PACKAGES = """\
Collecting requests==2.32.3
  Downloading requests-2.32.3-py3-none-any.whl (64 kB)
ERROR: Could not find a version that satisfies the requirement reqests (from versions: none)
ERROR: No matching distribution found for reqests
Get:1 http://deb.debian.org/debian bookworm InRelease [151 kB]
Err:2 http://deb.debian.org/debian bookworm-updates InRelease
  Could not connect to deb.debian.org:80 (203.0.113.1), connection timed out
E: Failed to fetch http://deb.debian.org/debian/dists/bookworm-updates/InRelease
npm ERR! code ECONNREFUSED
npm ERR! errno ECONNREFUSED
npm ERR! FetchError: request to https://registry.npmjs.org/left-pad failed, reason: connect ECONNREFUSED 203.0.113.1:443
"""
BUILD = """\
##[group]Run cmake --build build
[ 12%] Building CXX object src/CMakeFiles/app.dir/main.cc.o
src/main.cc:44:10: fatal error: foo/bar.h: No such file or directory
compilation terminated.
gmake[2]: *** [src/CMakeFiles/app.dir/build.make:76: src/CMakeFiles/app.dir/main.cc.o] Error 1
##[error]Process completed with exit code 2.
--- FAIL: TestServe (0.03s)
    serve_test.go:41: Get "http://127.0.0.1:33871": dial tcp 127.0.0.1:33871: connect: connection refused
FAIL    example.org/app/serve   0.041s
"""
MACOS = """\
2026-11-15 06:25:01.143201+0100 0x1a2b     Error       0x0                  311    0    WindowServer: (SkyLight) [com.apple.SkyLight:default] CGXPostMessage failed
2026-11-15 06:25:02.201004+0100 0x1a2c     Default     0x0                  402    0    bluetoothd: Timeout waiting for device
Nov 15 06:25:04 mac-7 com.apple.xpc.launchd[1] (com.apple.mdworker.shared[9011]): Service exited due to SIGKILL | sent by mds[120]
Nov 15 06:25:07 mac-7 kernel[0]: AppleUSBHostPort: disconnect detected
Nov 15 06:25:09 mac-7 timed[133]: settimeofday({0x6735}) == 0
"""
OTHER_LANGUAGES = """\
Exception in thread "main" java.lang.IllegalStateException: queue is closed
	at org.example.Worker.run(Worker.java:88)
	at java.base/java.lang.Thread.run(Thread.java:1583)
Caused by: java.net.ConnectException: Connection refused
	... 12 more
panic: runtime error: index out of range [3] with length 3
goroutine 1 [running]:
main.main()
	/src/main.go:14 +0x1d
thread 'main' panicked at src/main.rs:9:18:
called `Result::unwrap()` on an `Err` value: Os { code: 2, kind: NotFound, message: "No such file or directory" }
/app/server.js:12
        throw new TypeError('x is undefined');
TypeError: x is undefined
    at Object.<anonymous> (/app/server.js:12:9)
Unhandled exception. System.NullReferenceException: Object reference not set to an instance of an object.
   at Program.Main(String[] args) in /src/Program.cs:line 7
app.rb:3:in `fetch': key not found: :host (KeyError)
"""
TRAINERS = """\
[INFO|trainer.py:2414] 2026-11-15 06:25:01,143 >> ***** Running training *****
{'loss': 2.4121, 'grad_norm': 1.83, 'learning_rate': 4.99e-05, 'epoch': 0.01}
  3%|3         | 30/1000 [00:41<22:10,  1.37s/it]
 iteration       10/  500000 | consumed samples: 10240 | elapsed time per iteration (ms): 411.3 | learning rate: 1.5E-06 | lm loss: 9.87E+00 | number of skipped iterations: 0 | number of nan iterations: 0 |
Epoch 0:  42%|####2     | 421/1000 [02:11<03:00,  3.20it/s, v_num=0, train_loss=0.213]
`Trainer.fit` stopped: `max_epochs=3` reached.
[titan] 2026-11-15 06:26:01,010 - root - INFO - step: 10  loss:  7.4512  memory: 31.20GiB(39.43%)  tps: 3,912  mfu: 41.20%
[2026-11-15 06:26:03,004] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-05], mom=[(0.9, 0.95)]
saved checkpoint to /ckpts/step-100 in 3.1 s
"""
ALL = {
    "system": SYSTEM,
    "web": WEB,
    "database": DATABASE,
    "packages": PACKAGES,
    "build": BUILD,
    "macos": MACOS,
    "other-languages": OTHER_LANGUAGES,
    "trainers": TRAINERS,
}
