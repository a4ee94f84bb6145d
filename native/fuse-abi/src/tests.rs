use cowfs_base::Attr;
use proptest::prelude::*;

use super::*;

fn request(number: u32, body: &[u8]) -> Vec<u8> {
    let mut message = ((HEADER_BYTES + body.len()) as u32).to_le_bytes().to_vec();
    message.extend_from_slice(&number.to_le_bytes());
    message.extend_from_slice(&7u64.to_le_bytes());
    message.resize(HEADER_BYTES, 0);
    message.extend_from_slice(body);
    message
}

#[test]
fn a_write_is_taken_apart() {
    let mut body = Vec::new();
    for number in [3u64, 4096] {
        body.extend_from_slice(&number.to_le_bytes());
    }
    for number in [5u32, WRITE_KILL_SUIDGID] {
        body.extend_from_slice(&number.to_le_bytes());
    }
    body.extend_from_slice(&[0; 16]);
    body.extend_from_slice(b"hello");
    let message = request(opcode::WRITE, &body);
    let (header, body) = Header::parse(&message).unwrap();
    assert_eq!((header.unique, header.opcode), (7, opcode::WRITE));
    let expected = IoIn {
        fh: 3,
        offset: 4096,
        size: 5,
        flags: WRITE_KILL_SUIDGID,
    };
    assert_eq!(
        Operation::parse(header.opcode, body),
        Some(Operation::Write(expected, b"hello"))
    );
    assert_eq!(
        Operation::parse(header.opcode, &body[..body.len() - 1]),
        None
    );
}

#[test]
fn two_names_need_two_ends() {
    let mut body = 9u64.to_le_bytes().to_vec();
    body.extend_from_slice(b"old\0new\0");
    let renamed = Operation::Rename {
        new_parent: 9,
        flags: 0,
        name: b"old",
        new_name: b"new",
    };
    assert_eq!(Operation::parse(opcode::RENAME, &body), Some(renamed));
    assert_eq!(
        Operation::parse(opcode::RENAME, &body[..body.len() - 1]),
        None
    );
}

#[test]
fn extensions_are_not_part_of_the_body() {
    let mut message = request(opcode::UNLINK, b"name\0\0\0\0extended");
    message[36..38].copy_from_slice(&1u16.to_le_bytes());
    let (_, body) = Header::parse(&message).unwrap();
    assert_eq!(body, b"name\0\0\0\0");
    message[36..38].copy_from_slice(&u16::MAX.to_le_bytes());
    assert_eq!(Header::parse(&message), None);
}

#[test]
fn replies_have_the_sizes_of_the_protocol() {
    let attr = Attr {
        ino: 2,
        ..Attr::default()
    };
    let life = Terms {
        generation: 0,
        entry_ns: 1_500_000_000,
        attr_ns: 60_000_000_000,
    };
    assert_eq!(
        Reply::new(1).entry(attr.ino, &attr, life).finish(0).len(),
        16 + 128
    );
    assert_eq!(
        Reply::new(1)
            .entry(attr.ino, &attr, life)
            .opened(1, 0)
            .finish(0)
            .len(),
        16 + 128 + 16
    );
    assert_eq!(Reply::new(1).attributes(&attr, 1).finish(0).len(), 16 + 104);
    let found = Statistics {
        blocks: 1,
        blocks_free: 1,
        files: 1,
        files_free: 1,
        name_max: 255,
    };
    assert_eq!(Reply::new(1).statistics(&found).finish(0).len(), 16 + 80);
    let init = InitReply {
        minor: MINOR,
        max_readahead: 1,
        flags: 1 << 40,
        max_background: 2,
        congestion_threshold: 3,
        max_write: 4,
        max_pages: 5,
        max_stack_depth: 1,
    };
    assert_eq!(Reply::new(1).init(&init).finish(0).len(), 16 + 64);
    assert_eq!(
        Reply::error(1, 2).finish(0),
        [16, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0]
    );
}

#[test]
fn a_listing_keeps_to_its_room() {
    let mut listing = Listing::new(1, 400);
    let life = Terms::default();
    let mut added = 0;
    for ino in 2..10 {
        let attr = Attr {
            ino,
            ..Attr::default()
        };
        added += u64::from(listing.add_plus(b"a name", ino, ino, &attr, life));
    }
    let message = listing.finish();
    assert!(message.len() <= 16 + 400);
    assert_eq!(message[..4], (message.len() as u32).to_le_bytes());
    let entries = message[16..].chunks_exact(128 + 24 + "a name".len().next_multiple_of(8));
    let nodes = entries.map(|entry| u64::from_le_bytes(*entry.first_chunk().unwrap()));
    assert_eq!(
        nodes.collect::<Vec<_>>(),
        (2..2 + added).collect::<Vec<_>>()
    );
}

#[test]
fn times_before_the_epoch_keep_their_nanoseconds() {
    let attr = Attr {
        ino: 1,
        mtime_ns: -1,
        ..Attr::default()
    };
    let message = Reply::new(1).attributes(&attr, 0).finish(0);
    let attr_at = 16 + 16;
    assert_eq!(message[attr_at + 32..attr_at + 40], (-1i64).to_le_bytes());
    assert_eq!(
        message[attr_at + 52..attr_at + 56],
        999_999_999u32.to_le_bytes()
    );
}

fn look_at(message: &[u8]) {
    if let Some((header, body)) = Header::parse(message)
        && let Some(Operation::BatchForget(forgets)) = Operation::parse(header.opcode, body)
    {
        assert!(forgets.count() * 16 <= body.len());
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(mut message in proptest::collection::vec(any::<u8>(), 0..300), number in 0u32..60) {
        look_at(&message);
        if message.len() >= HEADER_BYTES {
            let length = message.len() as u32;
            message[..4].copy_from_slice(&length.to_le_bytes());
            message[4..8].copy_from_slice(&number.to_le_bytes());
            (message[36], message[37]) = (message[36] & 7, 0);
            look_at(&message);
        }
    }
}

/// An entry as the kernel fills it: a WRITE's header, its fixed part, its data elsewhere.
#[test]
fn a_request_in_a_ring_is_put_together_and_answered() {
    let mut header = [0u8; ring::RING_HEADER_BYTES];
    header[..4].copy_from_slice(&(HEADER_BYTES as u32 + 40 + 5).to_le_bytes());
    header[4..8].copy_from_slice(&opcode::WRITE.to_le_bytes());
    header[8..16].copy_from_slice(&77u64.to_le_bytes());
    header[128..136].copy_from_slice(&3u64.to_le_bytes());
    header[144..148].copy_from_slice(&5u32.to_le_bytes());
    header[264..272].copy_from_slice(&77u64.to_le_bytes());
    header[272..276].copy_from_slice(&5u32.to_le_bytes());
    let request = ring::RingRequest::parse(&header).unwrap();
    assert_eq!((request.commit_id, request.payload_bytes), (77, 5));

    let mut message = vec![0; request.head_bytes()];
    request.copy_head(&header, &mut message);
    message.extend_from_slice(b"hello");
    let (parsed, body) = Header::parse(&message).unwrap();
    assert_eq!((parsed.opcode, parsed.unique), (opcode::WRITE, 77));
    let Some(Operation::Write(io, data)) = Operation::parse(parsed.opcode, body) else {
        panic!("not a write");
    };
    assert_eq!((io.fh, data), (3, &b"hello"[..]));

    let reply = Reply::new(77).size(5).finish(0);
    let (head, body) = reply.split_first_chunk().unwrap();
    ring::put_reply(&mut header, head, body.len() as u32);
    assert_eq!(header[..16], reply[..16]);
    assert_eq!(header[272..276], 8u32.to_le_bytes());
    assert_eq!(ring::commit_id(&header), 77);
    let command = ring::command(2, 77);
    assert_eq!((command[8], command[16], command[0]), (77, 2, 0));
}

#[test]
fn lengths_of_a_ring_entry_that_contradict_each_other_are_refused() {
    for (length, payload) in [(0u32, 0u32), (39, 0), (40, 1), (200, 10), (40, u32::MAX)] {
        let mut header = [0xff; ring::RING_HEADER_BYTES];
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[272..276].copy_from_slice(&payload.to_le_bytes());
        assert_eq!(ring::RingRequest::parse(&header), None);
    }
}

/// Ten million random and mutated requests: `cargo test --release -p cowfs-fuse-abi -- --ignored`.
#[test]
#[ignore = "a minute in release mode, an hour without"]
fn ten_million_requests_without_a_panic() {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    println!("seed {seed:#x}");
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut message = vec![0u8; 256];
    for round in 0..10_000_000u64 {
        let length = (random() % 256) as usize;
        message.resize(length, 0);
        for _ in 0..1 + round % 16 {
            let (at, value) = (random() as usize, random() as u8);
            if let Some(byte) = (length > 0).then(|| &mut message[at % length]) {
                *byte = value;
            }
        }
        if length >= HEADER_BYTES {
            message[..4].copy_from_slice(&(length as u32).to_le_bytes());
            message[4..8].copy_from_slice(&((random() % 60) as u32).to_le_bytes());
            message[36..38].copy_from_slice(&[(random() % 3) as u8, 0]);
        }
        look_at(&message);
    }
}
