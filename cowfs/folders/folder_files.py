"""Files of a volume's folder, mounted or not, read as they are now."""

from __future__ import annotations

import os

from cowfs.folders import mounted_folders
from cowfs.folders.lost_folders import open_folder
from cowfs.machine.folders.folder import Copy
from cowfs.machine.working_copy import WorkingCopy
from cowfs.session.mounted_files import MountedFiles


def read_file(working_copy: WorkingCopy, path: str) -> bytes:
    """A file of a volume's folder, mounted or not."""
    with mounted_folders.turn(working_copy.path):
        with (
            open_folder(Copy(working_copy.path)) as root,
            MountedFiles(root.path, root.fileno()) as files,
            files.open(os.fsencode(path), os.O_RDONLY) as file,
        ):
            return file.read(0, file.size())


def mode_and_target(working_copy: WorkingCopy, path: str) -> tuple[int, str | None]:
    """st_mode of an entry of a volume's folder, mounted or not, and the target if it is a link."""
    with (
        mounted_folders.turn(working_copy.path),
        open_folder(Copy(working_copy.path)) as root,
        MountedFiles(root.path, root.fileno()) as files,
    ):
        mode = files.stat(os.fsencode(path)).mode
        is_link = mode & 0o170000 == 0o120000
        return mode, os.fsdecode(files.readlink(os.fsencode(path))) if is_link else None
