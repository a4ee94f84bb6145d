"""Libraries loaded into a daemon in front of the C library's own: faults of the machine that cannot
be had otherwise."""

from __future__ import annotations

import subprocess
from pathlib import Path

NO_THREADS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <unistd.h>
/* While the file SWITCH exists no thread can be had, as at a control group's pids.max. */
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *x) {
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    return access(SWITCH, F_OK) == 0 ? EAGAIN : real(t, a, f, x);
}
"""

BLOCKED_SYNC = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* While the file SWITCH exists a sync of a staging segment does not return; SWITCH.reached says that one has begun. */
int fdatasync(int fd) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    while (strstr(path, ".seg") != NULL && access(SWITCH, F_OK) == 0) {
        close(open(SWITCH ".reached", O_CREAT | O_WRONLY, 0600));
        usleep(10000);
    }
    return real(fd);
}
"""

SLOW_UMOUNT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>
/* While the file SWITCH exists a thread that has unmounted does not go on; SWITCH.reached says that there is one. */
int umount2(const char *target, int flags) {
    int (*real)(const char *, int) = dlsym(RTLD_NEXT, "umount2");
    int result = real(target, flags);
    while (result == 0 && access(SWITCH, F_OK) == 0) {
        close(open(SWITCH ".reached", O_CREAT | O_WRONLY, 0600));
        usleep(10000);
    }
    return result;
}
"""


class Switch:
    """A preloaded library, and the file that makes it do its work."""

    def __init__(self, source: str, folder: Path) -> None:
        self._file = folder / "switch"
        self.library = folder / "preloaded.so"
        define = f'-DSWITCH="{self._file}"'
        command = [
            "cc",
            "-O1",
            "-shared",
            "-fPIC",
            define,
            "-x",
            "c",
            "-",
            "-o",
            str(self.library),
            "-ldl",
            "-lpthread",
        ]
        subprocess.run(command, input=source.encode(), check=True)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library)}

    @property
    def is_reached(self) -> bool:
        return self._file.with_name("switch.reached").exists()

    def on(self) -> None:
        self._file.touch()

    def off(self) -> None:
        self._file.unlink(missing_ok=True)
