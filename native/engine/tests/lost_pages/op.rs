//! The operations on a disk that loses pages, and how often each is drawn.
//!
//! A case is a list of single operations and of stories. A story is a short sequence in which a
//! defect of its kind shows, most of it in this order, and other operations in between: single
//! draws meet in such an order once in hundreds of cases.

use proptest::prelude::*;

use crate::NAMES;
use crate::support::cases::story;

#[derive(Debug, Clone)]
pub enum Op {
    Put(usize, u16),
    Write(usize, u16, u16),
    Truncate(usize, u16),
    Unlink(usize),
    Rename(usize, usize),
    /// From, to, and from where to where how many bytes.
    Copy(usize, usize, u16, u16, u16),
    Read(usize, u16),
    Look,
    Fsync(usize),
    Sync,
    Freeze,
    Commit,
    Trim,
    Pass(Pass),
    /// A pass, and a write (file, offset, length) when it has looked at so many batches of extents.
    PassAround(Pass, usize, (usize, u16, u16)),
    Evict,
    Kill(u64),
    FailPages(u64),
    /// Between the halves of the next operation that has two.
    FailPagesBetween(u64),
    FailNextSync(u64),
    DropPages(u64),
    SpoilCache(u64),
    /// The next write goes to another segment.
    NextSegment,
}

/// A pass over staging or the journal.
#[derive(Debug, Clone, Copy)]
pub enum Pass {
    Reclaim,
    /// As the mount does it a moment after a failure.
    ReclaimWhenDue,
    Punch,
    Checkpoint,
}

pub fn ops() -> impl Strategy<Value = Vec<Op>> {
    let step = prop_oneof![
        16 => op().prop_map(|op| vec![op]),
        2 => lost_and_moved(),
        2 => lost_and_copied(),
        1 => lost_over_a_restart(),
        2 => punched_twice(),
    ];
    prop::collection::vec(step, 1..45).prop_map(|steps| steps.concat())
}

fn name() -> impl Strategy<Value = usize> {
    0..NAMES.len()
}

fn pass() -> impl Strategy<Value = Pass> {
    prop_oneof![
        3 => Just(Pass::Reclaim),
        2 => Just(Pass::ReclaimWhenDue),
        2 => Just(Pass::Punch),
        1 => Just(Pass::Checkpoint),
    ]
}

/// More batches of extents than most passes look at.
fn batches() -> impl Strategy<Value = usize> {
    0..30_usize
}

fn op() -> impl Strategy<Value = Op> + Clone {
    prop_oneof![
        6 => (name(), 1_u16..9000).prop_map(|(at, length)| Op::Put(at, length)),
        10 => (name(), 0_u16..9000, 1_u16..5000).prop_map(|(at, offset, length)| Op::Write(at, offset, length)),
        2 => (name(), 0_u16..12_000).prop_map(|(at, size)| Op::Truncate(at, size)),
        2 => name().prop_map(Op::Unlink),
        2 => (name(), name()).prop_map(|(from, to)| Op::Rename(from, to)),
        5 => (name(), name(), 0_u16..6000, 0_u16..6000, 1_u16..9000).prop_map(|(from, to, offset, at, length)| Op::Copy(from, to, offset, at, length)),
        6 => (name(), 0_u16..9000).prop_map(|(at, offset)| Op::Read(at, offset)),
        1 => Just(Op::Look),
        6 => name().prop_map(Op::Fsync),
        1 => Just(Op::Sync),
        4 => Just(Op::Freeze),
        4 => Just(Op::Commit),
        1 => Just(Op::Trim),
        7 => pass().prop_map(Op::Pass),
        2 => (pass(), batches(), (name(), 0_u16..9000, 1_u16..5000)).prop_map(|(pass, batches, write)| Op::PassAround(pass, batches, write)),
        1 => Just(Op::Evict),
        3 => any::<u64>().prop_map(Op::Kill),
        6 => any::<u64>().prop_map(Op::FailPages),
        1 => any::<u64>().prop_map(Op::FailPagesBetween),
        2 => any::<u64>().prop_map(Op::FailNextSync),
        3 => any::<u64>().prop_map(Op::DropPages),
        2 => any::<u64>().prop_map(Op::SpoilCache),
        1 => Just(Op::NextSegment),
    ]
}

/// The live rest of a segment loses pages, and a pass gives it another place before a commit reads
/// it.
fn lost_and_moved() -> impl Strategy<Value = Vec<Op>> {
    (name(), name(), any::<u64>()).prop_flat_map(|(at, other, seed)| {
        let told = vec![
            Just(Op::Commit).boxed(),
            Just(Op::NextSegment).boxed(),
            (1_u16..5000)
                .prop_map(move |length| Op::Put(at, length))
                .boxed(),
            Just(Op::Put(other, 9000)).boxed(),
            Just(Op::NextSegment).boxed(),
            Just(Op::Put(other, 9000)).boxed(),
            Just(Op::FailPages(seed)).boxed(),
            Just(Op::Pass(Pass::Reclaim)).boxed(),
            Just(Op::Freeze).boxed(),
            Just(Op::Commit).boxed(),
        ];
        story(told, op())
    })
}

/// A copy of what the disk has lost, when the first is gone.
fn lost_and_copied() -> impl Strategy<Value = Vec<Op>> {
    (name(), name(), any::<u64>()).prop_flat_map(|(from, to, seed)| {
        let told = vec![
            Just(Op::Put(from, 9000)).boxed(),
            Just(Op::FailPages(seed)).boxed(),
            (0_u16..6000, 0_u16..6000, 1_u16..9000)
                .prop_map(move |(offset, at, length)| Op::Copy(from, to, offset, at, length))
                .boxed(),
            Just(Op::Unlink(from)).boxed(),
            Just(Op::Freeze).boxed(),
            Just(Op::Commit).boxed(),
        ];
        story(told, op())
    })
}

/// Bytes lost before a restart are synced after it.
fn lost_over_a_restart() -> impl Strategy<Value = Vec<Op>> {
    (name(), any::<u64>()).prop_flat_map(|(at, seed)| {
        let told = vec![
            (1_u16..9000)
                .prop_map(move |length| Op::Put(at, length))
                .boxed(),
            Just(Op::FailPages(seed)).boxed(),
            any::<u64>().prop_map(Op::Kill).boxed(),
            prop_oneof![3 => Just(Op::Fsync(at)), 1 => Just(Op::Sync)].boxed(),
            Just(Op::Look).boxed(),
        ];
        story(told, op())
    })
}

/// Two passes give dead parts back, and something changes during the first.
fn punched_twice() -> impl Strategy<Value = Vec<Op>> {
    (name(), name(), batches()).prop_flat_map(|(at, other, batches)| {
        let around = (0_u16..9000, 1_u16..5000);
        let told = vec![
            Just(Op::NextSegment).boxed(),
            Just(Op::Put(other, 4000)).boxed(),
            Just(Op::Put(at, 9000)).boxed(),
            Just(Op::Write(other, 0, 2000)).boxed(),
            around
                .prop_map(move |(offset, length)| {
                    Op::PassAround(Pass::Punch, batches, (at, offset, length))
                })
                .boxed(),
            Just(Op::Pass(Pass::Punch)).boxed(),
            Just(Op::Look).boxed(),
        ];
        story(told, op())
    })
}
