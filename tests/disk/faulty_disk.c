/* A local disk that fails, preloaded under a mount daemon (faulty_disk.py).
 *
 * Bytes of staging segments that no sync has covered may be lost: a thread plays the kernel's write-back, and what it "cannot write" it
 * replaces with zeros, as if the page had been dropped and read again. The failure is told once, at the next fdatasync or sync_file_range of
 * the file, and never again, to nobody else: as the kernel does. Files of the chunk cache lose pages and nobody asks, and can take
 * long to be written. Syncs of segments and journals fail, writes to them meet ENOSPC. How often is in a mapped file that the test
 * changes (struct control).
 */
#define _GNU_SOURCE /* off_t has 64 bits where this runs */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct control { /* chances in a thousand, what a write of the cache takes; then counters */
    volatile uint32_t lose, fail_sync, no_space, delay_ms;
    volatile uint32_t lost, failed_syncs, refused;
};

enum kind { OTHER, SEGMENT, JOURNAL, CACHE };
enum { FILES = 512, RANGES = 4096, PAGE = 4096 };

struct range { off_t from, to; };
struct file { dev_t dev; ino_t ino; int fd, count, failed; unsigned long used; struct range *dirty; };

static struct control *control;
static struct file files[FILES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long clock_;
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_fdatasync)(int), (*real_fsync)(int);
static int (*real_sync_file_range)(int, off_t, off_t, unsigned);

static int chance(uint32_t in_a_thousand) {
    static __thread unsigned seed;
    if (!seed) seed = (unsigned)(uintptr_t)&seed ^ (unsigned)getpid();
    return control && in_a_thousand && rand_r(&seed) % 1000 < (int)in_a_thousand;
}

static enum kind kind_of(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 5) return OTHER;
    path[length] = 0;
    char *gone = strstr(path, " (deleted)"); /* a reader may still have it open */
    if (gone) *gone = 0;
    const char *end = path + strlen(path) - 4;
    if (strstr(path, "/staging/") && !strcmp(end, ".seg")) return SEGMENT;
    if (strstr(path, "/journal/") && !strcmp(end, ".log")) return JOURNAL;
    if (strstr(path, "/cache/") && !strstr(path, "/whole/") && !strcmp(end, ".new")) return CACHE;
    if (strstr(path, "/segments/") && (!strcmp(end, "data") || !strcmp(end, "ndex"))) return CACHE;
    return OTHER;
}

/* Under the lock: an entry for another file. What has news for somebody stays: the kernel keeps such an inode as long as it is mapped,
 * which the daemon sees to. Of a file that was removed nobody will ask, but for readers that have it open at this moment. */
static struct file *spare_entry(void) {
    struct file *quiet = NULL, *gone = NULL;
    for (struct file *file = files; file < files + FILES; file++) {
        struct stat found;
        if (!file->dirty) return file;
        struct file **oldest = file->count || file->failed ? &gone : &quiet;
        if (oldest == &gone && !fstat(file->fd, &found) && found.st_nlink) continue;
        if (!*oldest || file->used < (*oldest)->used) *oldest = file;
    }
    if (!quiet && !gone) abort(); /* FILES is too small */
    return quiet ? quiet : gone;
}

/* Under the lock. */
static struct file *find(int fd, int makes) {
    struct stat found;
    if (fstat(fd, &found)) return NULL;
    for (struct file *file = files; file < files + FILES; file++)
        if (file->dirty && file->dev == found.st_dev && file->ino == found.st_ino) {
            file->used = ++clock_;
            return file;
        }
    if (!makes) return NULL;
    struct file *file = spare_entry();
    if (file->dirty) close(file->fd);
    else file->dirty = malloc(RANGES * sizeof *file->dirty);
    file->dev = found.st_dev, file->ino = found.st_ino, file->used = ++clock_;
    file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3), file->count = file->failed = 0;
    return file;
}

/* Under the lock: what is not synced of the page that holds `at` is gone. */
static void lose_page(struct file *file, off_t at) {
    static const char zeros[PAGE];
    off_t from = at / PAGE * PAGE, to = from + PAGE;
    file->failed = 1;
    for (int i = 0; i < file->count; i++) {
        off_t a = file->dirty[i].from > from ? file->dirty[i].from : from;
        off_t b = file->dirty[i].to < to ? file->dirty[i].to : to;
        if (a < b) real_pwrite(file->fd, zeros, (size_t)(b - a), a);
    }
    control->lost++;
}

/* Under the lock: each range is lost with the given chance, or was written. */
static void write_back(struct file *file) {
    for (int i = 0; i < file->count; i++)
        if (chance(control->lose))
            lose_page(file, file->dirty[i].from + random() % (file->dirty[i].to - file->dirty[i].from));
    file->count = 0;
}

static void *play_kernel(void *nothing) {
    for (;;) {
        usleep(20000);
        pthread_mutex_lock(&lock);
        for (struct file *file = files; file < files + FILES; file++)
            if (file->dirty && file->count && chance(300)) write_back(file);
        pthread_mutex_unlock(&lock);
    }
    return nothing;
}

__attribute__((constructor)) static void start(void) {
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_write = dlsym(RTLD_NEXT, "write");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_sync_file_range = dlsym(RTLD_NEXT, "sync_file_range");
    const char *path = getenv("FAULTY_DISK");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *mapped = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED) return;
    control = mapped;
    pthread_t thread;
    pthread_create(&thread, NULL, play_kernel, NULL);
}

static ssize_t refuse(void) {
    control->refused++;
    errno = ENOSPC;
    return -1;
}

/* A page of what was written to a file of the cache. */
static void forget_page(int fd, off_t at, ssize_t length) {
    static const char zeros[PAGE] __attribute__((aligned(PAGE))); /* the file may be open for direct writes */
    off_t from = (at + random() % length) / PAGE * PAGE, to = from + PAGE;
    if (from < at) from = at;
    if (to > at + length) to = at + length;
    real_pwrite(fd, zeros, (size_t)(to - from), from);
    control->lost++;
}

ssize_t pwrite64(int fd, const void *data, size_t length, off_t offset) {
    enum kind kind = control ? kind_of(fd) : OTHER;
    if ((kind == SEGMENT || kind == JOURNAL) && chance(control->no_space)) return refuse();
    if (kind == CACHE) usleep(control->delay_ms * 1000);
    ssize_t done = real_pwrite(fd, data, length, offset);
    if (kind == CACHE && done > 0 && chance(control->lose * 10)) forget_page(fd, offset, done);
    if (kind == SEGMENT && done > 0) {
        pthread_mutex_lock(&lock);
        struct file *file = find(fd, 1);
        if (file && file->count == RANGES) file->count = 0;
        if (file) file->dirty[file->count++] = (struct range){offset, offset + done};
        pthread_mutex_unlock(&lock);
    }
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) {
    return pwrite64(fd, data, length, offset);
}

ssize_t write(int fd, const void *data, size_t length) {
    off_t at = control && length > 100 ? lseek(fd, 0, SEEK_CUR) : -1;
    ssize_t done = real_write(fd, data, length);
    if (at >= 0 && done > 0 && kind_of(fd) == CACHE && chance(control->lose * 10)) forget_page(fd, at, done);
    return done;
}

/* 0, or EIO when bytes were lost and nobody was told. */
static int news_of(int fd, int syncs) {
    pthread_mutex_lock(&lock);
    struct file *file = find(fd, 0);
    if (file && syncs) write_back(file);
    int failed = file && file->failed;
    if (failed) file->failed = 0;
    pthread_mutex_unlock(&lock);
    return failed;
}

static int sync_with(int (*real)(int), int fd) {
    enum kind kind = control ? kind_of(fd) : OTHER;
    int failed = kind == SEGMENT && news_of(fd, 1);
    if ((kind == SEGMENT || kind == JOURNAL) && chance(control->fail_sync)) failed = 1;
    if (!failed) return kind == OTHER ? real(fd) : 0; /* no power is lost here */
    control->failed_syncs++;
    errno = EIO;
    return -1;
}

int fdatasync(int fd) { return sync_with(real_fdatasync, fd); }
int fsync(int fd) { return sync_with(real_fsync, fd); }

int sync_file_range(int fd, off_t offset, off_t length, unsigned flags) {
    if (control && kind_of(fd) == SEGMENT && news_of(fd, 0)) {
        errno = EIO;
        return -1;
    }
    return real_sync_file_range(fd, offset, length, flags);
}
