"""Who we are when we claim something in a store, and whether another claimant of this machine is
gone.

Only a process that could be seen here is judged (`cowfs.machine.processes`); one of another
machine, boot or container counts as alive.
"""

from __future__ import annotations

import os
import pwd
import socket

from cowfs.format.records import Holder
from cowfs.machine import processes


def current_holder(mount_path: str, *, pid: int | None = None) -> Holder:
    """This process, or process `pid` of this machine. mount_path: for people; records hold text, so
    bytes in it that are not UTF-8 are escaped."""
    pid = os.getpid() if pid is None else pid
    return Holder(
        user=_user(),
        host=socket.gethostname(),
        mount_path=os.fsencode(mount_path).decode(errors="backslashreplace"),
        pid=pid,
        start_time=processes.start_time(pid) or 0,
        machine_id=processes.machine_id(),
        boot_id=processes.boot_id(),
    )


def is_dead(holder: Holder) -> bool:
    """Whether its process certainly runs no more. A holder of another machine, boot or pid
    namespace, or any where /proc is not ours: False."""
    if not processes.can_judge(holder.machine_id) or holder.boot_id != processes.boot_id():
        return False
    return not processes.is_running(holder.pid, holder.start_time)


def is_in_another_container(holder: Holder) -> bool:
    """Whether its process ran under this kernel, since this boot, where it was never to be seen
    from here."""
    return holder.boot_id == processes.boot_id() and holder.machine_id != processes.machine_id()


def is_of_earlier_boot(holder: Holder) -> bool:
    """Whether it names this machine before its last start. It may be another machine that was
    copied from the same image, so this does not prove the holder dead."""
    return holder.machine_id == processes.machine_id() and holder.boot_id != processes.boot_id()


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
