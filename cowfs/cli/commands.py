"""The commands: their groups and summaries, their modules, and the words of other programs that
lead to them.

`cowfs --help`, completion and the reference show the groups in this order. Commands are imported
only when they run, so that `cowfs --help` and completion stay quick.
"""

from __future__ import annotations

import keyword

GROUPS = {
    "Work": {
        "create": "Make a volume.",
        "mount": "Mount a volume to write, or a version to read.",
        "commit": "Publish what was written as a version.",
        "unmount": "Unmount; uncommitted work is kept.",
        "restart": "Restart the daemon of a mount while programs use it.",
        "exec": "Run a program with volumes, and publish what it changes.",
    },
    "History": {
        "log": "Show a volume's versions.",
        "show": "Show what is known of a volume, or recorded of a version.",
        "diff": "Show what differs between two versions.",
        "tag": "Name versions of a volume, or list their names.",
        "restore": "Bring back what an older version has.",
        "rollback": "Make a volume what an older version was.",
    },
    "Files": {
        "ls": "List volumes, or the files of one.",
        "explore": "Look at a store or a version in the terminal.",
        "index": "Write a version's index to a file, to look at without the store.",
        "tree": "Show a version's files as a tree.",
        "find": "Print the paths of a version's files.",
        "stat": "Show what is at a path of a version.",
        "du": "Show how much lies in the directories of a version.",
        "cat": "Print a file of a volume or version.",
        "cp": "Copy files into or out of a volume.",
        "mv": "Move or rename files of a volume.",
        "rm": "Remove files of a volume.",
        "mkdir": "Make directories in a volume.",
    },
    "Transfer": {
        "upload": "Publish a directory as a volume's next version.",
        "download": "Copy a version's files into a directory.",
        "import": "Copy a bucket, or files at another URL, into a volume.",
        "export": "Write a version's files as objects of a bucket.",
        "warm": "Fetch a version's contents into this machine's cache.",
    },
    "Share and merge": {
        "fork": "Make a volume that starts from a version.",
        "merge": "Merge versions of forks into a volume.",
        "push": "Copy versions to another store, under the same ids.",
        "pull": "Copy versions from another store, under the same ids.",
    },
    "Declared": {
        "apply": "Make volumes and mounts as a file declares them.",
        "up": "Mount the volumes that a file declares.",
        "down": "Unmount what `up` or `apply` has mounted.",
        "lock": "Lock declared volumes to the versions that they have.",
        "clean": "Delete declared volumes that were not used for long.",
        "allow": "Allow what a file declares that is found and not named.",
    },
    "Upkeep": {
        "delete": "Delete a volume.",
        "undelete": "Bring a deleted volume back.",
        "prune": "Mark versions that no retention rule keeps as deletable.",
        "gc": "Delete data that no version references.",
        "purge": "Take bytes out of every version that has them.",
        "maintain": "Prune volumes by their saved rules, and collect garbage.",
        "quota": "Show or set how much a volume may have.",
        "verify": "Read a version or a store again, and say what is damaged.",
        "repair": "Look for what damaged packs have lost, and put it back.",
    },
    "Stores and system": {
        "store": "Show a store; name stores, or accept one that has changed.",
        "key": "Show and change what opens an encrypted store.",
        "status": "List mounts and working copies on this machine.",
        "web": "Show a store in a browser.",
        "doctor": "Check the requirements of mounts, and suggest repairs.",
        "k8s": "Change Kubernetes manifests so that their pods can mount.",
        "bench": "Measure a directory beside the local disk.",
        "completion": "Print the completion script for a shell.",
    },
}
COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}

ELSEWHERE = {
    "add": "cp",
    "backup": "upload",
    "branch": "fork",
    "check": "verify",
    "checkout": "mount",
    "clone": "fork",
    "compare": "diff",
    "copy": "cp",
    "destroy": "delete",
    "dir": "ls",
    "fetch": "pull",
    "forget": "prune",
    "format": "create",
    "fsck": "verify",
    "get": "download",
    "history": "log",
    "init": "create",
    "list": "ls",
    "make": "create",
    "new": "create",
    "open": "mount",
    "passwd": "key",
    "password": "key",
    "ps": "status",
    "publish": "commit",
    "put": "cp",
    "read": "cat",
    "remote": "store",
    "remove": "rm",
    "rename": "mv",
    "move": "mv",
    "reset": "rollback",
    "revert": "rollback",
    "run": "exec",
    "save": "commit",
    "info": "show",
    "inspect": "show",
    "describe": "show",
    "snapshot": "commit",
    "snapshots": "log",
    "switch": "mount",
    "sync": "upload",
    "umount": "unmount",
    "unlink": "rm",
    "versions": "log",
    "volumes": "ls",
    "warmup": "warm",
}
"""Commands of other programs, with the equivalent or nearest command here."""

ROOMS = {
    "volumes": "create fork log show tag diff merge restore rollback ls delete undelete",
    "files": "find explore index tree stat du cat cp mv rm mkdir upload download import export warm",
    "mounts": "mount commit unmount restart exec apply up down lock clean",
    "stores": "quota prune verify repair push pull gc purge maintain key store",
    "machine": "allow status web k8s completion bench doctor",
}
"""The package below `cowfs.cli` that contains a command's module."""
_ROOM_OF = {command: room for room, commands in ROOMS.items() for command in commands.split()}


def module_of(command: str) -> str:
    """The module of a command. A name that is a Python keyword gets an underscore."""
    name = f"{command}_" if keyword.iskeyword(command) else command
    return f"cowfs.cli.{_ROOM_OF[command]}.{name}"
