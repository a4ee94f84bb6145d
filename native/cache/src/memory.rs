//! Small chunks in memory, least recently used out first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::Hash;

pub struct Memory {
    chunks: LruCache<Hash, Held>,
    bytes: u64,
    max_bytes: u64,
}

struct Held {
    data: Arc<[u8]>,
    /// When its use was last noted.
    noted: Instant,
}

impl Memory {
    pub fn new(max_bytes: u64) -> Memory {
        Memory {
            chunks: LruCache::unbounded(),
            bytes: 0,
            max_bytes,
        }
    }

    /// The chunk, and whether its use should be noted again.
    pub fn get(
        &mut self,
        hash: &Hash,
        raw_len: u64,
        note_every: Duration,
    ) -> Option<(Arc<[u8]>, bool)> {
        let held = self
            .chunks
            .get_mut(hash)
            .filter(|held| held.data.len() as u64 == raw_len)?;
        let is_due = held.noted.elapsed() >= note_every;
        if is_due {
            held.noted = Instant::now();
        }
        Some((held.data.clone(), is_due))
    }

    /// A chunk larger than the whole memory is not held.
    pub fn insert(&mut self, hash: &Hash, data: Arc<[u8]>) {
        if data.len() as u64 > self.max_bytes {
            return;
        }
        self.bytes += data.len() as u64;
        if let Some(before) = self.chunks.put(
            *hash,
            Held {
                data,
                noted: Instant::now(),
            },
        ) {
            self.bytes -= before.data.len() as u64;
        }
        while self.bytes > self.max_bytes {
            let Some((_, oldest)) = self.chunks.pop_lru() else {
                break;
            };
            self.bytes -= oldest.data.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_leave_first() {
        let mut memory = Memory::new(10);
        let hash = |n: u8| [n; 32];
        let never = Duration::MAX;
        for n in 1..=3 {
            memory.insert(&hash(n), vec![n; 3].into());
        }
        assert!(memory.get(&hash(1), 3, never).is_some());
        memory.insert(&hash(4), vec![4; 3].into());
        assert!(
            memory.get(&hash(2), 3, never).is_none() && memory.get(&hash(1), 3, never).is_some()
        );
        memory.insert(&hash(5), vec![5; 11].into());
        assert!(
            memory.get(&hash(5), 11, never).is_none() && memory.get(&hash(1), 3, never).is_some()
        );
        memory.insert(&hash(1), vec![1; 4].into());
        assert_eq!(memory.bytes, 10);
        assert!(
            memory.get(&hash(1), 3, never).is_none() && memory.get(&hash(1), 4, never).is_some()
        );
    }

    #[test]
    fn use_is_noted_now_and_then() {
        let mut memory = Memory::new(10);
        memory.insert(&[1; 32], vec![1].into());
        assert!(!memory.get(&[1; 32], 1, Duration::from_secs(60)).unwrap().1);
        assert!(memory.get(&[1; 32], 1, Duration::ZERO).unwrap().1);
    }
}
