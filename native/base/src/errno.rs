//! An error number as a system call would give it.

/// One of the `E…` numbers of errno(3).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident)*) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($name), "`")] pub const $name: Errno = Errno(libc::$name);)*

            /// The symbolic name, where the engine uses the number itself.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $(libc::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    E2BIG EACCES EBADF EBUSY EDQUOT EEXIST EFBIG EINVAL EIO EISDIR ELOOP EMLINK ENAMETOOLONG ENODATA ENODEV ENOENT ENOSPC
    ENOTDIR ENOTEMPTY ENXIO EOPNOTSUPP EPERM ERANGE EROFS ESTALE EXDEV
}

impl std::fmt::Debug for Errno {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => formatter.write_str(name),
            None => write!(formatter, "errno {}", self.0),
        }
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", std::io::Error::from_raw_os_error(self.0))
    }
}

impl std::error::Error for Errno {}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}
