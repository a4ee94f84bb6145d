"""One request of a `ScriptedServer`, sent on to a real S3 server: for a proxy that does something
at a certain request, or answers it by itself.

The request goes on as it is, with the proxy's name in `Host`, which its signature covers.
"""

from __future__ import annotations

import http.client

from tests.seaweedfs import SeaweedFS
from tests.store.scripted_server import Answer, Request

PATIENCE_S = 120


def forward(server: SeaweedFS, request: Request) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", server.ports[0], timeout=PATIENCE_S)
    try:
        connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers.items():
            connection.putheader(name, value)
        connection.endheaders(request.body)
        answer = connection.getresponse()
        body = answer.read()
        headers = {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()
    length = headers.pop("content-length", str(len(body))) if request.method == "HEAD" else str(len(body))
    for name in ("content-length", "transfer-encoding", "connection", "keep-alive"):
        headers.pop(name, None)
    lines = [f"HTTP/1.1 {answer.status} {answer.reason}", f"content-length: {length}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body, True
