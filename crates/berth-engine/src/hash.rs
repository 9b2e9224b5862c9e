//! A fixed hasher for ids. Maps built on it are looked into, never walked, so that no order of theirs reaches a
//! decision.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// A map from an id to what the engine knows of it.
pub(crate) type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Multiplies and rotates; ids are small numbers that nobody chooses to collide.
#[derive(Clone, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
}
