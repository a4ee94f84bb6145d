"""Versions that stay mounted while a worker runs, for the plugins of task systems.

A thread runs a task whose body waits. So the mounts are bound to this process and end with it, also
after kill -9. Workers of one node share the mount of a version, and the last one unmounts.
"""

from __future__ import annotations

from queue import SimpleQueue
from threading import Event, Thread

from cowfs import TaskVolume, task
from cowfs.errors import InvalidInputError


class NodeMounts:
    """volumes: SOURCE[:PATH], or a TaskVolume, with mode ro. Nothing is read before `open`."""

    def __init__(self, *volumes: str | TaskVolume) -> None:
        self._volumes = [each if isinstance(each, TaskVolume) else TaskVolume.parse(each) for each in volumes]
        for each in self._volumes:
            if each.mode != "ro":
                raise InvalidInputError(
                    f"{each.source!r} cannot be mounted for all workers of a node with mode {each.mode}",
                    hint="Mount versions here, and what a task writes in the task: @cowfs.task, cowfs.map.",
                )
        self._end = Event()
        self._answers: SimpleQueue[BaseException | None] = SimpleQueue()
        """None after all were mounted, and again after all were unmounted; or an error."""
        self._is_open = False

    def open(self) -> None:
        """Mounts all; raises the error of a mount that failed, after unmounting the others."""

        @task(volumes=self._volumes)
        def hold() -> None:
            self._answers.put(None)
            self._end.wait()

        def run() -> None:
            try:
                hold()
                self._answers.put(None)
            except BaseException as error:  # noqa: BLE001 # open() or close() raises it
                self._answers.put(error)

        Thread(target=run, name="cowfs node mounts", daemon=True).start()
        if (error := self._answers.get()) is not None:
            raise error
        self._is_open = True

    def close(self) -> None:
        """Unmounts. ConflictError: files are open."""
        self._end.set()
        if self._is_open and (error := self._answers.get()) is not None:
            raise error
