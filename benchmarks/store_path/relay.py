"""A TCP relay to a store: adds latency to what comes back, and counts the requests of its clients.

    python -m benchmarks.store_path.relay TARGET_PORT DELAY_MS

Prints its port. Each line on standard input is answered by what was seen since the last one, as
JSON: {"requests", "sent_bytes", "received_bytes", "depth", "lines"}. depth: the longest chain of
requests of which each began when the one before had been answered: so many round trips had to be
waited for. Ends with its standard input.

A request begins where a client's bytes begin with an HTTP method. What is relayed passes through
this process, so that a speed beside it on the same cores is not the store's.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import deque
from dataclasses import dataclass

PIECE_BYTES = 1 << 20
METHOD = re.compile(rb"(GET|PUT|POST|HEAD|DELETE) ")


@dataclass
class Seen:
    """A request, by the relay's clock."""

    line: str
    start_s: float
    end_s: float


class Relay:
    def __init__(self, port: int, delay_s: float) -> None:
        self._port, self._delay_s = port, delay_s
        self._seen: list[Seen] = []
        self._sent_bytes = self._received_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        answers, target = await asyncio.open_connection("127.0.0.1", self._port, limit=PIECE_BYTES)
        open_requests: deque[Seen] = deque()
        ways = (self._forth(client, target, open_requests), self._back(answers, back, open_requests))
        try:
            await asyncio.gather(*ways)
        except OSError:  # one side is gone; so is the other
            pass
        finally:
            target.close()
            back.close()

    async def _forth(
        self, client: asyncio.StreamReader, target: asyncio.StreamWriter, open_requests: deque[Seen]
    ) -> None:
        now_s = asyncio.get_running_loop().time
        while data := await client.read(PIECE_BYTES):
            self._sent_bytes += len(data)
            if METHOD.match(data):
                request = Seen(data.split(b" HTTP/")[0].decode(errors="replace"), now_s(), now_s())
                self._seen.append(request)
                open_requests.append(request)
            target.write(data)
            await target.drain()
        target.write_eof()

    async def _back(
        self, answers: asyncio.StreamReader, back: asyncio.StreamWriter, open_requests: deque[Seen]
    ) -> None:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

        async def deliver() -> None:
            while True:
                due_s, data = await waiting.get()
                await asyncio.sleep(due_s - loop.time())
                if open_requests:
                    open_requests[-1].end_s = loop.time()
                back.write(data)
                if not data:
                    return
                await back.drain()

        delivering = asyncio.create_task(deliver())
        self._tasks.add(delivering)
        delivering.add_done_callback(self._tasks.discard)
        while data := await answers.read(PIECE_BYTES):
            self._received_bytes += len(data)
            await waiting.put((loop.time() + self._delay_s, data))
        await waiting.put((loop.time() + self._delay_s, b""))
        await delivering
        back.close()

    def report(self) -> str:
        depth, last_end_s = 0, 0.0
        for request in sorted(self._seen, key=lambda each: each.end_s):  # the most that are disjoint
            if request.start_s >= last_end_s:
                depth, last_end_s = depth + 1, request.end_s
        found = {
            "requests": len(self._seen),
            "sent_bytes": self._sent_bytes,
            "received_bytes": self._received_bytes,
            "depth": depth,
            "lines": [request.line for request in self._seen],
        }
        self._seen, self._sent_bytes, self._received_bytes = [], 0, 0
        return json.dumps(found)


async def main(port: int, delay_ms: float) -> None:
    relay = Relay(port, delay_ms / 1e3)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0, limit=PIECE_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(relay.report(), flush=True)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
