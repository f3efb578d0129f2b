"""A local HTTP server that answers as the Hugging Face hub does, for as much of it as downloads
use.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """What the hub holds. files: content by model and path; by `name@revision` for revisions that
    differ. gated: models that want a token, "secret". commits: those of revisions that are not all
    one.

    ranges: whether parts of files can be asked for. cut: of no answer more bytes than this are sent,
    then the connection ends. asked: files whose content was sent. parts: the parts of them that were
    asked for. sent: how many bytes of them.
    """

    files: dict[str, dict[str, bytes]]
    revisions: tuple[str, ...] = ("main", "v1", COMMIT)
    commits: dict[str, str] = field(default_factory=dict)
    gated: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    ranges: bool = True
    cut: int | None = None
    asked: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    sent: int = 0
    endpoint: str = ""


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """The hub, served at `hub.endpoint` on 127.0.0.1 while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def log_message(self, format: str, *arguments: object) -> None:
            return

        def _answer(self, with_body: bool) -> None:
            path = unquote(self.path).split("?")[0].strip("/")
            if path.startswith("api/models/"):
                self._list(path.removeprefix("api/models/").partition("/tree/")[0])
                return
            name, _, rest = path.partition("/resolve/")
            revision, _, file = rest.partition("/")
            named = next(
                (key for key, commit in hub.commits.items() if commit == revision), revision
            )
            own = f"{name}@{named}" if f"{name}@{named}" in hub.files else name
            self.commit = hub.commits.get(named, COMMIT)
            if with_body and rest:
                hub.asked.append(file)
            if name in hub.broken:
                self._fail(500, "")
            elif own not in hub.files:
                self._fail(404, "RepoNotFound")
            elif name in hub.gated and self.headers.get("authorization") != "Bearer secret":
                self._fail(403, "GatedRepo")
            elif named not in hub.revisions:
                self._fail(404, "RevisionNotFound")
            elif file not in hub.files[own]:
                self._fail(404, "EntryNotFound")
            else:
                self._content(hub.files[own][file], with_body)

        def _list(self, name: str) -> None:
            self.commit = COMMIT
            if name not in hub.files:
                self._fail(404, "RepoNotFound")
                return
            entries = [
                {"type": "file", "path": path, "size": len(content), "oid": "0" * 40}
                for path, content in hub.files[name].items()
            ]
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            body = json.dumps(entries).encode()
            self._end(body, len(body))

        def _content(self, content: bytes, with_body: bool) -> None:
            part = content
            asked = (
                re.fullmatch(r"bytes=([0-9]+)-([0-9]*)", self.headers.get("range", ""))
                if with_body and hub.ranges
                else None
            )
            self.send_response(200 if asked is None else 206)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            if asked is not None:
                hub.parts.append(asked[0])
                part = content[int(asked[1]) : int(asked[2] or len(content)) + 1]
                self.send_header(
                    "Content-Range",
                    f"bytes {asked[1]}-{int(asked[1]) + len(part) - 1}/{len(content)}",
                )
            body = part[: hub.cut] if with_body else b""
            hub.sent += len(body)
            self.close_connection = len(body) < len(part) and with_body
            self._end(body, len(part))

        def _fail(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self._end(b"", 0)

        def _end(self, body: bytes, length: int) -> None:
            self.send_header("X-Repo-Commit", self.commit)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
