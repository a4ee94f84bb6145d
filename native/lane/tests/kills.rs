//! A server is killed again and again while programs use its mount, and each time another one goes
//! on with the same device. No program gets an error; each byte that was written is there; each
//! listing has each entry once.
//!
//! ```text
//! this process     mounts, holds device and survival table, kills servers; its threads are the programs
//! a server         this program, started again: a lane, an engine on a working copy that stays; checkpoints and freezes all the time
//! ```
//!
//! It needs root, for the mount, and Linux 6.9: otherwise nothing is tested. `COWFS_KILLS` (50) says
//! how often, `COWFS_KILLS_SEED` repeats the programs' choices. SIGTERM ends it early. It says how
//! many kills there were, and for each hundredth how long the next server took and what it replayed.

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

use cowfs_base::{Errno, ROOT_INO, now_ns};
use cowfs_engine::{CHECKPOINT_BYTES, Engine, InodeRow, Options, Punching};
use cowfs_lane::{Lane, Need};
use cowfs_mounted::{Missing, Mounted, Target};
use cowfs_survival::Table;
use random::Random;

const DEFAULT_KILLS: u64 = 50;
const WRITERS: u64 = 3;
const NAMERS: u64 = 2;
const FILE_BYTES: u64 = 3 << 20;
const MAPPED_BYTES: usize = 1 << 20;
/// Versions beside the volume. A file in each has as many bytes as its number says.
const VERSIONS: u64 = 5;
/// So many that a listing takes several requests.
const NAMES: usize = 2000;
/// A server that has replayed more makes a checkpoint before it answers. Most are killed before they
/// have finished one, so that each would replay more than the one before.
const LONG_RECORDS: u64 = 3000;
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
    // SAFETY: ignoring a signal needs no handler. The process that kills this one ends at it.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    let descriptor = number(TABLE, 0) as RawFd;
    // SAFETY: it is open as long as this process.
    let memory = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let table = Arc::new(Table::open(memory, CONNECTION).expect("a table"));
    let engine = open_engine(dir, true);
    engine.note_requests(table.connection());
    engine.keep_handles(table.clone());
    let records = engine.recover().expect("recovers").records;
    engine.load_directory(ROOT_INO, &[]).expect("is empty");
    engine.replay().expect("replays");
    if records > LONG_RECORDS {
        engine.checkpoint().expect("made");
    }
    if table.handshake().is_some() {
        engine.expect_earlier_references().expect("is open");
    }
    // SAFETY: standard input is the device, which nothing else here uses.
    let device = unsafe { OwnedFd::from_raw_fd(0) };
    let options = cowfs_lane::Options {
        table: Some(table),
        ..Default::default()
    };
    let files = Arc::new(Mounted::with_versions(engine.clone(), true));
    let lane = Lane::new(files.clone(), device, &options);
    let lane = lane.expect("can go on");
    lane.start().expect("starts");
    lane.handshake().expect("a handshake");
    println!("ready {records}");
    let ending = engine.clone();
    std::thread::spawn(move || end_logs(&ending));
    while let Some(wanted) = lane.next_wanted() {
        match wanted.need {
            Need::Room => drop(engine.reclaim_overdue()),
            Need::Space => drop(engine.relieve(1 << 20, Punching::Thorough)),
            Need::Resident(missing) => {
                if !provide(&files, dir, missing) {
                    lane.fail(wanted.unique, Errno::ENOENT);
                    continue;
                }
            }
        }
        lane.resume(wanted.unique);
    }
}

fn open_engine(dir: &Path, is_writable: bool) -> Arc<Engine> {
    let engine = Engine::open(Options {
        root: InodeRow {
            ino: ROOT_INO,
            mode: libc::S_IFDIR | 0o755,
            nlink: 2,
            ..InodeRow::default()
        },
        next_ino: if is_writable { 2 } else { 3 },
        cache_dir: dir.join("cache"),
        memory_cache_bytes: 1 << 20,
        is_store_near: false,
        staging_dir: is_writable.then(|| dir.join("work")),
        failures_file: None,
        staging_limit_bytes: 0,
        segment_bytes: 4 << 20,
        checkpoint_bytes: CHECKPOINT_BYTES,
        after_layer: 0,
        boot_id: "this one".into(),
    });
    Arc::new(engine.expect("opens"))
}

fn id_of(version: u64) -> String {
    format!("{:064x}", version << 40 | version)
}

fn tag_of(version: u64) -> String {
    format!("tag {version}")
}

/// Which versions a server names first depends on what it is asked. False: there is no such name.
fn provide(files: &Mounted, dir: &Path, missing: Missing) -> bool {
    let names = (1..=VERSIONS).flat_map(|version| {
        let (id, tag) = (id_of(version).into_bytes(), tag_of(version).into_bytes());
        [(id.clone(), Target::Version), (tag, Target::Id(id))]
    });
    let mut names: Vec<(Vec<u8>, Target)> = names.collect();
    match missing {
        Missing::Names => files.list_versions(names).expect("listed"),
        Missing::Name(name) => {
            let Some(at) = names.iter().position(|(known, _)| *known == name) else {
                return false;
            };
            let target = names.swap_remove(at).1;
            files.name_version(&name, target).expect("named");
        }
        Missing::Closed(number, id) => {
            let is_it = |version: &u64| id_of(*version).into_bytes() == id;
            let version = (1..=VERSIONS).find(is_it).expect("one of them");
            let engine = open_engine(dir, false);
            let file = InodeRow {
                ino: 2,
                mode: libc::S_IFREG | 0o644,
                nlink: 1,
                size: version,
                ..InodeRow::default()
            };
            let entries = [(Box::from(*b"f"), file)];
            engine.load_directory(ROOT_INO, &entries).expect("loaded");
            files.open_version(number, &id, engine);
        }
        Missing::Of(..) => panic!("{missing:?} is missing"),
    }
    true
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

    /// How many records the server has replayed.
    fn start_server(&mut self) -> u64 {
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
        self.server = Some(server);
        let records = line.trim().strip_prefix("ready ");
        let records = records.and_then(|records| records.parse().ok());
        records.expect("the server is ready")
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

/// A file that is mapped, and what its only user has stored there.
struct Mapper {
    file: File,
    map: Map,
    known: Vec<u8>,
    random: Random,
}

/// The first byte of a shared mapping.
struct Map(*mut u8);

// SAFETY: one thread uses it.
unsafe impl Send for Map {}

impl Map {
    fn new(file: &File) -> io::Result<Map> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (place, fd) = (std::ptr::null_mut(), file.as_raw_fd());
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe { libc::mmap(place, MAPPED_BYTES, access, libc::MAP_SHARED, fd, 0) };
        match start {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            start => Ok(Map(start.cast())),
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: so many bytes are mapped, and nobody else here stores into them.
        unsafe { std::slice::from_raw_parts_mut(self.0, MAPPED_BYTES) }
    }

    fn sync(&self) -> io::Result<()> {
        // SAFETY: so many bytes are mapped.
        match unsafe { libc::msync(self.0.cast(), MAPPED_BYTES, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: so many bytes are mapped, and none is used any more.
        unsafe { libc::munmap(self.0.cast(), MAPPED_BYTES) };
    }
}

impl Mapper {
    fn new(path: &Path, seed: u64) -> io::Result<Mapper> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).open(path)?;
        file.set_len(MAPPED_BYTES as u64)?;
        Ok(Mapper {
            map: Map::new(&file)?,
            file,
            known: vec![0; MAPPED_BYTES],
            random: Random::new(seed),
        })
    }

    fn step(&mut self) -> io::Result<()> {
        match self.random.below(8) {
            0 => self.map.sync(),
            1 => self.read_again(),
            _ => self.store(),
        }
    }

    fn store(&mut self) -> io::Result<()> {
        let longest = [10, 5000, 100_000][self.random.below(3) as usize];
        let length = 1 + self.random.below(longest) as usize;
        let from = self.random.below((MAPPED_BYTES - length) as u64) as usize;
        let byte = self.random.next() as u8;
        for bytes in [self.map.bytes(), &mut self.known] {
            bytes[from..from + length].fill(byte);
        }
        Ok(())
    }

    /// Nothing that was stored is only in the kernel's memory when it is compared.
    fn read_again(&mut self) -> io::Result<()> {
        self.map.sync()?;
        self.map = Map::new(&self.file)?;
        // SAFETY: no memory is involved. The pages that the kernel holds are dropped.
        unsafe { libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        let mut found = vec![0; MAPPED_BYTES];
        self.file.read_exact_at(&mut found, 0)?;
        same(
            found == self.known && *self.map.bytes() == self.known[..],
            true,
        )
    }
}

/// Looks at versions beside the volume, which have the same inodes.
struct Looker {
    path: PathBuf,
    /// Of each version: the directory, the numbers of its file and of its link.
    open: BTreeMap<u64, (File, u64, u64)>,
    random: Random,
}

impl Looker {
    fn new(path: PathBuf, seed: u64) -> Looker {
        Looker {
            path,
            open: BTreeMap::new(),
            random: Random::new(seed),
        }
    }

    fn step(&mut self) -> io::Result<()> {
        let version = 1 + self.random.below(VERSIONS);
        let link = self.path.join(tag_of(version));
        let Some((directory, of_file, of_link)) = self.open.get(&version) else {
            let directory = File::open(self.path.join(id_of(version)))?;
            let of_file = status_of_f(&directory)?.st_ino;
            let of_link = std::fs::symlink_metadata(&link)?.ino();
            let known = (directory, of_file, of_link);
            self.open.insert(version, known);
            return Ok(());
        };
        match self.random.below(20) {
            0 => drop(self.open.remove(&version)),
            1 => same(std::fs::read_dir(&self.path)?.count() as u64, 2 * VERSIONS)?,
            2..10 => {
                same(std::fs::symlink_metadata(&link)?.ino(), *of_link)?;
                same(std::fs::read_link(&link)?, id_of(version).into())?;
            }
            _ => {
                let status = status_of_f(directory)?;
                let found = (status.st_size as u64, status.st_ino);
                same(found, (version, *of_file))?;
            }
        }
        Ok(())
    }
}

fn status_of_f(directory: &File) -> io::Result<libc::stat> {
    // SAFETY: plain data, which the call fills.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the name ends with a zero byte, and both outlive the call.
    match unsafe { libc::fstatat(directory.as_raw_fd(), c"f".as_ptr(), &mut status, 0) } {
        0 => Ok(status),
        _ => Err(io::Error::last_os_error()),
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
    let mut mapper = Mapper::new(&mount.path.join("m"), seed + 400).expect("maps");
    programs.push(start("mapper".into(), &is_over, move || mapper.step()));
    let mut looker = Looker::new(mount.path.join(".cowfs/versions"), seed + 500);
    programs.push(start("looker".into(), &is_over, move || looker.step()));
    let lister = move || list(&directory, &names);
    programs.push(start("lister".into(), &is_over, lister));
    let kills = kill_until_told(&mut mount, &programs, seed);
    println!("{kills} kills");
    is_over.store(true, Ordering::Release);
    for program in programs {
        let outcome = program.thread.join().expect("no panic");
        assert!(outcome.is_ok(), "{}: {outcome:?}", program.name);
    }
}

static IS_TOLD_TO_END: AtomicBool = AtomicBool::new(false);

extern "C" fn note_the_end(_signal: libc::c_int) {
    IS_TOLD_TO_END.store(true, Ordering::Release);
}

/// Returns how often it has killed a server.
fn kill_until_told(mount: &mut Mount, programs: &[Program], seed: u64) -> u64 {
    let handler = note_the_end as extern "C" fn(libc::c_int);
    // SAFETY: the handler does no more than store a number.
    unsafe { libc::signal(libc::SIGTERM, handler as libc::sighandler_t) };
    let mut random = Random::new(seed);
    for kill in 0..number("COWFS_KILLS", DEFAULT_KILLS) {
        if IS_TOLD_TO_END.load(Ordering::Acquire) || !have_gone_on(programs, kill) {
            return kill;
        }
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        mount.kill_server();
        let since = Instant::now();
        let records = mount.start_server();
        if kill % 100 == 0 {
            let took = since.elapsed().as_millis();
            println!("kill {kill}: the next server took {took} ms and replayed {records} records");
        }
    }
    number("COWFS_KILLS", DEFAULT_KILLS)
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
