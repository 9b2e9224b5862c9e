//! Time, which comes in from outside everywhere else.

use berth_types::Time;
use std::time::{SystemTime, UNIX_EPOCH};

/// The time of the machine. Whoever orders by it guards against its going back.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(since.as_millis() as u64)
}
