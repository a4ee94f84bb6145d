//! Numbers of the operations.

macro_rules! opcodes {
    ($($name:ident = $number:literal)*) => {
        $(#[doc = concat!("`FUSE_", stringify!($name), "`")] pub const $name: u32 = $number;)*
    };
}

opcodes! {
    LOOKUP = 1 FORGET = 2 GETATTR = 3 SETATTR = 4 READLINK = 5 SYMLINK = 6 MKNOD = 8 MKDIR = 9 UNLINK = 10 RMDIR = 11
    RENAME = 12 LINK = 13 OPEN = 14 READ = 15 WRITE = 16 STATFS = 17 RELEASE = 18 FSYNC = 20 SETXATTR = 21 GETXATTR = 22
    LISTXATTR = 23 REMOVEXATTR = 24 FLUSH = 25 INIT = 26 OPENDIR = 27 READDIR = 28 RELEASEDIR = 29 FSYNCDIR = 30
    ACCESS = 34 CREATE = 35 INTERRUPT = 36 BMAP = 37 DESTROY = 38 IOCTL = 39 POLL = 40 BATCH_FORGET = 42 FALLOCATE = 43
    READDIRPLUS = 44 RENAME2 = 45 LSEEK = 46 COPY_FILE_RANGE = 47 SYNCFS = 50 TMPFILE = 51 STATX = 52
    COPY_FILE_RANGE_64 = 53
}
