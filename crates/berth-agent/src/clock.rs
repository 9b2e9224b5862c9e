//! Clocks. What is told outside is in the caller's time; what is written for a later process is in the machine's.

use berth_types::Time;
use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970, for records that a later process reads.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64)
}

/// Milliseconds since the machine started, sleep included: no hand on the wall clock moves a deadline.
pub(crate) fn boot_ms() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// The caller's clock.
#[derive(Clone, Copy)]
pub(crate) struct Clock(pub(crate) fn() -> Time);

impl Clock {
    pub(crate) fn now(self) -> Time {
        (self.0)()
    }

    /// When something recorded happened, in the caller's time.
    pub(crate) fn at(self, recorded_unix_ms: u64) -> Time {
        let ago = unix_ms().saturating_sub(recorded_unix_ms);
        Time(self.now().0.saturating_sub(ago))
    }
}
