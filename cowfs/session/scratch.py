"""A scratch: a version that is written to. Nothing of it lies in the store, and nothing is kept
when it ends.

It stands on its version as a read-only session does: no lease, no pin. What is written lies in a
directory of its own (`machine.scratch`), which is deleted with the session. To commit it, a volume
is forked from its version and adopted: from then on the session is that volume's writer, with a
lease and a pin until it ends or adopts another one, and its commits go there. What was not
committed is gone at the end all the same.

Threads: any; one adopts at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack


class Scratch:
    """claim makes the session the writer of a volume, and leaves on the stack what is given back at
    the end."""

    def __init__(self, claim: Callable[[str, ExitStack], None]) -> None:
        self._claim = claim
        self._held = ExitStack()
        self._volume: str | None = None
        self._mutex = threading.Lock()

    def adopt(self, volume: str) -> None:
        """Commits go to the volume from now on; nothing to do if they do already. Another one that
        they went to is given back: it may have been taken over. ConflictError: the volume does not
        stand on the last version of this session.
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
        """Gives lease and pin back, if there are any."""
        with self._mutex:
            self._held.close()
