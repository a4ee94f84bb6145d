//! Appending, syncing and going on in the next layer, with the file system and processes that
//! really die.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use cowfs_journal::{Journal, MAX_PAYLOAD_BYTES, Scan, remove_through, scan};

const BOOT: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

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

#[test]
fn records_come_back_in_order_with_their_layers() {
    let dir = tempfile::tempdir().unwrap();
    let first = Journal::create(dir.path(), 4, BOOT).unwrap();
    assert_eq!((first.layer(), first.last_seq()), (4, 0));
    assert_eq!(first.append(b"one").unwrap(), 1);
    assert_eq!(first.append(b"").unwrap(), 2);
    let second = first.successor().unwrap();
    assert_eq!((second.layer(), second.last_seq()), (5, 2));
    assert_eq!(first.append(b"still the old layer").unwrap(), 3);
    assert_eq!(second.append(&[7; 100_000]).unwrap(), 4);
    assert_eq!(
        first.append(b"x").unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!((first.last_seq(), second.last_seq()), (3, 4));

    let found = scan(dir.path(), 3, BOOT).unwrap();
    assert_eq!(
        (
            found.cut_bytes,
            found.power_loss,
            found.records(),
            found.last_layer()
        ),
        (0, false, 4, Some(5))
    );
    assert_eq!(
        payloads(&found),
        [
            b"one".to_vec(),
            vec![],
            b"still the old layer".to_vec(),
            vec![7; 100_000]
        ]
    );
    assert_eq!(found.parts[1].records(), 1);
    assert_eq!(scan(dir.path(), 4, BOOT).unwrap().records(), 1);
    assert!(scan(dir.path(), 3, "another boot").unwrap().power_loss);
}

#[test]
fn an_unused_layer_in_between_passes_the_numbering_on() {
    let dir = tempfile::tempdir().unwrap();
    let first = Journal::create(dir.path(), 1, BOOT).unwrap();
    first.append(b"a").unwrap();
    let second = first.successor().unwrap();
    let third = second.successor().unwrap();
    assert_eq!(third.append(b"b").unwrap(), 2);
    assert!(second.append(b"late").is_err() && first.append(b"late").is_err());
    third.sync(2).unwrap();
    assert_eq!(payloads(&scan(dir.path(), 0, BOOT).unwrap()), [b"a", b"b"]);
}

#[test]
fn an_unused_successor_is_as_synced_as_what_is_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let first = Journal::create(dir.path(), 1, BOOT).unwrap();
    assert!(first.is_synced());
    let sequence = first.append(b"1").unwrap();
    let second = first.successor().unwrap();
    assert!(!second.is_synced());
    second.sync(sequence).unwrap();
    assert!(second.is_synced(), "there is nothing else");
    let third = second.successor().unwrap();
    assert!(third.is_synced());
    third.append(b"2").unwrap();
    assert!(!third.is_synced());
    third.sync(third.last_seq()).unwrap();
    assert!(third.is_synced());
    third.append(b"3").unwrap();
    let fourth = third.successor().unwrap();
    assert!(!fourth.is_synced());
    fourth.remove_through(3).unwrap();
    assert!(fourth.is_synced(), "what is removed need not be");
}

#[test]
fn a_layer_has_one_journal_and_directories_that_do_not_exist_have_none() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("a/b");
    assert_eq!(scan(&deep, 0, BOOT).unwrap().last_layer(), None);
    remove_through(&deep, 9).unwrap();
    Journal::create(&deep, 1, BOOT)
        .unwrap()
        .append(b"x")
        .unwrap();
    assert_eq!(
        Journal::create(&deep, 1, BOOT).err().unwrap().kind(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(
        Journal::create(&deep, 2, &"x".repeat(65))
            .err()
            .unwrap()
            .kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(scan(&deep, 0, BOOT).unwrap().records(), 1);
}

#[test]
fn too_long_a_record_is_refused_and_nothing_changes() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::create(dir.path(), 1, BOOT).unwrap();
    let size = journal.size_bytes();
    assert_eq!(
        journal
            .append(&vec![0; MAX_PAYLOAD_BYTES + 1])
            .unwrap_err()
            .kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        (journal.size_bytes(), journal.append(b"x").unwrap()),
        (size, 1)
    );
}

#[test]
fn layers_are_removed_when_the_store_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(dir.path(), 1, BOOT).unwrap();
    for payload in [b"1", b"2", b"3"] {
        journal.append(payload).unwrap();
        journal = journal.successor().unwrap();
    }
    journal.append(b"4").unwrap();
    assert!(journal.remove_through(4).is_err());
    journal.remove_through(2).unwrap();
    journal.sync(4).unwrap();
    assert_eq!(payloads(&scan(dir.path(), 2, BOOT).unwrap()), [b"3", b"4"]);
    remove_through(dir.path(), 4).unwrap();
    assert_eq!(scan(dir.path(), 4, BOOT).unwrap().last_layer(), None);
}

#[test]
fn threads_append_and_sync_without_gaps() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::create(dir.path(), 1, BOOT).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let journal = journal.clone();
            scope.spawn(move || {
                for i in 0..200u8 {
                    let sequence = journal.append(&[thread, i]).unwrap();
                    if i % 20 == 0 {
                        journal.sync(sequence).unwrap();
                    }
                }
            });
        }
    });
    let found = payloads(&scan(dir.path(), 0, BOOT).unwrap());
    assert_eq!(found.len(), 1600);
    for thread in 0..8u8 {
        let own: Vec<u8> = found
            .iter()
            .filter(|p| p[0] == thread)
            .map(|p| p[1])
            .collect();
        assert_eq!(own, (0..200u8).collect::<Vec<_>>());
    }
}

/// Runs the test `name` of this binary in a process of its own, with `dir` in the environment.
fn child(name: &str, dir: &Path, before: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            &format!("{before} exec \"$0\" --exact {name} --ignored --nocapture"),
        ])
        .arg(std::env::current_exe().unwrap())
        .env("JOURNAL_DIR", dir)
        .stdout(Stdio::piped());
    command
}

#[test]
#[ignore = "the child process of what_was_acknowledged_survives_kill_9"]
fn append_until_killed() {
    let journal =
        Journal::create(Path::new(&std::env::var("JOURNAL_DIR").unwrap()), 1, BOOT).unwrap();
    let mut journal = journal;
    for i in 0u64.. {
        let sequence = journal
            .append(&vec![i as u8; (i * 37 % 5000) as usize])
            .unwrap();
        println!("acknowledged {sequence}");
        if i % 500 == 499 {
            journal = journal.successor().unwrap();
        }
    }
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    for round in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let mut process = child("append_until_killed", dir.path(), "")
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        let mut acknowledged = 0;
        let mut line = String::new();
        while acknowledged < 700 * (round + 1) && lines.read_line(&mut line).unwrap() > 0 {
            if let Some(number) = line.trim().strip_prefix("acknowledged ") {
                acknowledged = number.parse::<u64>().unwrap();
            }
            line.clear();
        }
        process.kill().unwrap();
        process.wait().unwrap();
        let found = payloads(&scan(dir.path(), 0, BOOT).unwrap());
        assert!(
            found.len() as u64 >= acknowledged,
            "{} of {acknowledged}",
            found.len()
        );
        for (i, payload) in found.iter().enumerate() {
            assert_eq!(*payload, vec![i as u8; i * 37 % 5000]);
        }
    }
}

#[test]
#[ignore = "the child process of a_failed_append_leaves_no_trace"]
fn append_until_the_file_is_full() {
    let journal =
        Journal::create(Path::new(&std::env::var("JOURNAL_DIR").unwrap()), 1, BOOT).unwrap();
    let failed = (0..100)
        .map(|_| journal.append(&[1; 3000]))
        .position(|result| result.is_err())
        .unwrap();
    assert!(failed > 0);
    let size = journal.size_bytes();
    assert!(journal.append(&[2; 3000]).is_err());
    assert_eq!(journal.size_bytes(), size);
    assert_eq!(journal.append(b"small").unwrap(), failed as u64 + 1);
    journal.sync(failed as u64 + 1).unwrap();
    println!("wrote {}", failed + 1);
}

#[test]
fn a_failed_append_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    // A limit on the file's size gives partial writes, as a full disk does.
    let mut process = child(
        "append_until_the_file_is_full",
        dir.path(),
        "trap '' XFSZ; ulimit -f 40;",
    )
    .spawn()
    .unwrap();
    let mut output = String::new();
    process
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut output)
        .unwrap();
    assert!(process.wait().unwrap().success(), "{output}");
    let found = scan(dir.path(), 0, BOOT).unwrap();
    assert_eq!(found.cut_bytes, 0);
    assert_eq!(payloads(&found).last().unwrap(), b"small");
    assert!(output.contains(&format!("wrote {}", found.records())));
}
