//! Journals with flipped bits, cut and overwritten ends, against an oracle that knows which records
//! are still whole.

use std::fs;
use std::path::{Path, PathBuf};

use cowfs_journal::{Journal, JournalError, Scan, scan};
use proptest::prelude::*;

const BOOT: &str = "first boot";
const HEADER_BYTES: usize = 128;
const RECORD_BYTES: usize = 32;

/// The place of a record, and the synced number that it states.
#[derive(Debug, Clone)]
struct Written {
    file: usize,
    range: std::ops::Range<usize>,
    synced: u64,
    payload: Vec<u8>,
}

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<u8>),
    Sync,
    Freeze,
}

#[derive(Debug, Clone)]
enum Damage {
    Flip {
        file: prop::sample::Index,
        bit: prop::sample::Index,
    },
    Truncate {
        file: prop::sample::Index,
        at: prop::sample::Index,
    },
    ZeroTail {
        file: prop::sample::Index,
        at: prop::sample::Index,
    },
    Zero {
        file: prop::sample::Index,
        at: prop::sample::Index,
        length: usize,
    },
    Garbage {
        file: prop::sample::Index,
        bytes: Vec<u8>,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..60).prop_map(Step::Append),
        2 => Just(Step::Sync),
        1 => Just(Step::Freeze),
    ];
    prop::collection::vec(step, 1..40)
}

fn damage() -> impl Strategy<Value = Damage> {
    use prop::sample::Index;
    prop_oneof![
        (any::<Index>(), any::<Index>()).prop_map(|(file, bit)| Damage::Flip { file, bit }),
        (any::<Index>(), any::<Index>()).prop_map(|(file, at)| Damage::Truncate { file, at }),
        (any::<Index>(), any::<Index>()).prop_map(|(file, at)| Damage::ZeroTail { file, at }),
        (any::<Index>(), any::<Index>(), 1..200usize).prop_map(|(file, at, length)| Damage::Zero {
            file,
            at,
            length
        }),
        (any::<Index>(), prop::collection::vec(any::<u8>(), 1..200))
            .prop_map(|(file, bytes)| Damage::Garbage { file, bytes }),
    ]
}

fn write(dir: &Path, steps: &[Step]) -> (Vec<PathBuf>, Vec<Written>) {
    let mut journal = Journal::create(dir, 1, BOOT).unwrap();
    let (mut file, mut synced, mut written) = (0, 0, Vec::new());
    for step in steps {
        match step {
            Step::Append(payload) => {
                let start = journal.size_bytes() as usize;
                journal.append(payload).unwrap();
                let range = start..start + RECORD_BYTES + payload.len();
                written.push(Written {
                    file,
                    range,
                    synced,
                    payload: payload.clone(),
                });
            }
            Step::Sync => {
                journal.sync(journal.last_seq()).unwrap();
                synced = journal.last_seq();
            }
            Step::Freeze => {
                journal = journal.successor().unwrap();
                file += 1;
            }
        }
    }
    let files = (0..=file)
        .map(|index| dir.join(format!("{:016x}.log", index + 1)))
        .collect();
    (files, written)
}

fn apply(files: &[PathBuf], damage: &Damage) {
    let (Damage::Flip { file, .. }
    | Damage::Truncate { file, .. }
    | Damage::ZeroTail { file, .. }
    | Damage::Zero { file, .. }
    | Damage::Garbage { file, .. }) = damage;
    let path = &files[file.index(files.len())];
    let mut bytes = fs::read(path).unwrap();
    if bytes.is_empty() {
        return;
    }
    match damage {
        Damage::Flip { bit, .. } => {
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        Damage::Truncate { at, .. } => bytes.truncate(at.index(bytes.len() + 1)),
        Damage::ZeroTail { at, .. } => {
            let at = at.index(bytes.len() + 1);
            bytes[at..].fill(0);
            bytes.extend_from_slice(&[0; 500]);
        }
        Damage::Zero { at, length, .. } => {
            let at = at.index(bytes.len());
            let end = bytes.len().min(at + length);
            bytes[at..end].fill(0);
        }
        Damage::Garbage { bytes: tail, .. } => bytes.extend_from_slice(tail),
    }
    fs::write(path, bytes).unwrap();
}

fn payloads(found: &Scan) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for part in &found.parts {
        let mut payloads = part.payloads().unwrap();
        while let Some(payload) = payloads.read().unwrap() {
            all.push(payload.to_vec());
        }
    }
    all
}

/// How many records must come back; None: damage must be reported.
fn expected(
    before: &[Vec<u8>],
    after: &[Vec<u8>],
    written: &[Written],
    power_loss: bool,
) -> Option<usize> {
    if before
        .iter()
        .zip(after)
        .any(|(b, a)| a.get(..HEADER_BYTES) != Some(&b[..HEADER_BYTES]))
    {
        return None;
    }
    let whole = |record: &Written| {
        after[record.file].get(record.range.clone())
            == Some(&before[record.file][record.range.clone()])
    };
    let trailing = before
        .iter()
        .zip(after)
        .position(|(b, a)| a.len() > b.len());
    // Bytes behind the end of a file are a failure in front of the next file's first record.
    let failed = written
        .iter()
        .position(|record| !whole(record) || trailing.is_some_and(|file| record.file > file))
        .unwrap_or(written.len());
    let lost = failed as u64 + 1;
    let proof = written[failed..]
        .iter()
        .any(|record| whole(record) && (!power_loss || record.synced >= lost));
    (!proof).then_some(failed)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(500), // more with PROPTEST_CASES
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn damage_is_cut_or_reported_as_the_rules_say(
        steps in steps(),
        damages in prop::collection::vec(damage(), 0..4),
        power_loss in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (files, written) = write(dir.path(), &steps);
        let read = || files.iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>();
        let before = read();
        for damage in &damages {
            apply(&files, damage);
        }
        let after = read();
        let boot_id = if power_loss { "second boot" } else { BOOT };
        let result = scan(dir.path(), 0, boot_id);
        match (expected(&before, &after, &written, power_loss), result) {
            (Some(count), Ok(found)) => {
                let payloads = payloads(&found);
                let should: Vec<_> = written[..count].iter().map(|record| record.payload.clone()).collect();
                prop_assert_eq!(payloads, should);
                let cut: usize = after.iter().map(Vec::len).sum::<usize>() - read().iter().map(Vec::len).sum::<usize>();
                prop_assert_eq!(found.cut_bytes, cut as u64);
                let again = scan(dir.path(), 0, boot_id).unwrap();
                prop_assert_eq!((again.cut_bytes, again.records()), (0, count as u64));
            }
            (None, Err(JournalError::Corrupt { .. })) => prop_assert_eq!(read(), after, "a refused journal was changed"),
            (should, got) => prop_assert!(false, "expected {:?}, got {:?}", should, got),
        }
    }

    #[test]
    fn any_bytes_at_all_never_panic(files in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 1..3), keep in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        let first = Journal::create(dir.path(), 1, BOOT).unwrap();
        first.append(b"x").unwrap();
        for (index, bytes) in files.iter().enumerate() {
            let path = dir.path().join(format!("{:016x}.log", index + 1));
            let mut all = if keep && index == 0 { fs::read(&path).unwrap() } else { Vec::new() };
            all.extend_from_slice(bytes);
            fs::write(&path, all).unwrap();
        }
        let _ = scan(dir.path(), 0, BOOT);
        let _ = scan(dir.path(), 0, "second boot");
    }
}

#[test]
fn a_missing_layer_is_reported() {
    for missing in 1..=2 {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::create(dir.path(), 1, BOOT).unwrap();
        journal.append(b"a").unwrap();
        let journal = journal.successor().unwrap();
        journal.append(b"b").unwrap();
        journal.successor().unwrap().append(b"c").unwrap();
        fs::remove_file(dir.path().join(format!("{missing:016x}.log"))).unwrap();
        let error = scan(dir.path(), 0, BOOT).unwrap_err();
        assert!(
            error
                .to_string()
                .contains(&format!("layer {missing} is missing")),
            "{error}"
        );
    }
}

#[test]
fn a_layer_that_lost_all_its_records_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::create(dir.path(), 1, BOOT).unwrap();
    for _ in 0..10 {
        journal.append(b"lost").unwrap();
    }
    journal.sync(10).unwrap();
    journal.successor().unwrap().append(b"behind").unwrap();
    let path = dir.path().join(format!("{:016x}.log", 1));
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(HEADER_BYTES as u64).unwrap();
    for boot_id in [BOOT, "second boot"] {
        let result = scan(dir.path(), 0, boot_id);
        assert!(
            matches!(result, Err(JournalError::Corrupt { .. })),
            "{result:?}"
        );
    }
}

#[test]
fn a_new_chain_stands_on_a_durable_one() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::create(dir.path(), 1, BOOT).unwrap();
    journal.append(b"lost in the power cut").unwrap();
    let path = dir.path().join(format!("{:016x}.log", 1));
    let length = fs::metadata(&path).unwrap().len();
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(length - 1)
        .unwrap();
    assert_eq!(scan(dir.path(), 0, "second boot").unwrap().records(), 0);

    let journal = Journal::create(dir.path(), 2, "second boot").unwrap();
    journal.append(b"kept").unwrap();
    let found = scan(dir.path(), 0, "third boot").unwrap();
    assert_eq!((found.records(), found.cut_bytes), (1, 0));
    fs::write(&path, [&fs::read(&path).unwrap()[..], b"more"].concat()).unwrap();
    assert!(matches!(
        scan(dir.path(), 0, "third boot"),
        Err(JournalError::Corrupt { .. })
    ));
}

#[test]
fn a_payload_that_looks_like_a_record_is_none() {
    let source = tempfile::tempdir().unwrap();
    let journal = Journal::create(source.path(), 1, BOOT).unwrap();
    for _ in 0..5 {
        journal.append(b"forged").unwrap();
    }
    let forged = fs::read(source.path().join(format!("{:016x}.log", 1))).unwrap();

    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::create(dir.path(), 1, BOOT).unwrap();
    journal.append(b"true").unwrap();
    journal.append(&forged).unwrap();
    let path = dir.path().join(format!("{:016x}.log", 1));
    let length = fs::metadata(&path).unwrap().len();
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(length - 1)
        .unwrap();
    let found = scan(dir.path(), 0, BOOT).unwrap();
    assert_eq!(
        (found.records(), found.cut_bytes),
        (1, RECORD_BYTES as u64 + forged.len() as u64 - 1)
    );
}

#[test]
fn an_unknown_format_is_named() {
    let dir = tempfile::tempdir().unwrap();
    Journal::create(dir.path(), 1, BOOT).unwrap();
    let path = dir.path().join(format!("{:016x}.log", 1));
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 9;
    bytes[12..16].fill(0);
    let crc = crc32c::crc32c(&bytes[..HEADER_BYTES]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let error = scan(dir.path(), 0, BOOT).unwrap_err();
    assert!(matches!(
        error,
        JournalError::UnsupportedFormat { format: 9, .. }
    ));
    assert!(error.to_string().contains("format 9"));
}

#[test]
fn a_layer_at_the_end_of_the_numbers_is_damage() {
    for layer in [u64::MAX, u64::MAX - 1] {
        let dir = tempfile::tempdir().unwrap();
        drop(Journal::create(dir.path(), layer, "boot").unwrap());
        let scanned = scan(dir.path(), layer - 1, "boot");
        let error = scanned
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(error.contains("no layer can follow"), "{error}");
    }
}
