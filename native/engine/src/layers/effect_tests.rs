//! Records come back as they were written, and no bytes make decoding panic.

use proptest::prelude::*;

use super::*;

fn all(record: &[u8]) -> Result<Vec<Effect<'_>>, String> {
    decode(record)?.collect()
}

#[derive(Debug, Clone)]
enum Owned {
    Number(u8, Ino),
    Sums(Segment, Vec<Sum>),
    MapSummed(Ino, Extent),
    PutInode(InodeRow),
    PutEntry(Ino, Vec<u8>, Ino),
    DropEntry(Ino, Vec<u8>),
    Map(Ino, Extent, u32),
    Unmap(Ino, u64, u64),
    PutXattr(Ino, Vec<u8>, Vec<u8>),
    DropXattr(Ino, Vec<u8>),
    MapChunk(Ino, ExtentRow),
    Lose(Ino, u64, u64),
    Allocate(Ino, u64, u64),
    Done(u64, u64, u64),
    Cookies(Ino, Vec<(Vec<u8>, u64)>),
}

impl Owned {
    fn effect(&self) -> Effect<'_> {
        match self {
            Owned::Number(0, ino) => Effect::RemoveInode(*ino),
            Owned::Number(1, ino) => Effect::ClearXattrs(*ino),
            Owned::Number(2, ino) => Effect::Gone(*ino),
            Owned::Number(_, connection) => Effect::Connection(*connection),
            Owned::Sums(segment, sums) => Effect::Sums {
                segment: *segment,
                sums: sums.into(),
            },
            Owned::MapSummed(ino, extent) => Effect::Map {
                ino: *ino,
                extent: extent.clone(),
                crc: None,
            },
            Owned::PutInode(row) => Effect::PutInode(row.clone()),
            Owned::PutEntry(parent, name, ino) => Effect::PutEntry {
                parent: *parent,
                name,
                ino: *ino,
            },
            Owned::DropEntry(parent, name) => Effect::DropEntry {
                parent: *parent,
                name,
            },
            Owned::Map(ino, extent, crc) => Effect::Map {
                ino: *ino,
                extent: extent.clone(),
                crc: Some(*crc),
            },
            &Owned::Unmap(ino, from, to) => Effect::Unmap { ino, from, to },
            Owned::PutXattr(ino, name, value) => Effect::PutXattr {
                ino: *ino,
                name,
                value,
            },
            Owned::DropXattr(ino, name) => Effect::DropXattr { ino: *ino, name },
            &Owned::Allocate(ino, from, to) => Effect::Allocate { ino, from, to },
            &Owned::Done(connection, unique, result) => Effect::Done {
                connection,
                unique,
                result,
            },
            Owned::Cookies(ino, cookies) => Effect::Cookies {
                ino: *ino,
                cookies: cookies
                    .iter()
                    .map(|(name, cookie)| (name.into(), *cookie))
                    .collect(),
            },
            &Owned::Lose(ino, offset, length) => Effect::lose(ino, offset, length),
            Owned::MapChunk(ino, row) => Effect::Map {
                ino: *ino,
                extent: Extent {
                    chunk: Some(Arc::new(row.chunk.clone())),
                    skip: row.skip,
                    ..Extent::lost(row.offset, row.length)
                },
                crc: None,
            },
        }
    }
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1..=255_u8, 1..=255)
}

fn row() -> impl Strategy<Value = InodeRow> {
    let link = (any::<u64>(), prop::collection::vec(any::<u8>(), 1..4096));
    let times = (any::<i64>(), any::<i64>(), any::<i64>());
    (
        1..=cowfs_base::LAST_INO,
        any::<bool>(),
        any::<[u32; 5]>(),
        times,
        link,
    )
        .prop_map(|(ino, is_link, numbers, times, (size, target))| InodeRow {
            ino,
            mode: if is_link {
                libc::S_IFLNK | 0o777
            } else {
                libc::S_IFREG | (numbers[0] & 0o7777)
            },
            nlink: numbers[1],
            uid: numbers[2],
            gid: numbers[3],
            rdev: numbers[4],
            size: size >> 1,
            mapped_bytes: 0,
            atime_ns: times.0,
            mtime_ns: times.1,
            ctime_ns: times.2,
            flags: 0,
            target: if is_link {
                target.into()
            } else {
                Box::default()
            },
        })
}

fn effect() -> impl Strategy<Value = Owned> {
    prop_oneof![
        row().prop_map(Owned::PutInode),
        (any::<u64>(), name(), any::<u64>())
            .prop_map(|(parent, name, ino)| Owned::PutEntry(parent, name, ino)),
        (any::<u64>(), name()).prop_map(|(parent, name)| Owned::DropEntry(parent, name)),
        (any::<(u64, u32)>(), staged())
            .prop_map(|((ino, crc), extent)| Owned::Map(ino, extent, crc)),
        any::<[u64; 3]>().prop_map(|n| Owned::Unmap(n[0], n[1], n[2])),
        (
            any::<u64>(),
            name(),
            prop::collection::vec(any::<u8>(), 0..2000)
        )
            .prop_map(|(ino, name, value)| Owned::PutXattr(ino, name, value)),
        (any::<u64>(), name()).prop_map(|(ino, name)| Owned::DropXattr(ino, name)),
        (0..4_u8, any::<u64>()).prop_map(|(which, ino)| Owned::Number(which, ino)),
        (any::<u64>(), prop::collection::vec(sum(), 0..9))
            .prop_map(|(segment, sums)| Owned::Sums(segment, sums)),
        (any::<u64>(), staged()).prop_map(|(ino, extent)| Owned::MapSummed(ino, extent)),
        any::<[u64; 3]>().prop_map(|n| Owned::Allocate(n[0], n[1], n[2])),
        any::<[u64; 3]>().prop_map(|n| Owned::Lose(n[0], n[1], n[2])),
        any::<[u64; 3]>().prop_map(|n| Owned::Done(n[0], n[1], n[2])),
        (any::<u64>(), chunk_row()).prop_map(|(ino, row)| Owned::MapChunk(ino, row)),
        (
            any::<u64>(),
            prop::collection::vec((name(), 0..u64::MAX / 2), 0..9)
        )
            .prop_map(|(ino, cookies)| Owned::Cookies(ino, cookies)),
    ]
}

fn staged() -> impl Strategy<Value = Extent> {
    // They end within all offsets.
    let numbers = [0..=u64::MAX / 2, 0..=u64::MAX / 2, 0..=u64::MAX / 2];
    (numbers, 1..u64::MAX).prop_map(|([offset, length, at], segment)| {
        Extent::staged(offset, length, Staged::appended(segment, at))
    })
}

fn sum() -> impl Strategy<Value = Sum> {
    (0..=u64::MAX / 2, any::<[u32; 2]>()).prop_map(|(offset, [length, crc])| Sum {
        offset,
        length,
        crc,
    })
}

fn chunk_row() -> impl Strategy<Value = ExtentRow> {
    let numbers = (any::<[u64; 2]>(), 0..1_u64 << 40, 1..1_u32 << 20);
    (
        any::<[u8; 32]>(),
        numbers,
        any::<[u32; 2]>(),
        0..1_u32 << 20,
    )
        .prop_map(
            |(hash, ([pack, at], offset, length), [stored_length, codec], skip)| ExtentRow {
                offset,
                length: length.into(),
                chunk: ChunkRef {
                    hash: ChunkHash(hash),
                    pack,
                    offset: at,
                    stored_length,
                    raw_length: skip + length,
                    codec,
                },
                skip,
            },
        )
}

fn record_of(effects: &[Effect<'_>]) -> Vec<u8> {
    let mut record = start_record();
    effects
        .iter()
        .for_each(|effect| encode(effect, &mut record));
    record
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_record_comes_back(owned in prop::collection::vec(effect(), 0..6)) {
        let effects: Vec<_> = owned.iter().map(Owned::effect).collect();
        let record = record_of(&effects);
        prop_assert_eq!(all(&record).unwrap(), effects);
    }

    #[test]
    fn any_bytes_decode_or_are_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = all(&bytes);
        for version in VERSION..=VERSION_COOKIES {
            if let Some(first) = bytes.first_mut() {
                *first = version;
            }
            let _ = all(&bytes);
        }
    }

    #[test]
    fn a_record_cut_short_is_refused_or_shorter(owned in prop::collection::vec(effect(), 1..4), cut in any::<prop::sample::Index>()) {
        let effects: Vec<_> = owned.iter().map(Owned::effect).collect();
        let record = record_of(&effects);
        if let Ok(fewer) = all(&record[..cut.index(record.len())]) {
            prop_assert_eq!(&fewer[..], &effects[..fewer.len()]);
            prop_assert!(fewer.len() < effects.len());
        }
    }
}

#[test]
fn an_unknown_version_or_effect_is_named() {
    assert!(all(&[9]).unwrap_err().contains("version 9"));
    assert!(
        all(&[VERSION_CONNECTIONS, 18])
            .unwrap_err()
            .contains("effect 18")
    );
    assert!(
        all(&[VERSION_REQUESTS, 16])
            .unwrap_err()
            .contains("effect 16")
    );
    assert!(
        all(&[VERSION_ALLOCATED, 15])
            .unwrap_err()
            .contains("effect 15")
    );
    assert!(
        all(&[VERSION_CHECKPOINT, 14])
            .unwrap_err()
            .contains("effect 14")
    );
    assert!(all(&[VERSION_LOST, 10]).unwrap_err().contains("effect 10"));
    assert!(all(&[VERSION_CHUNKS, 9]).unwrap_err().contains("effect 9"));
    assert!(all(&[VERSION, 8]).unwrap_err().contains("effect 8"));
    assert!(all(&[VERSION, 99]).unwrap_err().contains("effect 99"));
    assert!(all(&[]).is_err());
}

#[test]
fn the_spelling_of_a_record_does_not_change() {
    let effects = [
        Effect::PutEntry {
            parent: 1,
            name: b"a",
            ino: 2,
        },
        Effect::Unmap {
            ino: 2,
            from: 3,
            to: u64::MAX,
        },
    ];
    let mut wanted = vec![
        1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, b'a',
    ];
    wanted.extend([5, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    wanted.extend([255; 8]);
    assert_eq!(record_of(&effects), wanted);
    let (ino, from, to) = (2, 3, u64::MAX);
    let mut wanted = vec![5, 14, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
    wanted.extend([255; 8]);
    assert_eq!(record_of(&[Effect::Allocate { ino, from, to }]), wanted);
    let done = Effect::Done {
        connection: 1,
        unique: 2,
        result: 3,
    };
    let mut wanted = vec![6, 15];
    (1..4_u64).for_each(|number| wanted.extend(number.to_le_bytes()));
    assert_eq!(record_of(&[done]), wanted);
    let effects = [Effect::Connection(1), Effect::Gone(2)];
    let mut wanted = vec![7, 16];
    wanted.extend(1_u64.to_le_bytes());
    wanted.push(17);
    wanted.extend(2_u64.to_le_bytes());
    assert_eq!(record_of(&effects), wanted);
    let cookies = vec![(b"a".into(), 300)];
    let mut wanted = vec![8, 18, 5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    wanted.extend([44, 1, 0, 0, 0, 0, 0, 0, 1, b'a']);
    assert_eq!(record_of(&[Effect::Cookies { ino: 5, cookies }]), wanted);
}

#[test]
fn a_cookie_of_more_than_63_bits_is_refused() {
    let cookies = vec![(b"a".into(), 1 << 63)];
    let record = record_of(&[Effect::Cookies { ino: 5, cookies }]);
    assert!(all(&record).unwrap_err().contains("cookie"));
}

#[test]
fn ranges_that_end_behind_all_offsets_are_refused() {
    let far = Sum {
        offset: u64::MAX - 1,
        length: 10,
        crc: 0,
    };
    let sums = Effect::Sums {
        segment: 1,
        sums: vec![far].into(),
    };
    let at = |offset| Staged::appended(1, offset);
    let effects = [
        sums,
        Effect::map(5, u64::MAX - 1, 10, at(0), 0),
        Effect::map(5, 0, 10, at(u64::MAX - 1), 0),
    ];
    for effect in effects {
        let mut record = start_record();
        encode(&effect, &mut record);
        let error = all(&record).expect_err("refused");
        assert!(error.contains("end behind every offset"), "{error}");
    }
}
