//! Prints the numbers of `docs/format/chunks.md`: sizes, resynchronisation and speed for each
//! normalization level.

#![allow(clippy::print_stdout, reason = "a program")]

use std::collections::HashSet;
use std::time::Instant;

use cowfs_chunking::{AVERAGE_BYTES, HOLE_MIN_BYTES, MAX_BYTES, MIN_BYTES, cut_points, zero_runs};
use fastcdc::v2020::{FastCDC, Normalization};

fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn cuts(data: &[u8], level: Normalization) -> Vec<usize> {
    FastCDC::with_level(data, MIN_BYTES, AVERAGE_BYTES, MAX_BYTES, level)
        .map(|c| c.offset + c.length)
        .collect()
}

fn pieces<'a>(data: &'a [u8], ends: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    std::iter::once(&0)
        .chain(ends)
        .zip(ends)
        .map(|(start, end)| &data[*start..*end])
}

fn main() {
    let data = noise(1 << 30, 1);
    for level in [
        Normalization::Level1,
        Normalization::Level2,
        Normalization::Level3,
    ] {
        let started = Instant::now();
        let ends = cuts(&data, level);
        let seconds = started.elapsed().as_secs_f64();
        let mut sizes: Vec<usize> = ends.windows(2).map(|w| w[1] - w[0]).collect();
        sizes.sort_unstable();
        let at = |q: f64| sizes[(sizes.len() as f64 * q) as usize] >> 10;
        let mean = sizes.iter().sum::<usize>() / sizes.len();
        println!(
            "{level:?}: {} chunks, mean {} KiB, 5 % {} 50 % {} 95 % {} max {} KiB, {:.2} GB/s",
            sizes.len(),
            mean >> 10,
            at(0.05),
            at(0.5),
            at(0.95),
            sizes.last().unwrap() >> 10,
            data.len() as f64 / seconds / 1e9
        );
        // Start anywhere: after how many bytes does a cut fall on one of the whole?
        let known: HashSet<usize> = ends.iter().copied().collect();
        let mut distances: Vec<usize> = (0..400)
            .map(|i| {
                let start = i * 2_500_003 + 17;
                let window = &data[start..(start + (24 << 20)).min(data.len())];
                cuts(window, level)
                    .into_iter()
                    .find(|end| known.contains(&(start + end)))
                    .unwrap_or(usize::MAX)
            })
            .collect();
        distances.sort_unstable();
        println!(
            "    resynchronises after: mean {} KiB, 95 % {} KiB, worst of 400 {} KiB",
            (distances.iter().sum::<usize>() / distances.len()) >> 10,
            distances[380] >> 10,
            distances[399] >> 10
        );
        // Edits of a 64 MiB file: bytes of chunks that it did not have before.
        let file = &data[..64 << 20];
        let ends = cuts(file, level);
        let known: HashSet<&[u8]> = pieces(file, &ends).collect();
        let mut added: Vec<usize> = (0..100)
            .map(|i| {
                let at = (i * 671_089 + 5) * usize::from(i > 0);
                let edited = [&file[..at], &[i as u8], &file[at..]].concat();
                let ends = cuts(&edited, level);
                pieces(&edited, &ends)
                    .filter(|piece| !known.contains(piece))
                    .map(<[u8]>::len)
                    .sum()
            })
            .collect();
        let prepended = added[0] >> 10;
        added.sort_unstable();
        println!(
            "    one byte inserted adds: in front {prepended} KiB, anywhere: mean {} KiB, worst of 100 {} KiB",
            (added.iter().sum::<usize>() / added.len()) >> 10,
            added[99] >> 10
        );
    }
    let started = Instant::now();
    let ends = cut_points(&data, true).len();
    println!(
        "cut_points: {ends} chunks, {:.2} GB/s",
        data.len() as f64 / started.elapsed().as_secs_f64() / 1e9
    );
    let started = Instant::now();
    let found = zero_runs(&data, HOLE_MIN_BYTES).len();
    println!(
        "zero_runs of noise: {found} runs, {:.0} GB/s",
        data.len() as f64 / started.elapsed().as_secs_f64() / 1e9
    );
    let zeros = vec![0u8; 1 << 30];
    assert!(zeros.iter().step_by(4096).all(|b| *b == 0));
    let started = Instant::now();
    let found = zero_runs(&zeros, HOLE_MIN_BYTES);
    println!(
        "zero_runs of zeros: {found:?}, {:.1} GB/s",
        zeros.len() as f64 / started.elapsed().as_secs_f64() / 1e9
    );
    let constant: Vec<usize> = (1..=255u8)
        .map(|b| cut_points(&vec![b; 3 << 20], true)[0])
        .filter(|end| *end != MAX_BYTES)
        .collect();
    println!("constant bytes not cut at the maximum: {}", constant.len());
}
