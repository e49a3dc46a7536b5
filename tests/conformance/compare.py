#!/usr/bin/env python3
"""Ask two servers the same about the same files, and tell where they differ.

    compare.py prepare DIRECTORY      write the files to be served
    compare.py ask PORT PORT          ask both on the loopback, print differences

Compared are the status, the body, and what the fields mean to a client; not
their order or the text of errors. The exit code is 0 whether or not they
differ: each difference needs a reader, see docs/conformance.md.
"""

import email.utils
import gzip
import http.client
import os
import socket
import sys
import urllib.parse

# Long past, so that every tag is strong.
MODIFIED_S = 1_700_000_000
FILES = {
    "index.html": b"hello index\n",
    "a.txt": b"0123456789" * 100,
    "empty.txt": b"",
    "idx/index.html": b"x",
    "sp ace.txt": b"s",
    "x.json": b"{}",
    "v.mp4": b"m" * 5000,
    "p.html": b"<p>" * 50,
    "p.html.gz": gzip.compress(b"<p>" * 50, mtime=0),
}
# Both servers make it of the time and the size, in hex.
TAG = f'"{MODIFIED_S:x}-{1000:x}"'
AT, BEFORE, AFTER = (
    email.utils.formatdate(MODIFIED_S + s, usegmt=True) for s in (0, -86400, 86400)
)


def ranged(value, path="/a.txt", **more):
    return "GET", path, {"Range": value, **more}


def asked(method, path, **fields):
    return method, path, {name.replace("_", "-"): value for name, value in fields.items()}


REQUESTS = [
    *(asked("GET", p) for p in ("/", "/a.txt", "/empty.txt", "/idx", "/idx?q=1", "/idx/")),
    *(asked("GET", p) for p in ("/none", "/a.txt/", "/sp%20ace.txt", "/x.json", "/v.mp4")),
    *(asked("GET", p) for p in ("/%2e%2e/etc/passwd", "/a%00b", "/idx/../a.txt", "//a.txt")),
    *(asked("GET", p) for p in ("/list/", "/../a.txt", "/a%2", "/idx/.", "/idx/..")),
    *(asked("HEAD", p) for p in ("/", "/a.txt", "/none", "/idx")),
    *(ranged(f"bytes={r}") for r in ("0-9", "990-", "-5", "0-", "1000-", "-0", "5-2")),
    *(ranged(f"bytes={r}") for r in ("0-1,5-6", "0-999,0-999", "0-4000", "-4000", "x")),
    ranged("items=0-1"),
    ranged("bytes=0-", "/empty.txt"),
    ranged("bytes=-1", "/empty.txt"),
    asked("HEAD", "/a.txt", Range="bytes=0-9"),
    *(asked("GET", "/a.txt", If_None_Match=t) for t in (TAG, "*", '"x"', "W/" + TAG)),
    *(asked("GET", "/a.txt", If_Match=t) for t in (TAG, "*", '"x"', "W/" + TAG)),
    *(asked("GET", "/a.txt", If_Modified_Since=d) for d in (AT, BEFORE, AFTER, "no date")),
    *(asked("GET", "/a.txt", If_Unmodified_Since=d) for d in (AT, BEFORE, AFTER)),
    asked("GET", "/a.txt", If_None_Match='"x"', If_Modified_Since=AT),
    *(ranged("bytes=0-9", **{"If-Range": v}) for v in (TAG, '"x"', "W/" + TAG, AT, BEFORE)),
    *(asked("GET", "/p.html", Accept_Encoding=e) for e in ("gzip", "gzip;q=0", "br")),
    asked("GET", "/p.html"),
    asked("HEAD", "/p.html", Accept_Encoding="gzip"),
    asked("POST", "/a.txt", Content_Length="0"),
    *(asked(m, "/a.txt") for m in ("DELETE", "OPTIONS", "FOO")),
    asked("GET", "/a.txt", Connection="close"),
]


def ask(port, method, path, fields):
    """What a client learns from the answer, by name."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    with socket.create_connection(("127.0.0.1", port), timeout=5) as conn:
        conn.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        answer = http.client.HTTPResponse(conn, method=method)
        answer.begin()
        body = answer.read()
    told = {"status": answer.status, "Date": answer.getheader("Date") is not None}
    names = ["Content-Range", "ETag", "Last-Modified", "Accept-Ranges", "Vary"]
    names += ["Content-Encoding", "Location", "Allow"]
    for name in names:
        told[name] = answer.getheader(name)
    if told["Location"] is not None:
        told["Location"] = urllib.parse.urljoin(path, told["Location"])  # where it leads
    # keep-alive is what HTTP/1.1 means anyway.
    told["closes"] = "close" in (answer.getheader("Connection") or "")
    media = (answer.getheader("Content-Type") or "").partition(";")[0]
    # The text of errors and listings, and the boundary, are the server's own.
    if answer.status in (200, 206) and not path == "/list/":
        told["media type"] = media
        if media != "multipart/byteranges":
            told["Content-Length"], told["body"] = answer.getheader("Content-Length"), body
    return told


def shown(value):
    """A body by its length, all else as it is."""
    return f"{len(value)} bytes" if isinstance(value, bytes) else repr(value)


def prepare(directory):
    os.makedirs(os.path.join(directory, "list"), exist_ok=True)
    for name, data in FILES.items():
        path = os.path.join(directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        os.utime(path, (MODIFIED_S, MODIFIED_S))


def compare(ports):
    same = 0
    for request in REQUESTS:
        one, two = (ask(port, *request) for port in ports)
        differences = [
            f"{name} {shown(one.get(name))} / {shown(two.get(name))}"
            for name in {**one, **two}
            if one.get(name) != two.get(name)
        ]
        same += not differences
        if differences:
            method, path, fields = request
            asks = "".join(f" {n}: {v}" for n, v in fields.items())
            print(f"{method} {path}{asks}\n    " + "\n    ".join(differences))
    print(f"{len(REQUESTS)} requests, {same} answered alike")


def main():
    match sys.argv[1:]:
        case ["prepare", directory]:
            prepare(directory)
        case ["ask", one, two]:
            compare((int(one), int(two)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
