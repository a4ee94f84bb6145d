//! A run returns exactly the blobs of the pack, however its bytes arrive, and never other bytes,
//! even for damaged input or a wrong index.

use cowfs_blob::{Blob, CODEC_RAW, CODEC_ZSTD, MAX_RAW_BYTES, Opener, Run, Stored, compressed};
use proptest::prelude::*;

/// A pack of these blobs, some bytes between them, and where they lie.
fn pack(raws: &[Vec<u8>], gap: usize, key: Option<[u8; 32]>) -> (Vec<u8>, Vec<Stored>) {
    let (mut bytes, mut places) = (Vec::new(), Vec::new());
    for raw in raws {
        let blob = Blob::of(raw, key.as_ref(), true);
        let codec = blob.stored.as_ref().map_or(CODEC_RAW, |_| CODEC_ZSTD);
        let stored = blob.stored.unwrap_or_else(|| raw.clone());
        places.push(Stored {
            offset: bytes.len() as u64,
            stored_length: stored.len() as u32,
            raw_length: raw.len() as u32,
            codec,
            name: blob.name,
        });
        bytes.extend(stored);
        bytes.extend(std::iter::repeat_n(0xee, gap));
    }
    (bytes, places)
}

/// What a run keeps of bytes that arrive in pieces of these lengths, the last one again and again.
fn kept(
    bytes: &[u8],
    places: &[Stored],
    key: Option<[u8; 32]>,
    pieces: &[usize],
) -> (Vec<Vec<u8>>, Run) {
    let mut run = Run::new(0, places.to_vec(), key);
    let (mut found, mut at) = (Vec::new(), 0);
    for length in pieces
        .iter()
        .chain(std::iter::repeat(pieces.last().unwrap()))
    {
        let piece = &bytes[at..bytes.len().min(at + length)];
        run.take(piece, |name, raw| {
            assert!(places.iter().any(|place| place.name == *name));
            found.push(raw.to_vec());
        });
        at += piece.len();
        if at == bytes.len() {
            return (found, run);
        }
    }
    unreachable!("pieces have no end");
}

fn raws() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let noise = prop::collection::vec(any::<u8>(), 1..200);
    let text = (any::<u8>(), 1_usize..5000).prop_map(|(byte, length)| vec![byte; length]);
    prop::collection::vec(prop_oneof![noise, text], 1..12)
}

proptest! {
    #[test]
    fn all_of_them_come_however_the_bytes_arrive(
        raws in raws(),
        gap in 0_usize..20,
        key: Option<[u8; 32]>,
        pieces in prop::collection::vec(1_usize..3000, 1..8),
    ) {
        let (bytes, places) = pack(&raws, gap, key);
        let (found, run) = kept(&bytes, &places, key, &pieces);
        prop_assert_eq!(found, raws);
        prop_assert_eq!((run.settled(), run.failed()), (places.len(), &[][..]));
    }

    #[test]
    fn a_changed_byte_costs_its_blob_alone(
        raws in raws(),
        at: prop::sample::Index,
        with in 1_u8..,
        pieces in prop::collection::vec(1_usize..3000, 1..8),
    ) {
        let (mut bytes, places) = pack(&raws, 0, None);
        let at = at.index(bytes.len());
        bytes[at] ^= with;
        let hit = places.iter().rposition(|place| place.offset <= at as u64).unwrap();
        let (found, run) = kept(&bytes, &places, None, &pieces);
        // Not all bits of a frame's header mean anything.
        if run.failed().is_empty() {
            prop_assert_eq!(found, raws);
        } else {
            prop_assert_eq!(run.failed(), &[hit][..]);
            let mut others = raws;
            others.remove(hit);
            prop_assert_eq!(found, others);
        }
    }

    #[test]
    fn no_index_and_no_bytes_bring_anything_else(
        bytes in prop::collection::vec(any::<u8>(), 1..3000),
        fields in prop::collection::vec((any::<u64>(), 0_u64..4000, any::<u32>(), 0_u32..200, 0_u32..4, any::<bool>()), 1..20),
        pieces in prop::collection::vec(1_usize..500, 1..8),
    ) {
        let places: Vec<Stored> = fields
            .into_iter()
            .map(|(far, near, long, short, codec, is_near)| Stored {
                offset: if is_near { near } else { far },
                stored_length: if is_near { short } else { long },
                raw_length: if is_near { short } else { long },
                codec,
                name: [7; 32],
            })
            .collect();
        let (found, run) = kept(&bytes, &places, None, &pieces);
        prop_assert!(found.is_empty());
        prop_assert_eq!(run.failed().len(), run.settled());
    }
}

#[test]
fn a_body_that_ends_early_settles_what_is_whole() {
    let raws: Vec<Vec<u8>> = (1..5).map(|byte| vec![byte; 20]).collect();
    let (bytes, places) = pack(&raws, 0, None);
    let (found, run) = kept(&bytes[..bytes.len() - 1], &places, None, &[7]);
    assert_eq!((found, run.settled()), (raws[..3].to_vec(), 3));
    assert!(run.failed().is_empty());
}

#[test]
fn of_two_that_overlap_none_is_wrong() {
    let raws = vec![vec![1; 20], vec![2; 20]];
    let (bytes, places) = pack(&raws, 0, None);
    let doubled = [places[0], places[0], places[1]];
    for length in [3, 100] {
        let (found, run) = kept(&bytes, &doubled, None, &[length]);
        assert_eq!(run.settled(), 3);
        assert_eq!(found.len() + run.failed().len(), 3);
        assert!(found.first() == Some(&raws[0]) && found.last() == Some(&raws[1]));
    }
}

#[test]
fn a_frame_is_one_and_says_what_it_holds() {
    let raw = vec![5; 10_000];
    let (bytes, places) = pack(std::slice::from_ref(&raw), 0, None);
    let place = places[0];
    let mut opener = Opener::new(None);
    assert_eq!(opener.open(&bytes, &place), Some(&raw[..]));
    let mut refused = |stored: &[u8], change: &dyn Fn(&mut Stored)| {
        let mut blob = Stored {
            stored_length: stored.len() as u32,
            ..place
        };
        change(&mut blob);
        assert_eq!(opener.open(stored, &blob), None);
    };
    refused(&bytes, &|blob| blob.raw_length -= 1);
    refused(&bytes, &|blob| blob.raw_length += 1);
    refused(&bytes, &|blob| blob.raw_length = MAX_RAW_BYTES);
    refused(&bytes, &|blob| blob.raw_length = u32::MAX);
    refused(&bytes, &|blob| blob.codec = CODEC_RAW);
    refused(&bytes, &|blob| blob.codec = 2);
    refused(&bytes, &|blob| blob.stored_length += 1);
    refused(&bytes, &|blob| blob.name[0] ^= 1);
    refused(&bytes[..bytes.len() - 1], &|_| ());
    refused(&[&bytes[..], &[0]].concat(), &|_| ()); // bytes behind the frame
    refused(&[&bytes[..], &bytes[..]].concat(), &|_| ()); // two frames
    refused(&[], &|_| ());
    let keyed = Opener::new(Some([1; 32])).open(&bytes, &place).is_none();
    assert!(keyed, "another store's name");
}

#[test]
fn it_is_compressed_where_that_saves_enough() {
    let noise = noise(100_000);
    assert_eq!(compressed(&noise), None);
    let with_zeros = |share: usize| {
        let mut raw = noise.clone();
        raw[..noise.len() * share / 100].fill(0);
        compressed(&raw)
    };
    assert_eq!(with_zeros(2), None);
    let stored = with_zeros(5).unwrap();
    assert!(stored.len() <= noise.len() * 97 / 100);
    assert_eq!(compressed(&[0; 31]), None);
    assert!(compressed(&[0; 32]).is_none_or(|stored| stored.len() <= 31));
    // A large one, then a small one: nothing of the first is left.
    let large = compressed(&vec![1; MAX_RAW_BYTES as usize]).unwrap();
    assert!(large.len() < 10_000);
    let (bytes, places) = pack(&[b"small ".repeat(100)], 0, None);
    assert!(Opener::new(None).open(&bytes, &places[0]).is_some());
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn a_long_blob_is_compressed_wherever_an_eighth_of_it_can_be() {
    const LENGTH: usize = 1 << 20;
    assert!(compressed(&noise(LENGTH)).is_none());
    let text = LENGTH / 7 + (4 << 10);
    for at in (0..=LENGTH - text).step_by(10_007) {
        let mut raw = noise(LENGTH);
        raw[at..at + text].fill(b'a');
        let stored = compressed(&raw).expect("an eighth compresses to nothing");
        assert!(stored.len() < LENGTH - text + (4 << 10), "{at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blobs_that_come_in_both_ways_have_their_own_names(
        lengths in prop::collection::vec(1..400_usize, 1..6),
        steps in prop::collection::vec((any::<bool>(), 1..500_usize), 1..30),
    ) {
        let raws: Vec<Vec<u8>> = lengths
            .iter()
            .enumerate()
            .map(|(number, length)| vec![number as u8; *length])
            .collect();
        let (bytes, places) = pack(&raws, 3, None);
        let mut run = Run::new(0, places.clone(), None);
        let mut at = 0;
        let mut keep = |name: &[u8; 32], raw: &[u8]| {
            let number = usize::from(raw[0]);
            assert_eq!((raw, name), (&raws[number][..], &places[number].name));
        };
        for (is_next, length) in steps {
            if is_next {
                if let Some(place) = places.get(run.settled()) {
                    let from = place.offset as usize;
                    run.take_next(&bytes[from..][..place.stored_length as usize], &mut keep);
                }
            } else {
                let piece = &bytes[at..bytes.len().min(at + length)];
                at += piece.len();
                run.take(piece, &mut keep);
            }
        }
    }
}
