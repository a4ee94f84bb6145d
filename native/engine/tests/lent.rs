//! Reads that are answered from where the bytes lie in memory, against reads that copy them.

mod support;

use cowfs_engine::{Engine, ExtentRow, HandleId, InodeRow, ReadBytes};
use proptest::prelude::*;
use support::{Base, ROOT, World};

const FILE: u64 = 2;
const READ_MAX: usize = 1 << 20;

/// An extent of the file, in bytes: the hole in front of it, the part of its chunk in front of it,
/// its length, and the part of its chunk behind it.
type Part = (u64, u32, u64, u32);

/// A version whose file `f` has these extents, and a hole at its end.
fn version(parts: &[Part], behind: u64) -> Base {
    let mut base = Base::empty();
    let (mut rows, mut end, mut mapped_bytes) = (Vec::new(), 0, 0);
    for (number, &(hole, skip, length, rest)) in parts.iter().enumerate() {
        let bytes: Vec<u8> = (0..u64::from(skip) + length + u64::from(rest))
            .map(|at| (at % 251) as u8 ^ number as u8)
            .collect();
        rows.push(ExtentRow {
            offset: end + hole,
            length,
            chunk: base.add_chunk(&bytes),
            skip,
        });
        end += hole + length;
        mapped_bytes += length;
    }
    let file = InodeRow {
        ino: FILE,
        mode: libc::S_IFREG | 0o644,
        nlink: 1,
        size: end + behind,
        mapped_bytes,
        ..InodeRow::default()
    };
    base.entries.insert((ROOT, b"f".to_vec()), FILE);
    base.extents.insert(FILE, rows);
    base.inodes.insert(FILE, file);
    base.next_ino = FILE + 1;
    base
}

fn read(world: &World, fh: HandleId, offset: u64, size: usize) -> (Vec<u8>, bool) {
    let ask = |engine: &Engine| {
        let mut buffer = vec![0xee; size];
        let bytes = match engine.read_or_lend(fh, offset, &mut buffer)? {
            ReadBytes::Copied(length) => (buffer[..length].to_vec(), false),
            ReadBytes::Lent(parts) => (parts.iter().flat_map(|part| part.to_vec()).collect(), true),
        };
        Ok(bytes)
    };
    world.ask(ask).expect("reads")
}

fn part() -> impl Strategy<Value = Part> {
    let hole = prop_oneof![4 => Just(0), 1 => 1..9000_u64];
    (hole, 0..5000_u32, 1..300_000_u64, 0..5000_u32)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_lent_is_what_would_be_copied(
        parts in prop::collection::vec(part(), 1..12),
        behind in prop_oneof![Just(0), 1..9000_u64],
        writes in prop::collection::vec((0..2_000_000_u64, 1..9000_usize), 0..3),
        reads in prop::collection::vec((0..2_000_000_u64, 1..=READ_MAX), 1..20),
    ) {
        let base = version(&parts, behind);
        let expected = base.bytes_of(FILE);
        let world = World::on(base);
        world.resolve("f").expect("exists");
        let fh = world.ask(|engine| engine.open_file(FILE, libc::O_RDWR)).expect("opens");
        for round in 0..2 {
            for &(offset, size) in &reads {
                let found = read(&world, fh, offset, size).0;
                let copied = world.ask(|engine| engine.read_file(fh, offset, size)).expect("reads");
                prop_assert!(found == copied, "{size} bytes at {offset}, round {round}");
                let start = (offset as usize).min(expected.len());
                let end = (start + size).min(expected.len());
                prop_assert!(round > 0 || found == expected[start..end], "{size} bytes at {offset}");
            }
            for &(offset, size) in &writes {
                world.ask(|engine| engine.write(fh, offset, &vec![0x5a; size], true)).expect("writes");
            }
        }
    }
}

#[test]
fn large_parts_are_lent_and_small_ones_holes_and_new_bytes_are_copied() {
    let large = (0, 10, 200_000, 10);
    let small = (0, 0, 5000, 0);
    let world = World::on(version(&[large, large, small, small, large], 100));
    world.resolve("f").expect("exists");
    let fh = world
        .ask(|engine| engine.open_file(FILE, libc::O_RDWR))
        .expect("opens");
    let is_lent = |offset, size| read(&world, fh, offset, size).1;
    assert!(is_lent(0, 400_000));
    assert!(is_lent(100_000, 100_000));
    assert!(is_lent(300_000, 300_000), "parts are large on average");
    assert!(!is_lent(100_000, 4096), "a small read");
    assert!(!is_lent(395_000, 20_000), "small parts");
    assert!(!is_lent(500_000, 200_000), "a hole at the end");
    assert!(!is_lent(10 << 20, 200_000), "nothing there");
    world
        .ask(|engine| engine.write(fh, 50_000, b"new", true))
        .expect("writes");
    assert!(!is_lent(0, 400_000), "new bytes");
    assert!(is_lent(100_000, 300_000));
}
