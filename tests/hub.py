"""A stand-in for the Hugging Face hub, which keeps what is committed and can fail as a hub does."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

TOKEN = "hf_owner"  # the one that may write


class Hub(ThreadingHTTPServer):
    """Repositories by id, in memory: their files and the commits that they were made by.

    Attributes:
        breaks: Part of the paths of which the hub says that half has arrived.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.objects: dict[str, bytes] = {}  # uploaded, part of no commit yet
        self.commits: list[str] = []
        self.breaks = "?"  # no path has it
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, content: Any = b"", status: int = 200, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(data))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def refuse(self, status: int, code: str = "", **headers: str) -> None:
        self.answer({"error": code}, status, **({"X-Error-Code": code} if code else {}), **headers)

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        path = unquote(self.path.partition("?")[0])
        found = re.fullmatch(
            r"(?:/api/models)?/([\w.-]+/[\w.-]+)(?:/(resolve|revision|tree)/([^/]+)(?:/(.+))?)?",
            path,
        )
        files = self.server.repositories.get(found[1]) if found else None
        if files is None:
            return self.refuse(404, "RepoNotFound")
        assert found
        sha = "c" * 40
        if found[2] == "resolve":
            if found[4] not in files:
                return self.refuse(404, "EntryNotFound", X_Repo_Commit=sha)
            content = files[found[4]]
            etag = f'"{hashlib.sha256(content).hexdigest()}"'
            return self.answer(content, ETag=etag, X_Repo_Commit=sha)
        entries = [
            {
                "type": "file",
                "path": n,
                "rfilename": n,
                "size": len(c),
                "oid": hashlib.sha1(c).hexdigest(),
            }
            for n, c in files.items()
        ]
        if found[2] == "tree":
            return self.answer(entries)
        return self.answer({"id": found[1], "sha": sha, "siblings": entries, "private": False})

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        body = self.body()
        if self.server.breaks in self.path:
            return self.refuse(400, "IncompleteBody")
        self.server.objects[self.path.rpartition("/")[2]] = body
        self.answer()

    def do_POST(self) -> None:
        body = self.body()
        if self.server.breaks in self.path:
            return self.refuse(400, "IncompleteBody")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            known = "Authorization" in self.headers
            return self.refuse(403 if known and "reader" in self.headers["Authorization"] else 401)
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization')}/{asked['name']}"
            if name in self.server.repositories:
                return self.answer({"url": f"{self.server.address}/{name}"}, 409)
            self.server.repositories[name] = {".gitattributes": b""}
            return self.answer({"url": f"{self.server.address}/{name}"})
        if "/preupload/" in self.path:
            modes = [
                {
                    "path": f["path"],
                    "uploadMode": "lfs" if f["path"].endswith("ckpt") else "regular",
                    "shouldIgnore": False,
                }
                for f in json.loads(body)["files"]
            ]
            return self.answer({"files": modes})
        if self.path.endswith("/info/lfs/objects/batch"):
            objects = [
                o | {"actions": {"upload": {"href": f"{self.server.address}/upload/{o['oid']}"}}}
                for o in json.loads(body)["objects"]
            ]
            return self.answer({"transfer": "basic", "objects": objects})
        if self.path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        name = self.path.removeprefix("/api/models/").partition("/commit/")[0]
        files = self.server.repositories[name]
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
            elif line["key"] == "header":
                self.server.commits.append(name)
        address = f"{self.server.address}/{name}/commit/{'c' * 40}"
        return self.answer({"success": True, "commitOid": "c" * 40, "commitUrl": address})
