//! A batch on its way, step by step.

use cowfs_blob::{CODEC_RAW, CODEC_ZSTD, name_of};
use cowfs_chunking::{ChunkPlaces, Pack, Place};
use cowfs_engine::{FileRows, Record, SmallContent, SmallFile, SmallFiles};
use cowfs_storing::Batch;
use hashbrown::HashSet;

const NOISE: &[u8] = b"0qK\xf1\x82z";
const OLD: Pack = [1; 16];
const NEW: Pack = [2; 16];

/// An empty file, a compressible one, two equal ones, and a stored one.
fn small() -> SmallFiles {
    let text = [b'x'; 500];
    let bytes = [&text[..], NOISE, NOISE].concat();
    let staged = |at, length| SmallContent::Staged {
        offset: 0,
        at,
        length,
    };
    let contents = [
        SmallContent::Empty,
        staged(0, 500),
        staged(500, NOISE.len()),
        staged(500 + NOISE.len(), NOISE.len()),
        SmallContent::Stored(Record::of(14, 28, &[])),
    ];
    let files = contents
        .into_iter()
        .zip(10..)
        .map(|(content, ino)| SmallFile {
            ino,
            version: ino * 2,
            content,
        });
    SmallFiles {
        files: files.collect(),
        bytes,
    }
}

fn place(pack: Pack) -> Place {
    Place {
        pack,
        offset: 77,
        stored_length: 6,
        raw_length: 6,
        codec: 0,
    }
}

fn finish(batch: &mut Batch, places: &mut ChunkPlaces) -> Option<FileRows> {
    let mut rows = FileRows::default();
    let number = |pack: &Pack| Some(u64::from(pack[0]));
    batch.finish(places, number, &mut rows).then_some(rows)
}

#[test]
fn chunks_are_poured_once_each_and_files_get_rows() {
    let mut places = ChunkPlaces::default();
    let mut batch = Batch::new(small(), None);
    batch.look_up(&places);
    assert_eq!(batch.missing().count(), 2, "equal files are one chunk");
    assert!(
        finish(&mut batch, &mut places).is_none(),
        "nothing has a place"
    );
    batch.compress(true);
    let mut room = [7; 4096];
    let first = batch.pour(&NEW, 16, &mut room, 1, (12, 16));
    assert!(!batch.is_poured(), "the target was one byte");
    let second = batch.pour(&NEW, 16 + first.length as u32, &mut room, 4096, (12, 16));
    assert!(batch.is_poured());
    assert_eq!(second.length, 12 + NOISE.len() + 16);
    assert_eq!(room[..12], [0; 12]);
    assert_eq!(&room[12..12 + NOISE.len()], NOISE);
    assert_eq!(second.directory.len(), 48);
    assert_eq!(second.directory[..32], name_of(NOISE, None));
    assert_eq!(second.directory[44..], [CODEC_RAW as u8, 1, 0, 0]);
    let rows = finish(&mut batch, &mut places).expect("all have a place");
    assert_eq!(rows.len(), 5);
    assert_eq!(rows.get(10), Some((20, Vec::new())));
    let (_, text) = rows.get(11).expect("there");
    assert_eq!(text[0].chunk.codec, CODEC_ZSTD);
    assert_eq!(u64::from(text[0].chunk.stored_length), first.length as u64);
    let (_, noise) = rows.get(12).expect("there");
    assert_eq!(noise[0].chunk.offset, 16 + first.length as u64);
    assert_eq!(rows.get(13).expect("there").1, noise);
    assert_eq!(places.fresh_packs(), [NEW]);
}

#[test]
fn what_is_known_is_not_poured() {
    let mut places = ChunkPlaces::default();
    places.put(&name_of(NOISE, None), &place(OLD), false);
    let mut batch = Batch::new(small(), None);
    batch.look_up(&places);
    assert_eq!(batch.packs(), [OLD]);
    assert_eq!(batch.missing().count(), 1);
    batch.doubt(&[OLD]);
    let known = batch.missing_in(&[], &HashSet::new());
    assert_eq!(known.len(), 1, "what was doubted is asked for");
    assert!(batch.found(known[0].0, place(NEW)));
    assert!(!batch.found(99, place(NEW)));
    let text = name_of(&[b'x'; 500], None);
    let entry: Vec<u8> = text[..8].iter().copied().chain([0; 8]).collect();
    assert_eq!(batch.missing_in(&[&entry], &HashSet::new()).len(), 1);
    assert_eq!(batch.missing_in(&[&[0; 16]], &HashSet::new()).len(), 0);
    assert_eq!(batch.missing_in(&[], &[&text[..]].into()).len(), 1);
    let [(number, _)] = batch.missing().collect::<Vec<_>>()[..] else {
        panic!("one is missing");
    };
    batch.found(number, place(OLD));
    assert!(batch.is_poured());
    finish(&mut batch, &mut places).expect("all have a place");
    assert_eq!(places.get(&name_of(NOISE, None)), Some(place(NEW)));
    assert_eq!(places.fresh_packs(), [[0; 16]; 0]);
}

#[test]
fn a_store_with_a_key_has_other_names() {
    let batch = Batch::new(small(), Some(&[3; 32]));
    let names: Vec<_> = batch.missing().map(|(_, hash)| *hash).collect();
    assert_eq!(names[1], name_of(NOISE, Some(&[3; 32])));
    assert_ne!(names[1], name_of(NOISE, None));
}

#[test]
fn many_are_named_in_order() {
    let bytes: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
    let files = (0..10_000_usize).map(|number| SmallFile {
        ino: number as u64,
        version: 1,
        content: SmallContent::Staged {
            offset: 0,
            at: number * 4,
            length: 4,
        },
    });
    let small = SmallFiles {
        files: files.collect(),
        bytes: bytes.clone(),
    };
    let batch = Batch::new(small, None);
    for (number, hash) in batch.missing() {
        assert_eq!(*hash, name_of(&bytes[number * 4..number * 4 + 4], None));
    }
}
