//! The operations of the model, and how often each is drawn.
//!
//! A case is a list of single operations and of stories. A story is a sequence on one file or two,
//! in an order that reveals defects and that single draws hardly ever meet.

use proptest::prelude::*;

use crate::support::cases::story;

#[derive(Debug, Clone)]
pub enum Op {
    Create(Where),
    Mkdir(Where),
    Symlink(Where, u8),
    Write(Where, u16, u16, u8),
    /// Replaces the whole content of the file.
    Replace(Where, u16, u8),
    Truncate(Where, u16),
    Chmod(Where, u16),
    Unlink(Where),
    Rmdir(Where),
    /// With one of `RENAME_FLAGS`.
    Rename(Where, Where, u8),
    Link(Where, Where),
    SetXattr(Where, u8, u8),
    RemoveXattr(Where, u8),
    /// One of `ACLS`; a directory's default one, or the inode's own.
    SetAcl(Where, u8, bool),
    RemoveAcl(Where, bool),
    /// Bytes of the first file to the second: (from, to, how many).
    Copy(Where, Where, (u16, u16, u16)),
    /// A copy, and something else between its halves.
    During(Between, Where, Where, (u16, u16, u16)),
    Punch(Where, u16, u16),
    /// Whether the size stays.
    Allocate(Where, u16, u16, bool),
    /// For writing, too, or not: a file that may be mapped writable is never shared.
    Open(Where, bool),
    /// A file without a name.
    OpenUnnamed(Where),
    LinkOpen(usize, Where),
    CopyOpen(usize, usize, (u16, u16, u16)),
    /// The content of an open file is requested, and the rows are under way.
    StartLoad(usize),
    EndLoad,
    /// The contents of all files are loaded, as neighbours of a requested one.
    LoadNeighbours,
    WriteOpen(usize, u16, u16, u8),
    TruncateOpen(usize, u16),
    ReadOpen(usize),
    Close(usize),
    Freeze,
    Commit,
    Fail,
    Crash,
    CrashBehindHead,
    Trim,
    Reclaim,
    /// Bytes that move from one file to another during a pass.
    MoveInPass(Where, Where, (u16, u16, u16), bool),
    /// Everything that can be loaded again leaves memory.
    Evict,
    Checkpoint,
    /// Everything is committed, and mounted again.
    Remount,
    /// All there is is compared, and in memory from then on.
    Look,
    /// The next write goes to another segment, so that trimming may take this one.
    NextSegment,
}

/// None, NOREPLACE, EXCHANGE, WHITEOUT, and the first and the last together.
const RENAME_FLAGS: [u8; 5] = [0, 1, 2, 4, 5];

/// Entries of ACLs: tag, permissions, named id. The first says no more than a mode.
const ACLS: [&[(u16, u16, u32)]; 4] = [
    &[(1, 6, u32::MAX), (4, 5, u32::MAX), (32, 0, u32::MAX)],
    &[
        (1, 7, u32::MAX),
        (2, 6, 7),
        (4, 5, u32::MAX),
        (16, 7, u32::MAX),
        (32, 4, u32::MAX),
    ],
    &[
        (1, 6, u32::MAX),
        (2, 0, 7),
        (2, 7, 8),
        (4, 0, u32::MAX),
        (8, 5, 9),
        (16, 5, u32::MAX),
        (32, 1, u32::MAX),
    ],
    &[
        (1, 5, u32::MAX),
        (4, 7, u32::MAX),
        (16, 0, u32::MAX),
        (32, 0, u32::MAX),
    ],
];

/// An ACL as its attribute has it.
pub fn acl(which: u8) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in ACLS[usize::from(which)] {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// What happens between the halves of an operation.
#[derive(Debug, Clone, Copy)]
pub enum Between {
    EndOfCommit,
    Trim,
    Reclaim,
    LoadNeighbours,
}

/// A path of up to three names out of few, so that operations meet.
#[derive(Debug, Clone)]
pub struct Where(pub Vec<u8>);

impl Where {
    pub fn path(&self) -> String {
        self.0
            .iter()
            .map(|number| char::from(b'a' + number % 4).to_string())
            .collect::<Vec<_>>()
            .join("/")
    }
}

fn place() -> impl Strategy<Value = Where> + Clone {
    let depth = prop_oneof![6 => Just(1_usize), 3 => Just(2), 1 => Just(3)];
    depth
        .prop_flat_map(|depth| prop::collection::vec(0_u8..4, depth))
        .prop_map(Where)
}

/// At most so many steps, each an operation or a story.
pub fn ops(steps: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Op>> {
    let step = prop_oneof![
        16 => op().prop_map(|op| vec![op]),
        1 => lost_name(),
        1 => copied_around_a_commit(),
        1 => loaded_late(),
        1 => changed_around_a_commit(),
        1 => allocated(),
    ];
    prop::collection::vec(step, steps).prop_map(|steps| steps.concat())
}

/// A file that is held open, and was never read, loses its name to a commit.
fn lost_name() -> impl Strategy<Value = Vec<Op>> {
    (place(), place(), any::<bool>()).prop_flat_map(|(at, other, is_replaced)| {
        let loss = match is_replaced {
            true => Op::Rename(other, at.clone(), 0),
            false => Op::Unlink(at.clone()),
        };
        let told = vec![
            Just(Op::Commit).boxed(),
            Just(Op::Evict).boxed(),
            any::<bool>()
                .prop_map(move |is_writable| Op::Open(at.clone(), is_writable))
                .boxed(),
            Just(loss).boxed(),
            Just(Op::Freeze).boxed(),
            Just(Op::Commit).boxed(),
            any::<usize>().prop_map(Op::ReadOpen).boxed(),
        ];
        story(told, op())
    })
}

/// Bytes that are in no version yet are copied while a commit ends, or segments go.
fn copied_around_a_commit() -> impl Strategy<Value = Vec<Op>> {
    (place(), place()).prop_flat_map(|(from, to)| {
        let (source, target) = (from.clone(), to.clone());
        let told = vec![
            (0_u16..6_000, 1_u16..9_000, any::<u8>())
                .prop_map(move |(offset, length, byte)| {
                    Op::Write(source.clone(), offset, length, byte)
                })
                .boxed(),
            (between(), range())
                .prop_map(move |(between, range)| {
                    Op::During(between, from.clone(), target.clone(), range)
                })
                .boxed(),
            Just(Op::Trim).boxed(),
            prop_oneof![Just(Op::Look), Just(Op::Crash)].boxed(),
        ];
        story(told, op())
    })
}

/// Rows of an open file arrive after a commit has changed the file.
fn loaded_late() -> impl Strategy<Value = Vec<Op>> {
    (place(), any::<usize>()).prop_flat_map(|(at, which)| {
        let told = vec![
            Just(Op::Commit).boxed(),
            Just(Op::Evict).boxed(),
            Just(Op::Open(at.clone(), true)).boxed(),
            Just(Op::StartLoad(which)).boxed(),
            (0_u16..6_000, 1_u16..9_000, any::<u8>())
                .prop_map(move |(offset, length, byte)| Op::Write(at.clone(), offset, length, byte))
                .boxed(),
            Just(Op::Freeze).boxed(),
            Just(Op::Commit).boxed(),
            Just(Op::Evict).boxed(),
            Just(Op::EndLoad).boxed(),
            Just(Op::ReadOpen(which)).boxed(),
        ];
        story(told, op())
    })
}

/// A file without data in memory has its row changed, and is emptied, cut or written while that is
/// committed.
fn changed_around_a_commit() -> impl Strategy<Value = Vec<Op>> {
    place().prop_flat_map(|at| {
        let change = prop_oneof![
            2 => Just(Op::Truncate(at.clone(), 0)),
            1 => Just(Op::Truncate(at.clone(), 1000)),
            1 => Just(Op::Write(at.clone(), 100, 1000, 9)),
            1 => Just(Op::Unlink(at.clone())),
        ];
        let told = vec![
            Just(Op::Commit).boxed(),
            Just(Op::Evict).boxed(),
            Just(Op::Chmod(at.clone(), 0o600)).boxed(),
            Just(Op::Freeze).boxed(),
            change.boxed(),
            Just(Op::Commit).boxed(),
        ];
        story(told, op())
    })
}

/// Part of an allocated range is written, punched or cut off; then a checkpoint or a replay shows
/// the result.
fn allocated() -> impl Strategy<Value = Vec<Op>> {
    place().prop_flat_map(|at| {
        let allocate = |at: Where| {
            (0_u16..20_000, 1_u16..9_000, any::<bool>()).prop_map(move |(offset, length, keeps)| {
                Op::Allocate(at.clone(), offset, length, keeps)
            })
        };
        let change = prop_oneof![
            Just(Op::Write(at.clone(), 3000, 4000, 9)),
            Just(Op::Punch(at.clone(), 3000, 4000)),
            Just(Op::Truncate(at.clone(), 8000)),
        ];
        let told = vec![
            Just(Op::Create(at.clone())).boxed(),
            allocate(at.clone()).boxed(),
            change.boxed(),
            allocate(at).boxed(),
            prop_oneof![Just(Op::Checkpoint), Just(Op::Freeze)].boxed(),
            Just(Op::Crash).boxed(),
        ];
        story(told, op())
    })
}

fn op() -> impl Strategy<Value = Op> + Clone {
    prop_oneof![
        6 => place().prop_map(Op::Create),
        5 => place().prop_map(Op::Mkdir),
        1 => (place(), any::<u8>()).prop_map(|(at, to)| Op::Symlink(at, to)),
        12 => (place(), 0_u16..12_000, 1_u16..9_000, any::<u8>()).prop_map(|(at, offset, length, byte)| Op::Write(at, offset, length, byte)),
        6 => (place(), 0_u16..12_000, any::<u8>()).prop_map(|(at, length, byte)| Op::Replace(at, length, byte)),
        4 => (place(), 0_u16..15_000).prop_map(|(at, size)| Op::Truncate(at, size)),
        // Set-id bits are left out: root's own writes keep them on a local disk, while the engine
        // always clears them.
        1 => (place(), 0_u16..0o1777).prop_map(|(at, mode)| Op::Chmod(at, mode)),
        4 => place().prop_map(Op::Unlink),
        2 => place().prop_map(Op::Rmdir),
        8 => (place(), place(), prop::sample::select(&RENAME_FLAGS[..])).prop_map(|(from, to, flags)| Op::Rename(from, to, flags)),
        2 => (place(), place()).prop_map(|(from, to)| Op::Link(from, to)),
        2 => (place(), 0_u8..3, any::<u8>()).prop_map(|(at, name, value)| Op::SetXattr(at, name, value)),
        1 => (place(), 0_u8..3).prop_map(|(at, name)| Op::RemoveXattr(at, name)),
        3 => (place(), 0..ACLS.len() as u8, any::<bool>()).prop_map(|(at, which, is_default)| Op::SetAcl(at, which, is_default)),
        1 => (place(), any::<bool>()).prop_map(|(at, is_default)| Op::RemoveAcl(at, is_default)),
        8 => (place(), place(), range()).prop_map(|(from, to, range)| Op::Copy(from, to, range)),
        4 => (between(), place(), place(), range()).prop_map(|(between, from, to, range)| Op::During(between, from, to, range)),
        3 => (place(), 0_u16..12_000, 1_u16..9_000).prop_map(|(at, offset, length)| Op::Punch(at, offset, length)),
        3 => (place(), 0_u16..20_000, 1_u16..9_000, any::<bool>()).prop_map(|(at, offset, length, keeps)| Op::Allocate(at, offset, length, keeps)),
        6 => (place(), any::<bool>()).prop_map(|(at, writable)| Op::Open(at, writable)),
        2 => place().prop_map(Op::OpenUnnamed),
        2 => (any::<usize>(), place()).prop_map(|(which, at)| Op::LinkOpen(which, at)),
        2 => (any::<usize>(), any::<usize>(), range()).prop_map(|(from, to, range)| Op::CopyOpen(from, to, range)),
        1 => any::<usize>().prop_map(Op::StartLoad),
        1 => Just(Op::EndLoad),
        3 => Just(Op::LoadNeighbours),
        4 => (any::<usize>(), 0_u16..12_000, 1_u16..9_000, any::<u8>()).prop_map(|(which, offset, length, byte)| Op::WriteOpen(which, offset, length, byte)),
        1 => (any::<usize>(), 0_u16..15_000).prop_map(|(which, size)| Op::TruncateOpen(which, size)),
        5 => any::<usize>().prop_map(Op::ReadOpen),
        1 => any::<usize>().prop_map(Op::Close),
        6 => Just(Op::Freeze),
        7 => Just(Op::Commit),
        1 => Just(Op::Fail),
        1 => Just(Op::Crash),
        1 => Just(Op::CrashBehindHead),
        3 => Just(Op::Trim),
        2 => Just(Op::Reclaim),
        3 => (place(), place(), range(), any::<bool>()).prop_map(|(from, to, range, punches)| Op::MoveInPass(from, to, range, punches)),
        4 => Just(Op::Evict),
        2 => Just(Op::Checkpoint),
        1 => Just(Op::Remount),
        1 => Just(Op::Look),
        2 => Just(Op::NextSegment),
    ]
}

fn between() -> impl Strategy<Value = Between> + Clone {
    prop_oneof![
        4 => Just(Between::EndOfCommit),
        1 => Just(Between::Trim),
        1 => Just(Between::Reclaim),
        1 => Just(Between::LoadNeighbours),
    ]
}

fn range() -> impl Strategy<Value = (u16, u16, u16)> + Clone {
    (0_u16..9_000, 0_u16..9_000, 1_u16..12_000)
}
