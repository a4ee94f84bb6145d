//! Random maps and unmaps against an array that names the source of each byte.

use std::sync::Arc;

use cowfs_base::ChunkHash;
use proptest::prelude::*;

use super::*;

const FILE_BYTES: usize = 600;

#[derive(Debug, Clone)]
enum Op {
    Stage {
        offset: u64,
        length: u64,
        segment: u64,
        at: u64,
    },
    Chunk {
        offset: u64,
        length: u64,
        name: u8,
        skip: u32,
    },
    Unmap {
        from: u64,
        to: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let offset = 0..(FILE_BYTES as u64 - 40);
    prop_oneof![
        (offset.clone(), 1..40_u64, 1..3_u64, 0..50_u64).prop_map(
            |(offset, length, segment, at)| Op::Stage {
                offset,
                length,
                segment,
                at
            }
        ),
        (offset.clone(), 1..40_u64, 0..3_u8, 0..50_u32).prop_map(|(offset, length, name, skip)| {
            Op::Chunk {
                offset,
                length,
                name,
                skip,
            }
        }),
        (offset, 0..60_u64).prop_map(|(from, length)| Op::Unmap {
            from,
            to: from + length
        }),
    ]
}

fn chunk(name: u8) -> Arc<ChunkRef> {
    let hash = ChunkHash([name; 32]);
    Arc::new(ChunkRef {
        hash,
        pack: 1,
        offset: 0,
        stored_length: 100,
        raw_length: 100,
        codec: 0,
    })
}

/// (is a chunk, name of chunk or segment, position in it)
type Byte = Option<(bool, u64, u64)>;

fn bytes_of(map: &ExtentMap) -> Vec<Byte> {
    let mut bytes = vec![None; FILE_BYTES];
    for extent in map.iter() {
        for number in 0..extent.length {
            let byte = match (&extent.staged, &extent.chunk) {
                (Some(staged), _) => (false, staged.segment(), staged.offset + number),
                (None, Some(chunk)) => (
                    true,
                    u64::from(chunk.hash.0[0]),
                    u64::from(extent.skip) + number,
                ),
                (None, None) => panic!("an extent that shows nothing"),
            };
            bytes[(extent.offset + number) as usize] = Some(byte);
        }
    }
    bytes
}

fn check_invariants(map: &ExtentMap) {
    let mut leaves = (0..).map_while(|number| map.leaf(number));
    assert!(leaves.all(|leaf| !leaf.is_empty() && leaf.len() <= LEAF_MAX));
    let extents: Vec<_> = map.iter().collect();
    assert!(extents.iter().all(|extent| extent.length > 0));
    assert!(
        extents
            .windows(2)
            .all(|pair| pair[0].end() <= pair[1].offset)
    );
    assert_eq!(
        map.mapped_bytes(),
        extents.iter().map(|extent| extent.length).sum::<u64>()
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_map_shows_what_was_mapped_last(ops in prop::collection::vec(op(), 0..80), from in 0..600_u64, length in 0..200_u64) {
        let mut map = ExtentMap::default();
        let mut bytes: Vec<Byte> = vec![None; FILE_BYTES];
        for op in ops {
            match op {
                Op::Stage { offset, length, segment, at } => {
                    let staged = Staged::new(segment, at);
                    map.map(Extent { offset, length, staged, chunk: None, skip: 0 });
                    for number in 0..length {
                        bytes[(offset + number) as usize] = Some((false, segment, at + number));
                    }
                }
                Op::Chunk { offset, length, name, skip } => {
                    map.map(Extent { offset, length, staged: None, chunk: Some(chunk(name)), skip });
                    for number in 0..length {
                        bytes[(offset + number) as usize] = Some((true, u64::from(name), u64::from(skip) + number));
                    }
                }
                Op::Unmap { from, to } => {
                    map.unmap(from, to);
                    bytes[from as usize..(to as usize).min(FILE_BYTES)].fill(None);
                }
            }
            check_invariants(&map);
        }
        prop_assert_eq!(bytes_of(&map), bytes);
        let found: Vec<_> = map.overlapping(from, from + length).map(|extent| extent.offset).collect();
        let wanted: Vec<_> = map.iter().filter(|extent| extent.offset < from + length && extent.end() > from).map(|extent| extent.offset).collect();
        prop_assert_eq!(found, wanted);
    }
}

fn staged(offset: u64, length: u64, at: u64) -> Extent {
    Extent {
        offset,
        length,
        staged: Staged::new(1, at),
        chunk: None,
        skip: 0,
    }
}

#[test]
fn a_sequential_write_is_one_extent() {
    let mut map = ExtentMap::default();
    for number in 0..1000 {
        map.map(staged(number * 100, 100, 7 + number * 100));
    }
    assert_eq!(map.iter().count(), 1);
    assert_eq!(map.mapped_bytes(), 100_000);
}

#[test]
fn holes_in_any_order_leave_leaves_that_are_short_and_well_filled() {
    let many = 1 << 14;
    for stride in [1, many - 1, 48_271] {
        let mut map = ExtentMap::default();
        map.map(staged(0, many * 8, 0));
        for number in 0..many {
            let at = number * stride % many * 8;
            map.unmap(at + 2, at + 5);
        }
        check_invariants(&map);
        assert_eq!(map.iter().count() as u64, many + 1);
        let leaves = (0..).map_while(|number| map.leaf(number)).count() as u64;
        assert!(leaves <= many / 32, "{leaves} leaves, stride {stride}");
    }
}

#[test]
fn a_gap_that_is_filled_joins_both_sides() {
    let mut map = ExtentMap::default();
    map.map(staged(0, 10, 0));
    map.map(staged(20, 10, 20));
    map.map(staged(10, 10, 10));
    assert_eq!(map.iter().count(), 1);
}

#[test]
fn many_extents_stay_in_order_over_many_leaves() {
    let mut map = ExtentMap::default();
    let count = 20_000_u64;
    for number in 0..count {
        let place = number * 7919 % count;
        map.map(staged(place * 10, 5, place * 1000));
    }
    check_invariants(&map);
    assert_eq!(map.iter().count() as u64, count);
    map.unmap(0, count * 10 - 10);
    assert_eq!(map.iter().count(), 1);
    map.unmap(0, u64::MAX);
    assert!(matches!(map, ExtentMap::None));
}
