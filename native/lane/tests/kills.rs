//! A server is killed again and again while programs use its mount, and each time another one goes
//! on with the same device. No program gets an error; each byte that was written is there; each
//! listing has each entry once.
//!
//! ```text
//! this process     mounts, holds device and survival table, kills servers; its threads are the programs
//! a server         this program, started again: a lane, an engine on a working copy that stays; checkpoints and freezes all the time
//! ```
//!
//! It needs root, for the mount, and Linux 6.9: otherwise nothing is tested. `COWFS_KILLS` (50) says how often, `COWFS_KILLS_SEED` repeats the programs' choices.

#![allow(clippy::print_stdout, reason = "seeds, and what was not tested")]

#[path = "fuzz/random.rs"]
#[allow(dead_code, reason = "another test uses all of it")]
mod random;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cowfs_base::{ROOT_INO, now_ns};
use cowfs_engine::{CHECKPOINT_BYTES, Engine, InodeRow, Options, Punching};
use cowfs_lane::{Lane, Need};
use cowfs_mounted::Mounted;
use cowfs_survival::Table;
use random::Random;

const DEFAULT_KILLS: u64 = 50;
const WRITERS: u64 = 3;
const NAMERS: u64 = 2;
const FILE_BYTES: u64 = 3 << 20;
/// So many that a listing takes several requests.
const NAMES: usize = 2000;
/// A program that gets no answer for so long will get none.
const STUCK: Duration = Duration::from_secs(120);
/// What a table gets that is begun.
const CONNECTION: u64 = 7;
const SERVED: &str = "COWFS_KILLS_SERVED";
/// The descriptor of the table.
const TABLE: &str = "COWFS_KILLS_TABLE";

fn main() {
    match std::env::var_os(SERVED) {
        Some(dir) => serve(Path::new(&dir)),
        None => kill_servers(),
    }
}

// -- a server

/// Serves the device that is its standard input, and says when it does.
fn serve(dir: &Path) {
    let descriptor = number(TABLE, 0) as RawFd;
    // SAFETY: it is open as long as this process.
    let memory = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let table = Arc::new(Table::open(memory, CONNECTION).expect("a table"));
    let engine = Engine::open(Options {
        root: InodeRow {
            ino: ROOT_INO,
            mode: libc::S_IFDIR | 0o755,
            nlink: 2,
            ..InodeRow::default()
        },
        next_ino: 2,
        cache_dir: dir.join("cache"),
        memory_cache_bytes: 1 << 20,
        is_store_near: false,
        staging_dir: Some(dir.join("work")),
        failures_file: None,
        staging_limit_bytes: 0,
        segment_bytes: 4 << 20,
        checkpoint_bytes: CHECKPOINT_BYTES,
        after_layer: 0,
        boot_id: "this one".into(),
    });
    let engine = Arc::new(engine.expect("opens"));
    engine.note_requests(table.connection());
    engine.keep_handles(table.clone());
    engine.recover().expect("recovers");
    engine.load_directory(ROOT_INO, &[]).expect("is empty");
    engine.replay().expect("replays");
    if table.handshake().is_some() {
        engine.expect_earlier_references().expect("is open");
    }
    // SAFETY: standard input is the device, which nothing else here uses.
    let device = unsafe { OwnedFd::from_raw_fd(0) };
    let options = cowfs_lane::Options {
        table: Some(table),
        ..Default::default()
    };
    let lane = Lane::new(Arc::new(Mounted::new(engine.clone())), device, &options);
    let lane = lane.expect("can go on");
    lane.start().expect("starts");
    lane.handshake().expect("a handshake");
    println!("ready");
    let ending = engine.clone();
    std::thread::spawn(move || end_logs(&ending));
    while let Some(wanted) = lane.next_wanted() {
        match wanted.need {
            Need::Room => drop(engine.reclaim_overdue()),
            Need::Space => drop(engine.relieve(1 << 20, Punching::Thorough)),
            Need::Resident(missing) => panic!("{missing:?} is missing"),
        }
        lane.resume(wanted.unique);
    }
}

/// Checkpoints, and layers that are frozen and cannot be committed.
fn end_logs(engine: &Engine) {
    let mut random = Random::new(std::process::id().into());
    loop {
        std::thread::sleep(Duration::from_millis(random.below(20)));
        if random.once_in(3) {
            engine.checkpoint().expect("made");
        } else if let Some(layer) = engine.freeze().expect("frozen") {
            std::thread::sleep(Duration::from_millis(random.below(5)));
            engine.layer_failed(layer).expect("joined");
        }
    }
}

// -- the mount

struct Mount {
    device: OwnedFd,
    path: PathBuf,
    dir: PathBuf,
    table: OwnedFd,
    server: Option<Child>,
}

impl Mount {
    fn new(dir: &Path) -> io::Result<Mount> {
        let path = dir.join("mount");
        std::fs::create_dir(&path)?;
        std::fs::create_dir(dir.join("work"))?;
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")?;
        let options = CString::new(format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions",
            device.as_raw_fd()
        ))?;
        let target = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: all pointers are to strings that end with a zero byte and outlive the call.
        let outcome = unsafe {
            libc::mount(
                c"kills".as_ptr(),
                target.as_ptr(),
                c"fuse.kills".as_ptr(),
                libc::MS_NOSUID | libc::MS_NODEV,
                options.as_ptr().cast(),
            )
        };
        match outcome {
            0 => Ok(Mount {
                device: device.into(),
                path,
                dir: dir.into(),
                table: inherited(Table::allocate()?)?,
                server: None,
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn start_server(&mut self) {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command
            .env(SERVED, &self.dir)
            .stdin(Stdio::from(self.device.try_clone().expect("a copy")))
            .env(TABLE, self.table.as_raw_fd().to_string())
            .stdout(Stdio::piped());
        let mut server = command.spawn().expect("a server");
        let mut line = String::new();
        let said = server.stdout.take().expect("a pipe");
        BufReader::new(said).read_line(&mut line).expect("reads");
        assert!(!line.is_empty(), "the server ended");
        self.server = Some(server);
    }

    fn kill_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().expect("killed");
            server.wait().expect("ended");
        }
    }
}

/// A copy that children have under its number.
fn inherited(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    match unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD, 100) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: it was just made.
        copy => Ok(unsafe { OwnedFd::from_raw_fd(copy) }),
    }
}

impl Drop for Mount {
    /// Programs that still wait get an error.
    fn drop(&mut self) {
        let target = CString::new(self.path.as_os_str().as_bytes()).expect("a path");
        // SAFETY: the string ends with a zero byte and outlives the calls.
        unsafe {
            libc::umount2(target.as_ptr(), libc::MNT_FORCE);
            libc::umount2(target.as_ptr(), libc::MNT_DETACH);
        }
        self.kill_server();
    }
}

// -- programs

struct Program {
    name: String,
    steps: Arc<AtomicU64>,
    thread: JoinHandle<io::Result<()>>,
}

fn start(
    name: String,
    is_over: &Arc<AtomicBool>,
    mut step: impl FnMut() -> io::Result<()> + Send + 'static,
) -> Program {
    let steps = Arc::new(AtomicU64::new(0));
    let (is_over, counted) = (is_over.clone(), steps.clone());
    let thread = std::thread::spawn(move || {
        while !is_over.load(Ordering::Acquire) {
            step()?;
            counted.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    });
    Program {
        name,
        steps,
        thread,
    }
}

/// A file, and what it holds as far as its only user knows.
struct Writer {
    path: PathBuf,
    file: File,
    known: Vec<u8>,
    random: Random,
}

impl Writer {
    fn new(path: PathBuf, seed: u64) -> io::Result<Writer> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).open(&path)?;
        Ok(Writer {
            path,
            file,
            known: Vec::new(),
            random: Random::new(seed),
        })
    }

    fn step(&mut self) -> io::Result<()> {
        match self.random.below(11) {
            10 => self.copy(),
            0..4 => self.write(),
            4..7 => self.compare(),
            7 => {
                let size = self.random.below(FILE_BYTES);
                self.known.resize(size as usize, 0);
                self.file.set_len(size)
            }
            8 => {
                let mode = [0o600, 0o644, 0o755][self.random.below(3) as usize];
                self.file.set_permissions(Permissions::from_mode(mode))?;
                same(std::fs::metadata(&self.path)?.mode() & 0o777, mode)
            }
            _ => {
                let mut options = OpenOptions::new();
                self.file = options.read(true).write(true).open(&self.path)?;
                match self.random.once_in(4) {
                    true => self.file.sync_data(),
                    false => Ok(()),
                }
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let offset = self.random.below(FILE_BYTES);
        let longest = [100, 10_000, 1 << 20][self.random.below(3) as usize];
        let length = (1 + self.random.below(longest)).min(FILE_BYTES - offset) as usize;
        let byte = self.random.next() as u8;
        let bytes: Vec<u8> = (0..length).map(|at| byte ^ (at % 251) as u8).collect();
        let (from, to) = (offset as usize, offset as usize + length);
        self.file.write_all_at(&bytes, offset)?;
        self.known.resize(self.known.len().max(to), 0);
        self.known[from..to].copy_from_slice(&bytes);
        Ok(())
    }

    /// Copies a part of the file within it: a second time it would copy what the first one put there.
    fn copy(&mut self) -> io::Result<()> {
        let end = self.known.len() as u64;
        let length = self.random.below(end / 2 + 1) & !4095;
        let from = self.random.below(end / 2 - length / 2 + 1);
        let to = (from + length).max(self.random.below(end + 1));
        let (mut at_from, mut at_to) = (from as i64, to as i64);
        let file = self.file.as_raw_fd();
        // SAFETY: both offsets are there during the call.
        let copied = unsafe {
            let length = length as usize;
            libc::copy_file_range(file, &mut at_from, file, &mut at_to, length, 0)
        };
        if copied < 0 {
            return Err(io::Error::last_os_error());
        }
        let (copied, from, to) = (copied as usize, from as usize, to as usize);
        if copied > 0 {
            self.known.resize(self.known.len().max(to + copied), 0);
            self.known.copy_within(from..from + copied, to);
        }
        Ok(())
    }

    fn compare(&mut self) -> io::Result<()> {
        // SAFETY: no memory is involved. The pages that the kernel holds are dropped.
        unsafe { libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        same(self.file.metadata()?.len(), self.known.len() as u64)?;
        let mut found = vec![0; self.known.len()];
        self.file.read_exact_at(&mut found, 0)?;
        let first = found
            .iter()
            .zip(&self.known)
            .position(|(one, other)| one != other);
        same(first, None)
    }
}

/// Makes, moves and removes names of a directory, which only it uses.
struct Namer {
    path: PathBuf,
    known: BTreeMap<String, Kind>,
    made: u64,
    random: Random,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    Link,
}

impl Namer {
    fn new(path: PathBuf, seed: u64) -> io::Result<Namer> {
        std::fs::create_dir(&path)?;
        Ok(Namer {
            path,
            known: BTreeMap::new(),
            made: 0,
            random: Random::new(seed),
        })
    }

    fn step(&mut self) -> io::Result<()> {
        let count = self.known.len() as u64;
        match self.random.below(8) {
            _ if count < 4 => self.make(),
            0..3 => self.make(),
            3 | 4 => self.remove(),
            5 => self.rename(),
            6 => self.exchange(),
            _ => self.compare(),
        }
    }

    fn pick(&mut self) -> (String, Kind) {
        let at = self.random.below(self.known.len() as u64) as usize;
        let (name, kind) = self.known.iter().nth(at).expect("as many");
        (name.clone(), *kind)
    }

    fn fresh(&mut self) -> String {
        self.made += 1;
        format!("{}", self.made)
    }

    fn make(&mut self) -> io::Result<()> {
        let name = self.fresh();
        let at = self.path.join(&name);
        let file = self.known.iter().find(|(_, kind)| **kind == Kind::File);
        let linked = file.map(|(name, _)| self.path.join(name));
        let kind = match (self.random.below(5), linked) {
            (0, _) => std::fs::create_dir(&at).map(|()| Kind::Directory),
            (1, _) => std::os::unix::fs::symlink("nowhere", &at).map(|()| Kind::Link),
            (2, Some(file)) => std::fs::hard_link(file, &at).map(|()| Kind::File),
            _ => {
                let file = OpenOptions::new().write(true).create_new(true).open(&at)?;
                file.write_all_at(b"made", 0).map(|()| Kind::File)
            }
        };
        self.known.insert(name, kind?);
        Ok(())
    }

    fn remove(&mut self) -> io::Result<()> {
        let (name, kind) = self.pick();
        let at = self.path.join(&name);
        match kind {
            Kind::Directory => std::fs::remove_dir(at)?,
            _ => std::fs::remove_file(at)?,
        }
        self.known.remove(&name);
        Ok(())
    }

    fn rename(&mut self) -> io::Result<()> {
        let ((name, kind), to) = (self.pick(), self.fresh());
        std::fs::rename(self.path.join(&name), self.path.join(&to))?;
        self.known.remove(&name);
        self.known.insert(to, kind);
        Ok(())
    }

    fn exchange(&mut self) -> io::Result<()> {
        let ((one, of_one), (other, of_other)) = (self.pick(), self.pick());
        let path = |name: &str| {
            let at = self.path.join(name);
            CString::new(at.as_os_str().as_bytes()).expect("a path")
        };
        let (from, to) = (path(&one), path(&other));
        // SAFETY: both strings end with a zero byte and outlive the call.
        let outcome = unsafe {
            libc::renameat2(
                libc::AT_FDCWD,
                from.as_ptr(),
                libc::AT_FDCWD,
                to.as_ptr(),
                libc::RENAME_EXCHANGE,
            )
        };
        if outcome < 0 {
            return Err(io::Error::last_os_error());
        }
        self.known.insert(one, of_other);
        self.known.insert(other, of_one);
        Ok(())
    }

    fn compare(&mut self) -> io::Result<()> {
        let found = self.list()?;
        if found == self.known {
            return Ok(());
        }
        let missing = |name: &&String| std::fs::symlink_metadata(self.path.join(name)).is_err();
        let gone: Vec<&String> = self.known.keys().filter(missing).collect();
        let missed = self.known.keys().filter(|name| !found.contains_key(*name));
        let missed: Vec<&String> = missed.collect();
        Err(io::Error::other(format!(
            "not listed: {missed:?}; gone: {gone:?}"
        )))
    }

    /// Each entry comes once.
    fn list(&self) -> io::Result<BTreeMap<String, Kind>> {
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let kind = match (kind.is_dir(), kind.is_symlink()) {
                (true, _) => Kind::Directory,
                (_, true) => Kind::Link,
                _ => Kind::File,
            };
            let name = entry.file_name().into_string().expect("text");
            if let Some(kind) = found.insert(name, kind) {
                return Err(io::Error::other(format!("listed twice: a {kind:?}")));
            }
        }
        Ok(found)
    }
}

/// Files that have lost their name, or never had one.
struct Nameless {
    path: PathBuf,
    files: Vec<(File, Vec<u8>)>,
    made: u64,
    random: Random,
}

impl Nameless {
    fn new(path: PathBuf, seed: u64) -> io::Result<Nameless> {
        std::fs::create_dir(&path)?;
        Ok(Nameless {
            path,
            files: Vec::new(),
            made: 0,
            random: Random::new(seed),
        })
    }

    fn step(&mut self) -> io::Result<()> {
        match self.random.below(6) {
            _ if self.files.is_empty() => self.make(),
            0 if self.files.len() < 5 => self.make(),
            0 | 1 => self.end(),
            2 | 3 => self.write(),
            _ => self.compare(),
        }
    }

    fn make(&mut self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = if self.random.once_in(2) {
            options.custom_flags(libc::O_TMPFILE).open(&self.path)?
        } else {
            let at = self.path.join("f");
            let file = options.create_new(true).open(&at)?;
            file.write_all_at(b"named", 0)?;
            std::fs::remove_file(&at)?;
            file.set_len(0)?;
            file
        };
        self.files.push((file, Vec::new()));
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let which = self.random.below(self.files.len() as u64) as usize;
        let (file, known) = &mut self.files[which];
        let bytes = vec![self.random.next() as u8; 1 + self.random.below(20_000) as usize];
        let offset = self.random.below(100_000) as usize;
        file.write_all_at(&bytes, offset as u64)?;
        known.resize(known.len().max(offset + bytes.len()), 0);
        known[offset..offset + bytes.len()].copy_from_slice(&bytes);
        Ok(())
    }

    fn compare(&mut self) -> io::Result<()> {
        for (file, known) in &self.files {
            // SAFETY: no memory is involved.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            let status = file.metadata()?;
            same((status.nlink(), status.len()), (0, known.len() as u64))?;
            let mut found = vec![0; known.len()];
            file.read_exact_at(&mut found, 0)?;
            same(found == *known, true)?;
        }
        Ok(())
    }

    /// Closes one. One that never had a name may get one before.
    fn end(&mut self) -> io::Result<()> {
        let which = self.random.below(self.files.len() as u64) as usize;
        let (file, known) = self.files.swap_remove(which);
        self.made += 1;
        let at = self.path.join(self.made.to_string());
        let this = format!("/proc/self/fd/{}", file.as_raw_fd());
        let (from, to) = (
            CString::new(this)?,
            CString::new(at.as_os_str().as_bytes())?,
        );
        // SAFETY: both strings end with a zero byte and outlive the call.
        let outcome = unsafe {
            let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
            libc::linkat(here, from.as_ptr(), here, to.as_ptr(), follow)
        };
        match io::Error::last_os_error() {
            _ if outcome == 0 => {
                drop(file);
                same(std::fs::read(&at)? == known, true)?;
                std::fs::remove_file(&at)
            }
            error if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            error => Err(error),
        }
    }
}

/// Makes, replaces and removes attributes of a file that only it uses.
struct Attributes {
    path: CString,
    known: BTreeMap<u64, Vec<u8>>,
    random: Random,
}

impl Attributes {
    fn new(path: &Path, seed: u64) -> io::Result<Attributes> {
        File::create(path)?;
        Ok(Attributes {
            path: CString::new(path.as_os_str().as_bytes())?,
            known: BTreeMap::new(),
            random: Random::new(seed),
        })
    }

    fn step(&mut self) -> io::Result<()> {
        let number = self.random.below(8);
        let name = CString::new(format!("user.{number}"))?;
        let (path, key) = (self.path.as_ptr(), name.as_ptr());
        let is_there = self.known.contains_key(&number);
        let outcome = if is_there && self.random.once_in(2) {
            self.known.remove(&number);
            // SAFETY: both strings end with a zero byte and outlive the call.
            unsafe { libc::removexattr(path, key) }
        } else {
            let value = vec![self.random.next() as u8; 1 + self.random.below(50) as usize];
            let flags = if is_there {
                libc::XATTR_REPLACE
            } else {
                libc::XATTR_CREATE
            };
            let start = value.as_ptr().cast();
            // SAFETY: as above, and `value` has as many bytes.
            let outcome = unsafe { libc::setxattr(path, key, start, value.len(), flags) };
            self.known.insert(number, value);
            outcome
        };
        if outcome < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut found = [0; 50];
        // SAFETY: as above, and `found` has as many bytes.
        let length = unsafe { libc::getxattr(path, key, found.as_mut_ptr().cast(), found.len()) };
        let found = (length >= 0).then(|| found[..length as usize].to_vec());
        same(found.as_ref(), self.known.get(&number))
    }
}

fn same<T: PartialEq + std::fmt::Debug>(found: T, expected: T) -> io::Result<()> {
    match found == expected {
        true => Ok(()),
        false => Err(io::Error::other(format!("{found:?}, not {expected:?}"))),
    }
}

fn list(path: &Path, expected: &[String]) -> io::Result<()> {
    let entries = std::fs::read_dir(path)?;
    let names = entries.map(|entry| Ok(entry?.file_name().into_string().expect("text")));
    let mut names: Vec<String> = names.collect::<io::Result<_>>()?;
    names.sort_unstable();
    same(names.len(), expected.len())?;
    same(names == *expected, true)
}

// -- the test

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name);
    text.map_or(default, |text| text.parse().expect("a number"))
}

fn knows_resend() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut parts = release.split(|char: char| !char.is_ascii_digit());
    let mut next = || parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
    (next(), next()) >= (6, 9)
}

fn kill_servers() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let mut mount = match Mount::new(temp.path()) {
        Ok(mount) if knows_resend() => mount,
        Ok(_) => return println!("not tested: the kernel does not send requests again"),
        Err(error) => return println!("not tested: {error}"),
    };
    let seed = number("COWFS_KILLS_SEED", now_ns() as u64);
    println!("COWFS_KILLS_SEED={seed}");
    mount.start_server();
    let directory = mount.path.join("d");
    std::fs::create_dir(&directory).expect("made");
    let mut names: Vec<String> = (0..NAMES).map(|number| format!("name {number}")).collect();
    names.sort_unstable();
    for name in &names {
        File::create(directory.join(name)).expect("made");
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let mut programs: Vec<Program> = (0..WRITERS)
        .map(|number| {
            let path = mount.path.join(format!("f{number}"));
            let mut writer = Writer::new(path, seed + number).expect("opens");
            start(format!("writer {number}"), &is_over, move || writer.step())
        })
        .collect();
    for number in 0..NAMERS {
        let path = mount.path.join(format!("names {number}"));
        let mut namer = Namer::new(path, seed + 100 + number).expect("made");
        programs.push(start(format!("namer {number}"), &is_over, move || {
            namer.step()
        }));
    }
    let mut nameless = Nameless::new(mount.path.join("nameless"), seed + 200).expect("made");
    programs.push(start("nameless".into(), &is_over, move || nameless.step()));
    let mut attributes = Attributes::new(&mount.path.join("a"), seed + 300).expect("made");
    programs.push(start("attributes".into(), &is_over, move || {
        attributes.step()
    }));
    let lister = move || list(&directory, &names);
    programs.push(start("lister".into(), &is_over, lister));
    let mut random = Random::new(seed);
    for kill in 0..number("COWFS_KILLS", DEFAULT_KILLS) {
        if !have_gone_on(&programs, kill) {
            break;
        }
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        mount.kill_server();
        mount.start_server();
    }
    is_over.store(true, Ordering::Release);
    for program in programs {
        let outcome = program.thread.join().expect("no panic");
        assert!(outcome.is_ok(), "{}: {outcome:?}", program.name);
    }
}

/// Waits until each program has done something; false: one has failed.
fn have_gone_on(programs: &[Program], kill: u64) -> bool {
    let since = Instant::now();
    for program in programs {
        let before = program.steps.load(Ordering::Acquire);
        while program.steps.load(Ordering::Acquire) == before {
            if program.thread.is_finished() {
                return false;
            }
            let name = &program.name;
            assert!(since.elapsed() < STUCK, "{name} waits after {kill} kills");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    true
}
