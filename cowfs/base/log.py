"""One logger tree, `cowfs.*`, quiet unless asked: `COWFS_LOG=debug|info|warning` sets its level.

The command line and the daemon call `configure`; a library user configures logging as for any other
package. Never logged: credentials, file contents, user file names above debug level.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

from cowfs.base import hints, interruptible
from cowfs.base.redaction import redact

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}

_store: Callable[[], str] = str


class _Redacting(logging.Formatter):
    """Redacts tracebacks, too: they hold messages of other libraries, with unknown content."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def get(name: str) -> logging.Logger:
    """The logger of one part, for example `log.get("store")`."""
    logger = logging.getLogger(f"cowfs.{name}")
    logger.addFilter(interruptible.is_logged_here)
    logger.addFilter(_insert_store)
    return logger


def _insert_store(record: logging.LogRecord) -> bool:
    """Fills the slots of commands (`cowfs.base.hints`), so that no handler sees them."""
    if hints.SLOT in (text := record.getMessage()):
        record.msg, record.args = hints.insert_store(text, _store()), None
    return True


def configure(*, is_command: bool = False, store: Callable[[], str] = str) -> None:
    """Sends cowfs' log to stderr at the level of COWFS_LOG (default: warning). is_command: a person
    reads the log between the output lines of a command, so without COWFS_LOG it looks like them;
    and log records of other libraries about errors that cowfs reports itself are shown only with
    COWFS_LOG=debug. store: returns what commands in the log pass to --store, or ""."""
    global _store
    _store = store
    asked = os.environ.get("COWFS_LOG", "")
    wanted = asked or "warning"
    level = LEVELS.get(wanted.lower())
    handler = logging.StreamHandler(sys.stderr)
    is_plain = is_command and not asked
    form = "cowfs: %(message)s" if is_plain else "%(asctime)s %(levelname)s %(name)s: %(message)s"
    handler.setFormatter(_Redacting(form))
    root = logging.getLogger("cowfs")
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING if level is None else level)
    root.propagate = False
    if is_command:
        logging.getLogger().addHandler(handler if level == logging.DEBUG else logging.NullHandler())
    if level is None:
        root.warning("COWFS_LOG is %r, which is not a level; it takes one of %s", wanted, ", ".join(LEVELS))
