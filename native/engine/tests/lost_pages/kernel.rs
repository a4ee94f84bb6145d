//! A kernel that fails to write pages of segments, as Linux does: `fdatasync` and `sync_file_range`
//! of this process end up here.
//!
//! The disk's state of a segment is an image, taken when a sync succeeds. A page that could not be
//! written counts as clean from then on: it stays in memory for a while, and gives the disk's
//! content once it is dropped. The failure is reported once, to the first caller that asks. An
//! inode without open descriptors is forgotten together with its pages and its failures. Journals
//! and other files are really synced.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_long, c_uint};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::support::cases::{Dice, count};

const PAGE: usize = 4096;

/// Pages of a file by number, as they were at some time.
type Pages = BTreeMap<usize, Vec<u8>>;

#[derive(Default)]
struct Segment {
    image: Vec<u8>,
    /// Pages that could not be written, as they were then.
    failed: Pages,
    has_news: bool,
}

impl Segment {
    fn image_of(&self, page: usize, length: usize) -> Vec<u8> {
        let from = self.image.len().min(page * PAGE);
        let to = self.image.len().min(page * PAGE + length);
        let mut bytes = self.image[from..to].to_vec();
        bytes.resize(length, 0);
        bytes
    }

    /// Some pages that wait to be written cannot be, or all; whether there were any.
    fn fail(&mut self, path: &Path, all: bool, dice: &mut Dice) -> bool {
        let bytes = fs::read(path).expect("reads");
        let mut has_failed = false;
        for (page, now) in bytes.chunks(PAGE).enumerate() {
            let is_written = *now == self.image_of(page, now.len());
            if !is_written
                && self.failed.get(&page).is_none_or(|then| then != now)
                && (all || dice.roll(2) == 0)
            {
                self.failed.insert(page, now.to_vec());
                has_failed = true;
            }
        }
        self.has_news |= has_failed;
        has_failed
    }

    /// Some failed pages leave memory, unless they have been written to since.
    fn drop_pages(&mut self, path: &Path, mut is_chosen: impl FnMut() -> bool) {
        let bytes = fs::read(path).expect("reads");
        let now: Vec<&[u8]> = bytes.chunks(PAGE).collect();
        for (page, then) in std::mem::take(&mut self.failed) {
            if !is_chosen() {
                self.failed.insert(page, then);
            } else if now.get(page).is_some_and(|now| *now == then) {
                let file = fs::File::options().write(true).open(path);
                let bytes = self.image_of(page, then.len());
                let written = file
                    .expect("opens")
                    .write_all_at(&bytes, (page * PAGE) as u64);
                written.expect("writes");
                count(&"PageLost", true);
            }
        }
    }

    /// All is written but the pages that count as clean.
    fn write_back(&mut self, bytes: Vec<u8>) {
        let mut image = bytes;
        let failed = std::mem::take(&mut self.failed);
        for (page, then) in failed {
            let (from, to) = (page * PAGE, page * PAGE + then.len());
            let is_clean = image.get(from..to).is_some_and(|now| *now == then)
                && image.len().min(from + PAGE) == to;
            if is_clean {
                let old = self.image_of(page, then.len());
                image[from..to].copy_from_slice(&old);
                self.failed.insert(page, then);
            }
        }
        self.image = image;
    }
}

#[derive(Default)]
struct Kernel {
    /// By device and inode.
    segments: BTreeMap<(u64, u64), Segment>,
    /// The next sync of a segment fails.
    failing: Option<Dice>,
    has_failed: bool,
    /// The disk loses acknowledged bytes, and neither it nor the kernel reports that.
    is_silent: bool,
}

static KERNEL: Mutex<Option<Kernel>> = Mutex::new(None);

fn kernel() -> MutexGuard<'static, Option<Kernel>> {
    KERNEL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number_of(path: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Another world begins.
pub fn start_over(tells: bool) {
    *kernel() = Some(Kernel {
        is_silent: !tells,
        ..Kernel::default()
    });
}

/// Whether failures are reported.
pub fn tells() -> bool {
    kernel().as_ref().is_some_and(|kernel| !kernel.is_silent)
}

/// Whether a page could not be written since.
pub fn has_failed() -> bool {
    kernel().as_ref().is_some_and(|kernel| kernel.has_failed)
}

/// From now on only earlier failures remain.
pub fn recover() {
    if let Some(kernel) = kernel().as_mut() {
        kernel.failing = None;
    }
}

/// Some pages of the segments in `dir` cannot be written, and some of those are dropped at once; or
/// all are, once in three times.
pub fn fail_pages(dir: &Path, seed: u64) {
    let mut dice = Dice(seed);
    let all = dice.roll(3) == 0;
    each_segment(dir, |path, segment| {
        let has_failed = (all || dice.roll(2) == 0) && segment.fail(path, all, &mut dice);
        segment.drop_pages(path, || all || dice.roll(2) == 0);
        has_failed
    });
}

/// Some pages that could not be written are dropped.
pub fn drop_pages(dir: &Path, seed: u64) {
    let mut dice = Dice(seed);
    each_segment(dir, |path, segment| {
        segment.drop_pages(path, || dice.roll(2) == 0);
        false
    });
}

/// The next sync of a segment cannot write some pages, and says so.
pub fn fail_next_sync(seed: u64) {
    if let Some(kernel) = kernel().as_mut() {
        kernel.failing = Some(Dice(seed));
    }
}

/// The segments are not open: some inodes leave memory.
pub fn forget_inodes(dir: &Path, seed: u64) {
    let mut dice = Dice(seed);
    each_segment(dir, |path, segment| {
        if dice.roll(2) == 0 {
            segment.drop_pages(path, || true);
            segment.has_news = false;
        }
        false
    });
}

/// `act` says whether pages have failed.
fn each_segment(dir: &Path, mut act: impl FnMut(&Path, &mut Segment) -> bool) {
    let mut kernel = kernel();
    let Some(kernel) = kernel.as_mut() else {
        return;
    };
    let entries = fs::read_dir(dir).expect("lists");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("entry").path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| is_segment(path)) {
        let Some(number) = number_of(path) else {
            continue;
        };
        let segment = kernel.segments.entry(number).or_default();
        kernel.has_failed |= act(path, segment);
    }
}

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|found| found == "seg")
}

/// The segment that a descriptor is open on.
fn segment_of(fd: c_int) -> Option<PathBuf> {
    let path = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    is_segment(&path).then_some(path)
}

fn eio() -> c_int {
    // SAFETY: the address is this thread's errno.
    unsafe { *libc::__errno_location() = libc::EIO };
    -1
}

/// In place of the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(fd: c_int) -> c_int {
    let mut kernel = kernel();
    let (Some(path), Some(kernel)) = (segment_of(fd), kernel.as_mut()) else {
        // SAFETY: the call takes no memory.
        return unsafe { libc::syscall(libc::SYS_fdatasync, c_long::from(fd)) } as c_int;
    };
    let number = number_of(&path).expect("exists");
    let segment = kernel.segments.entry(number).or_default();
    if let Some(mut dice) = kernel.failing.take() {
        kernel.has_failed = true;
        segment.fail(&path, false, &mut dice);
        segment.drop_pages(&path, || dice.roll(2) == 0);
        segment.has_news = true;
    }
    segment.write_back(fs::read(&path).expect("reads"));
    if std::mem::take(&mut segment.has_news) && !kernel.is_silent {
        return eio();
    }
    0
}

/// In place of the C library's: of segments only the news are asked for.
#[unsafe(no_mangle)]
pub extern "C" fn sync_file_range(fd: c_int, offset: i64, length: i64, flags: c_uint) -> c_int {
    let mut kernel = kernel();
    let (Some(path), Some(kernel)) = (segment_of(fd), kernel.as_mut()) else {
        // SAFETY: the call takes no memory.
        return unsafe { libc::syscall(libc::SYS_sync_file_range, fd, offset, length, flags) }
            as c_int;
    };
    let is_silent = kernel.is_silent;
    let news = number_of(&path).and_then(|number| kernel.segments.get_mut(&number));
    let news = news.filter(|_| !is_silent);
    if news.is_some_and(|segment| std::mem::take(&mut segment.has_news)) {
        return eio();
    }
    0
}
