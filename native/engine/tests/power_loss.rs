//! Random operations, then a power loss: bytes that no fsync had covered are kept, zeroed, garbled
//! or cut, files that had been removed come back, segments without any synced byte vanish.
//! Invariants afterwards:
//!
//! - names, links, modes, attributes and sizes are those behind some operation, not earlier than
//!   the last fsync or commit;
//! - every byte of a file is one the file had there since its last fsync, or a hole where it had
//!   none; never anything else;
//! - recovering once more, and a commit, see the same.
//!
//! Only fsync's promises count as synced: the journal up to that point, and the segments of the
//! file. When staging releases overwritten bytes that were promised, it must have synced the bytes
//! mapped instead: then those count as synced, too.

#[path = "power_loss/disk.rs"]
mod disk;
#[path = "power_loss/moment.rs"]
mod moment;
#[path = "power_loss/operations.rs"]
mod operations;
mod support;

use cowfs_engine::SEGMENT_BYTES;
use disk::Disk;
use proptest::prelude::*;
use support::cases::run_cases;
use support::tree_of;

const PATHS: [&str; 6] = ["a", "b", "c", "d/a", "d/b", "e/a"];

#[derive(Debug, Clone)]
enum Op {
    Put(usize, u16, u8),
    Write(usize, u16, u16, u8),
    Truncate(usize, u16),
    Unlink(usize),
    Rename(usize, usize, bool),
    Link(usize, usize),
    Mkdir(bool),
    SetXattr(usize, u8),
    Fsync(usize),
    Sync,
    /// Bytes of the first file at the second, as copy_file_range does it: from, to, how many.
    Copy(usize, usize, u16, u16, u16),
    /// A hole in a file; Punch is one in a segment.
    Dig(usize, u16, u16),
    /// A file that is made without a name, written, perhaps fsynced, and gets the name then.
    LinkUnnamed(usize, u16, u8, bool),
    Freeze,
    Commit,
    Fail,
    Trim,
    Reclaim,
    Checkpoint,
    Punch,
    Kill,
    PowerLoss(u64),
    PowerLossBehindHead(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let path = || 0..PATHS.len();
    prop_oneof![
        5 => (path(), 0_u16..3000, 1_u8..=255).prop_map(|(at, length, byte)| Op::Put(at, length, byte)),
        12 => (path(), 0_u16..4000, 1_u16..3000, 1_u8..=255).prop_map(|(at, offset, length, byte)| Op::Write(at, offset, length, byte)),
        3 => (path(), 0_u16..6000).prop_map(|(at, size)| Op::Truncate(at, size)),
        2 => path().prop_map(Op::Unlink),
        4 => (path(), path(), any::<bool>()).prop_map(|(from, to, exchanges)| Op::Rename(from, to, exchanges)),
        1 => (path(), path()).prop_map(|(from, to)| Op::Link(from, to)),
        2 => any::<bool>().prop_map(Op::Mkdir),
        1 => (path(), any::<u8>()).prop_map(|(at, value)| Op::SetXattr(at, value)),
        12 => (path(), path(), 0_u16..3000, 0_u16..3000, 1_u16..4000).prop_map(|(from, to, offset, at, length)| Op::Copy(from, to, offset, at, length)),
        2 => (path(), 0_u16..4000, 1_u16..3000).prop_map(|(at, offset, length)| Op::Dig(at, offset, length)),
        3 => (path(), 1_u16..3000, 1_u8..=255, any::<bool>()).prop_map(|(at, length, byte, syncs)| Op::LinkUnnamed(at, length, byte, syncs)),
        6 => path().prop_map(Op::Fsync),
        1 => Just(Op::Sync),
        3 => Just(Op::Freeze),
        2 => Just(Op::Commit),
        1 => Just(Op::Fail),
        1 => Just(Op::Trim),
        3 => Just(Op::Reclaim),
        3 => Just(Op::Checkpoint),
        3 => Just(Op::Punch),
        1 => Just(Op::Kill),
        6 => any::<u64>().prop_map(Op::PowerLoss),
        1 => any::<u64>().prop_map(Op::PowerLossBehindHead),
    ]
}

/// The initial tree, durable: without it most operations would find nothing to work on, and copies
/// would have no synced bytes to cover.
const POPULATION: [Op; 8] = [
    Op::Mkdir(true),
    Op::Mkdir(false),
    Op::Put(0, 2900, 1),
    Op::Put(1, 2000, 2),
    Op::Put(2, 2500, 3),
    Op::Put(3, 1500, 4),
    Op::Put(5, 2900, 5),
    Op::Sync,
];

fn check(ops: &[Op], segment_bytes: u64) {
    let mut disk = Disk::new(segment_bytes);
    for op in POPULATION.iter().chain(ops) {
        disk.run(op);
    }
    disk.lose_power(0x5eed);
    let before = disk.world.tree();
    if let Some(layer) = disk.world.freeze() {
        disk.world.commit(layer);
    }
    assert_eq!(tree_of(&disk.world.base), before, "after a commit");
}

/// Short ones fill up, so that they are left to be reclaimed and their files to be used again.
fn segment_bytes() -> impl Strategy<Value = u64> {
    prop_oneof![Just(4 << 10), Just(8 << 10), Just(SEGMENT_BYTES)]
}

#[test]
fn a_power_loss_takes_only_what_no_fsync_covered() {
    let cases = (prop::collection::vec(op(), 1..60), segment_bytes());
    run_cases(100, cases, |(ops, segment_bytes)| {
        check(&ops, segment_bytes)
    });
}
