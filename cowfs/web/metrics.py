"""Figures for Prometheus: requests of this server, and the mounts of this machine.

A scraper shows the token in `<state directory>/web/metrics-token` (credentials_file of its
configuration); users who have logged in need none.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Iterator

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cowfs.web.answers import visible
from cowfs.web.api_values import MountValue
from cowfs.web.live_mounts import read
from cowfs.web.shared_links import read_secret

GAUGES = {
    "memory_bytes": "Memory of the mount's engine.",
    "uploaded_bytes": "Bytes that the mount has uploaded.",
    "waiting_requests": "Requests of the kernel that wait for data.",
    "oldest_request_s": "How long the oldest of these has waited, in seconds.",
}


METHODS = frozenset(("DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"))


class Requests:
    """Counts answers by method and status, and bytes sent. Threads: the event loop alone."""

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()
        self.sent_bytes = 0

    def note(self, method: str, status: int) -> None:
        """Other methods than METHODS count as one: a client may send any word."""
        self.answers[method if method in METHODS else "other", status] += 1


def is_scraper(headers: Headers) -> bool:
    """Whether a request shows the token."""
    given = headers.get("authorization", "")
    return hmac.compare_digest(given.encode(), b"Bearer " + read_secret("metrics-token"))


def page(request: Request) -> Response:
    counted: Requests = request.app.state.access.requests
    lines = [*_requests(counted), *_mounts(read().mounts)]
    return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


def _requests(counted: Requests) -> Iterator[str]:
    yield "# HELP cowfs_web_answers_total Answers of this server."
    yield "# TYPE cowfs_web_answers_total counter"
    for (method, status), number in sorted(counted.answers.items()):
        yield f'cowfs_web_answers_total{{method="{method}",status="{status}"}} {number}'
    yield "# HELP cowfs_web_sent_bytes_total Bytes of bodies that were sent."
    yield "# TYPE cowfs_web_sent_bytes_total counter"
    yield f"cowfs_web_sent_bytes_total {counted.sent_bytes}"


def _mounts(mounts: list[MountValue]) -> Iterator[str]:
    yield "# HELP cowfs_mount_uncommitted Whether the mount has work that is in no version."
    yield "# TYPE cowfs_mount_uncommitted gauge"
    for each in mounts:
        if each.has_uncommitted is not None:
            yield f"cowfs_mount_uncommitted{_labels(each)} {int(each.has_uncommitted)}"
    for name, text in GAUGES.items():
        yield f"# HELP cowfs_mount_{name} {text}"
        yield f"# TYPE cowfs_mount_{name} gauge"
        for each in mounts:
            if (value := getattr(each, name)) is not None:
                yield f"cowfs_mount_{name}{_labels(each)} {value}"


def _labels(mount: MountValue) -> str:
    named = {"volume": mount.volume, "mount_path": mount.mount_path, "state": mount.state}
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in named.items()) + "}"


def _escape(text: str) -> str:
    return visible(text).replace("\\", "\\\\").replace('"', '\\"')
