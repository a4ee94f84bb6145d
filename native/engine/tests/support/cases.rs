//! Runs a property on random cases, each from a seed of its own, so that a failed case can be run
//! again.
//!
//! `COWFS_MODEL_CASES` says how many (for a long run by hand), `COWFS_MODEL_SEED` with which seed
//! to begin; case n has seed first + n. A failure names its seed and shows the smallest case that
//! still fails. At the end the seed and the operations that were counted are printed (`--nocapture`
//! shows it): a kind that hardly ever does something proves nothing.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Mutex, PoisonError};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Runs the operations in this order: one in sixteen is left out, and one in eight is followed by
/// another.
pub fn story<T: Debug + Clone + 'static>(
    told: Vec<BoxedStrategy<T>>,
    other: impl Strategy<Value = T> + Clone + 'static,
) -> impl Strategy<Value = Vec<T>> {
    let step = |op: BoxedStrategy<T>| {
        let op = prop::option::weighted(0.94, op);
        let other = prop::option::weighted(0.125, other.clone());
        (op, other).prop_map(|(op, other)| op.into_iter().chain(other).collect::<Vec<T>>())
    };
    let steps: Vec<_> = told.into_iter().map(step).collect();
    steps.prop_map(|steps| steps.concat())
}

/// Numbers from a seed (splitmix64), for draws while a case runs.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}

/// By kind, how often an operation did something, and how often it was drawn.
static COUNTS: Mutex<BTreeMap<String, (u64, u64)>> = Mutex::new(BTreeMap::new());

/// Counts an operation; its kind is the first word of what `Debug` shows.
pub fn count(op: &impl Debug, did_something: bool) {
    let shown = format!("{op:?}");
    let words = shown.split(|sign: char| !sign.is_alphanumeric());
    let kind = words.into_iter().find(|word| !word.is_empty());
    let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let (done, drawn) = counts
        .entry(kind.unwrap_or_default().to_owned())
        .or_default();
    *done += u64::from(did_something);
    *drawn += 1;
}

#[allow(clippy::print_stdout, reason = "of each kind how many were done")]
fn show_counts(cases: u64, first: u64) {
    let counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let counts = counts
        .iter()
        .map(|(kind, (done, drawn))| format!("{kind} {done}/{drawn}"));
    let counts: Vec<String> = counts.collect();
    println!("{cases} cases from seed {first}: {}", counts.join(", "));
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Checks `default` cases, or as many as the environment says.
pub fn run_cases<S: Strategy>(
    default: u64,
    strategy: S,
    check: impl Fn(S::Value) + UnwindSafe + RefUnwindSafe,
) {
    let cases = number("COWFS_MODEL_CASES").unwrap_or(default);
    let first = number("COWFS_MODEL_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.expect("a clock").as_secs() << 24
    });
    for case in 0..cases {
        let seed = first.wrapping_add(case);
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let config = Config {
            cases: 1,
            failure_persistence: None,
            // By default four a case.
            max_shrink_iters: 10_000,
            ..Config::default()
        };
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let outcome = TestRunner::new_with_rng(config, rng).run(&strategy, |value| {
            check(value);
            Ok(())
        });
        if let Err(failed) = outcome {
            panic!(
                "case {} of {cases} failed; COWFS_MODEL_SEED={seed} COWFS_MODEL_CASES=1 runs it again: {failed}",
                case + 1
            );
        }
    }
    show_counts(cases, first);
}
