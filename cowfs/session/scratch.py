"""A scratch: a writable session on a version. It stores nothing and keeps nothing when it ends.

It is based on its version as a read-only session is: no lease, no pin. Writes go to a separate
directory (`machine.scratch_directories`), which is deleted with the session. To commit the scratch,
a volume is forked from its version and adopted: from then on the session is that volume's writer,
with a lease and a pin until it ends or adopts another volume, and its commits go there. Uncommitted
changes are lost at the end all the same.

Any thread may call; adoptions run one at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack


class Scratch:
    """claim makes the session the writer of a volume, and registers the cleanup on the stack."""

    def __init__(self, claim: Callable[[str, ExitStack], None]) -> None:
        self._claim = claim
        self._held = ExitStack()
        self._volume: str | None = None
        self._mutex = threading.Lock()

    def adopt(self, volume: str) -> None:
        """Sends commits to the volume from now on; a no-op if they go there already. The previous
        volume is released: another writer may have taken it over. ConflictError: the volume's last
        version is not the one this session is based on.
        """
        with self._mutex:
            if self._volume == volume:
                return
            with ExitStack() as stack:
                self._claim(volume, stack)
                before, self._held = self._held, stack.pop_all()
            self._volume = volume
            before.close()

    def close(self) -> None:
        """Releases lease and pin, if there are any."""
        with self._mutex:
            self._held.close()
