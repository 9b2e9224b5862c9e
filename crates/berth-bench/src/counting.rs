//! An allocator that counts what it is asked for.

#![allow(unsafe_code)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, with two counters in front of it.
pub(crate) struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; the counters touch no memory that it hands out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the same one.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same one.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size.saturating_sub(layout.size()));
        // SAFETY: the caller keeps the contract of `realloc`, which is the same one.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, which is the same one.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn count(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Relaxed);
    BYTES.fetch_add(bytes as u64, Relaxed);
}

/// Allocations, and bytes allocated, since the process started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) allocations: u64,
    pub(crate) bytes: u64,
}

impl Counts {
    pub(crate) fn now() -> Self {
        Self { allocations: ALLOCATIONS.load(Relaxed), bytes: BYTES.load(Relaxed) }
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self { allocations: self.allocations - earlier.allocations, bytes: self.bytes - earlier.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_counted_with_its_bytes() {
        let before = Counts::now();
        let block = std::hint::black_box(vec![0u8; 4096]);
        let counted = Counts::now().since(before);
        drop(block);
        assert!(counted.allocations >= 1 && counted.bytes >= 4096, "{counted:?}");
    }
}
