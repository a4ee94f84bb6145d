//! Whole requests, most of them sensible and many not, through the lane and into a real engine with
//! its journal.
//!
//! ```text
//! requests (generator) ── SEQPACKET pair in place of /dev/fuse ── Lane ── Engine ── journal and staging in a temporary directory
//!                                                                  └─ loader: a small base version, now and then an error
//! ```
//!
//! Each round is a world of its own, named by its seed. Even rounds send one request at a time, so
//! that a seed repeats them exactly; odd ones keep a window of requests outstanding on both device
//! threads. Checked throughout: no panic; one well-formed reply for each request that has one, and
//! no other; an inode that the kernel holds never vanishes; in a world with mapped owners no reply
//! has the stored owner; a listing whose entries are renamed under its reader matches a model,
//! entry by entry, and ends there. At the end of a round: refused stores through mappings are
//! remembered; requests that are still parked are answered when the lane is stopped; when
//! everything is forgotten and closed, the engine holds the inodes of its tree and no other; and a
//! second engine recovers exactly that tree from the journal.
//!
//! `COWFS_FUZZ_REQUESTS` (200,000) says how many requests, `COWFS_FUZZ_SEED` where to begin; with a
//! failure's seed and 1 request it repeats that round alone. Ten million, as they were once run
//! (overflow checked, optimised):
//!
//! ```text
//! COWFS_FUZZ_REQUESTS=10000000 TMPDIR=/dev/shm cargo test --release --config profile.release.overflow-checks=true \
//!     --config profile.release.debug-assertions=true -p cowfs-lane --test fuzz -- --nocapture
//! ```

mod kernel;
mod loader;
mod random;
mod requests;
mod stores;
mod tree;
mod world;

use std::sync::Mutex;

use random::Random;

/// Requests of one world: enough to fill directories and wear out segments, few enough to look at
/// afterwards.
const ROUND_REQUESTS: u64 = 20_000;
const DEFAULT_REQUESTS: u64 = 200_000;
const DEFAULT_SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// What the whole run may add to the memory of the process after its first rounds.
const GROWTH_MAX_BYTES: u64 = 256 << 20;
const WARM_ROUNDS: u64 = 4;

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn number(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else {
        return default;
    };
    let hexadecimal = text
        .strip_prefix("0x")
        .map(|digits| u64::from_str_radix(digits, 16));
    hexadecimal
        .unwrap_or_else(|| text.parse())
        .unwrap_or_else(|_| panic!("{name} is no number: {text}"))
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: u64 = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .expect("a number of pages");
    pages * 4096
}

#[test]
fn requests_of_all_kinds_leave_lane_and_engine_whole() {
    // The lane answers a panic with EIO; here it is a failure. Other threads' panics come through
    // here too.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.lock().unwrap().push(panic.to_string());
        report(panic);
    }));
    let requests = number("COWFS_FUZZ_REQUESTS", DEFAULT_REQUESTS);
    let mut seeds = Random::new(number("COWFS_FUZZ_SEED", DEFAULT_SEED));
    let (mut replies, mut successes, mut warm_bytes) = (0, 0, 0);
    for round in 0..requests.div_ceil(ROUND_REQUESTS) {
        let seed = if round == 0 {
            number("COWFS_FUZZ_SEED", DEFAULT_SEED)
        } else {
            seeds.next() & !1 | round & 1
        };
        println!("round {round}: seed {seed:#x}");
        let (more, of_them) = kernel::round(seed, ROUND_REQUESTS);
        (replies, successes) = (replies + more, successes + of_them);
        let panics = PANICS.lock().unwrap().clone();
        assert!(panics.is_empty(), "seed {seed:#x}: {panics:?}");
        if round == WARM_ROUNDS {
            warm_bytes = resident_bytes();
        }
        assert!(
            round <= WARM_ROUNDS || resident_bytes() < warm_bytes + GROWTH_MAX_BYTES,
            "memory grows: {} bytes after {round} rounds, {warm_bytes} after {WARM_ROUNDS}",
            resident_bytes()
        );
    }
    println!(
        "{replies} replies, {successes} of them no errors; {} bytes resident",
        resident_bytes()
    );
    assert!(
        successes > replies / 4,
        "requests that are all refused show little"
    );
}
