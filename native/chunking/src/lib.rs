//! The places where a file's bytes are cut into chunks, and its runs of zeros.
//!
//! Cut points follow the content (FastCDC 2020, 128 KiB to 2 MiB, around 512 KiB), so bytes
//! inserted or removed move the chunks behind them without changing them. Cut points are a promise:
//! they decide what deduplicates against everything ever stored, so the crate that computes them is
//! pinned to one version and a golden test holds them. A change here is not wrong for reading (any
//! cut is valid) but stores everything anew.
//!
//! Zero runs are found by looking at one byte in `minimum`: a run that long covers at least one of
//! them.
//!
//! `places` remembers where chunks lie, in little memory.
//!
//! The rest are pure functions over bytes; threads as you like. Hashing, compressing and which runs
//! become holes is the commit's business. `docs/format/chunks.md` says why these numbers.

mod gear;
mod places;

use fastcdc::v2020::Normalization;

pub use gear::Gear;
pub use places::{ChunkPlaces, Hash, Named, Pack, Place, RECORD_BYTES};

/// No chunk is shorter, but for the last before a hole or the end of the file.
pub const MIN_BYTES: usize = 128 << 10;
/// Sizes cluster here.
pub const AVERAGE_BYTES: usize = 512 << 10;
/// No chunk is longer.
pub const MAX_BYTES: usize = 2 << 20;
/// A commit turns runs of zero bytes of at least this length into holes.
pub const HOLE_MIN_BYTES: usize = 64 << 10;

// Measured: level 1 finds back into step sooner after a move, but its largest chunks make the worst
// edit cost twice as much.
const LEVEL: Normalization = Normalization::Level2;

/// Ends of the chunks of `data`, ascending; `data` starts at a chunk boundary.
///
/// `is_final` true: the last end is `data.len()`. False: more bytes follow, and only ends that none
/// of them can move are returned; call again with the bytes from the last end on. 2 MiB or more
/// always give at least one.
pub fn cut_points(data: &[u8], is_final: bool) -> Vec<usize> {
    cut_points_with(Gear::public(), data, is_final)
}

/// As `cut_points`, with this table. If the table is secret, so is the rule by which files are cut.
pub fn cut_points_with(gear: &Gear, data: &[u8], is_final: bool) -> Vec<usize> {
    settled(gear.lengths(data), data.len(), is_final)
}

/// The ends that no byte behind `length` can move, of chunks of these lengths.
fn settled(lengths: impl Iterator<Item = usize>, length: usize, is_final: bool) -> Vec<usize> {
    let mut ends: Vec<usize> = Vec::with_capacity(length / AVERAGE_BYTES + 1);
    let mut end = 0;
    for chunk in lengths {
        end += chunk;
        // An end in front of the data's was chosen by bytes before it, one at the maximum by no
        // bytes at all.
        if end < length || chunk == MAX_BYTES || is_final {
            ends.push(end);
        }
    }
    ends
}

/// (offset, length) of the runs of zero bytes of at least `minimum` bytes, ascending and as long as
/// they are.
///
/// Reads one byte in `minimum` where there are no zeros. `minimum` 0 means 1.
pub fn zero_runs(data: &[u8], minimum: usize) -> Vec<(usize, usize)> {
    let minimum = minimum.max(1);
    let mut runs = Vec::new();
    let mut searched = 0; // everything before belongs to a run found, or to none
    let mut probe = minimum - 1;
    while probe < data.len() {
        if data[probe] == 0 {
            let start = probe - trailing_zeros(&data[searched..probe]);
            let end = probe + leading_zeros(&data[probe..]);
            if end - start >= minimum {
                runs.push((start, end - start));
            }
            searched = end;
            probe = end + minimum - 1;
        } else {
            searched = probe + 1;
            probe += minimum;
        }
    }
    runs
}

/// Compared at once; the compiler makes vector instructions of it.
const WIDE: usize = 64;

fn is_zero(block: &[u8]) -> bool {
    block.iter().fold(0, |bits, byte| bits | byte) == 0
}

fn leading_zeros(data: &[u8]) -> usize {
    let wide = data
        .chunks_exact(WIDE)
        .take_while(|block| is_zero(block))
        .count()
        * WIDE;
    wide + data[wide..].iter().take_while(|&&byte| byte == 0).count()
}

fn trailing_zeros(data: &[u8]) -> usize {
    let wide = data
        .rchunks_exact(WIDE)
        .take_while(|block| is_zero(block))
        .count()
        * WIDE;
    let rest = &data[..data.len() - wide];
    wide + rest.iter().rev().take_while(|&&byte| byte == 0).count()
}
