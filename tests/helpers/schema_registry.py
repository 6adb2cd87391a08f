"""A stand-in for a schema registry: it answers the two calls that the client makes, and is no registry otherwise.

In: schemas that a test registers. Out: answers over HTTP on a loopback port. Touches: a thread.
"""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class StandInRegistry:
    """Schemas by id and by subject, and how the next requests are answered.

    Args:
        user: "name:password" that every request must carry, if any.
        token: bearer token likewise.
        tls: files of the server's certificate and key, and of the authority that clients' certificates must have.
    """

    user: str = ""
    token: str = ""
    tls: tuple[Path, Path, Path | None] | None = None
    by_id: dict[int, dict[str, Any]] = field(default_factory=dict)
    by_global_id: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Of Apicurio's own interface."""
    by_subject: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    failing: list[tuple[int, bytes]] = field(default_factory=list)
    """Status and body of the next answers; the last one stays."""
    asked: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        stand_in = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stand_in.asked.append((self.command, self.path))
                status, body = stand_in.answer(self.path, self.headers.get("Authorization", ""))
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        if self.tls is not None:
            certificate, key, authority = self.tls
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            if authority is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(authority)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def __enter__(self) -> StandInRegistry:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def register(
        self, number: int, schema: Any, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        answer: dict[str, Any] = {"schema": text}
        if kind != "AVRO":
            answer["schemaType"] = kind
        if references:
            answer["references"] = references
        self.by_id[number] = answer
        self.by_subject[f"subject-{number}", 1] = answer

    def register_globally(self, number: int, schema: Any) -> None:
        self.by_global_id[number] = schema

    def answer(self, path: str, authorization: str) -> tuple[int, bytes]:
        if self.failing:
            return self.failing[0] if len(self.failing) == 1 else self.failing.pop(0)
        wanted = {f"Basic {base64.b64encode(self.user.encode()).decode()}"} if self.user else set()
        wanted |= {f"Bearer {self.token}"} if self.token else set()
        if wanted and authorization not in wanted:
            return 401, b'{"error_code":401,"message":"Unauthorized"}'
        parts = path.partition("?")[0].strip("/").split("/")
        if parts[-2:-1] == ["globalIds"]:
            schema = self.by_global_id.get(int(parts[-1]))
            if schema is None:
                return 404, b'{"error_code":404,"name":"ArtifactNotFoundException","message":"No artifact"}'
            return 200, json.dumps(schema).encode()
        found = None
        if parts[:2] == ["schemas", "ids"]:
            found = self.by_id.get(int(parts[2]))
        elif parts[0] == "subjects" and parts[2] == "versions":
            found = self.by_subject.get((parts[1], int(parts[3])))
        if found is None:
            return 404, b'{"error_code":40403,"message":"Schema not found"}'
        return 200, json.dumps(found).encode()
