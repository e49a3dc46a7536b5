#!/usr/bin/env python3
"""Replay raw request files against a running server.

    replay.py DIRECTORY URL [--pid PID] [--pass N] [--as-target]

Each file of DIRECTORY is sent as it is, on a connection of its own, which is
then half-closed and read to its end. The server must end every connection
within the time limit, begin every answer with an HTTP status line, and answer
a normal request after every 100 files and at the end. With --as-target a file
becomes the target of an otherwise good request. With --pid the resident
memory and the open descriptors of the process are compared between the first
and the last pass. Exit code 0 if all held, 1 otherwise.
"""

import argparse
import collections
import os
import re
import socket
import sys
import urllib.parse

# Generous: the header time limit of the server is 10 s, and a half-closed
# connection must not wait for it.
ANSWER_S_MAX = 5.0
ANSWER_BYTES_MAX = 64 << 20
# What may be held on to between two passes, for allocator noise.
GROWTH_KB_MAX = 4096


def exchange(address, data):
    """Send `data`, half-close, read to the end: (verdict, first bytes)."""
    with socket.create_connection(address, timeout=ANSWER_S_MAX) as conn:
        try:
            conn.sendall(data)
            conn.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused while we were still sending: the answer may be there
        except OSError as error:
            if error.errno != 107:  # ENOTCONN: closed by the other side already
                return f"send: {error}", b""
        head, total = b"", 0
        while True:
            try:
                piece = conn.recv(65536)
            except socket.timeout:
                return "hang", head
            except ConnectionResetError:
                return "reset", head
            if not piece:
                return "end", head
            head = (head + piece)[:4096]
            total += len(piece)
            if total > ANSWER_BYTES_MAX:
                return "too much", head


def status(head):
    """The status of the first answer, or what stands there instead."""
    if not head:
        return "nothing"
    found = re.match(rb"HTTP/1\.[01] ([1-5]\d\d)[ \r]", head)
    return found.group(1).decode() if found else "no status line"


def alive(address, path):
    """Whether a normal request is answered."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    verdict, head = exchange(address, request.encode())
    return verdict == "end" and status(head) == "200"


def held(pid):
    """(resident KB, descriptors) of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        resident = int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))
    return resident, len(os.listdir(f"/proc/{pid}/fd"))


def one_pass(address, path, names, as_target):
    """Replay all files once: (counts of outcomes, complaints)."""
    counts, complaints = collections.Counter(), []
    for nth, name in enumerate(names, 1):
        with open(name, "rb") as file:
            data = file.read()
        if as_target:
            data = b"GET " + data + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
        try:
            verdict, head = exchange(address, data)
        except OSError as error:
            verdict, head = f"connect: {error}", b""
        what = status(head)
        counts[what if verdict == "end" else f"{verdict} after {what}"] += 1
        if verdict != "end" or what == "no status line":
            complaints.append(f"{name}: {verdict}, {what}")
        if nth % 100 == 0 and not alive(address, path):
            complaints.append(f"{name}: no normal answer after this file")
            break
    if not alive(address, path):
        complaints.append("no normal answer at the end")
    return counts, complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory")
    parser.add_argument("url")
    parser.add_argument("--pid", type=int)
    parser.add_argument("--as-target", action="store_true")
    parser.add_argument("--pass", dest="passes", type=int, default=3)
    args = parser.parse_args()
    url = urllib.parse.urlsplit(args.url)
    address, path = (url.hostname, url.port or 80), url.path or "/"
    names = sorted(
        entry.path for entry in os.scandir(args.directory) if entry.is_file()
    )
    if not names:
        sys.exit(f"{args.directory}: no files")
    if not alive(address, path):
        sys.exit(f"{args.url}: no normal answer before the start")
    marks, bad = [], False
    for nth in range(1, args.passes + 1):
        counts, complaints = one_pass(address, path, names, args.as_target)
        table = ", ".join(f"{what}: {n}" for what, n in counts.most_common())
        print(f"pass {nth}: {len(names)} files; {table}")
        if args.pid:
            marks.append(held(args.pid))
            print(f"pass {nth}: {marks[-1][0]} KB resident, {marks[-1][1]} descriptors")
        for complaint in complaints:
            print(complaint, file=sys.stderr)
        bad = bad or bool(complaints)
    # The first pass warms up pools; growth after it would be a leak.
    if len(marks) > 1:
        if marks[-1][0] > marks[0][0] + GROWTH_KB_MAX or marks[-1][1] > marks[0][1] + 8:
            print(f"grew from {marks[0]} to {marks[-1]} (KB, descriptors)", file=sys.stderr)
            bad = True
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
