//! How much the trainer computes: a fixed small part of a core, measured.
//!
//! The trainer stands in for a GPU. Its full speed is defined as 3 % of a core, so that sixteen of them leave a laptop usable. It plans to
//! use 92 % of that, as real trainings leave a GPU idle between batches, and reports what it really used: the CPU time of its process
//! over the CPU time that full speed would have taken. On a machine that is too busy to give it that, the number falls.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// What counts as full speed, as a part of one core.
const FULL_SPEED: f64 = 0.03;
/// The part of full speed that it plans to use.
const DUTY: f64 = 0.92;

/// Meters CPU time against the clock.
pub(super) struct Pace {
    begun: Instant,
    /// The CPU time that does not count.
    before: Duration,
    /// When utilisation was last told, and the CPU time then.
    told: (Instant, Duration),
}

impl Pace {
    /// From the beginning of the process: what it took to start is part of what it costs.
    pub(super) fn new() -> Self {
        Self::after(Duration::ZERO)
    }

    fn after(before: Duration) -> Self {
        let begun = Instant::now();
        Self { begun, before, told: (begun, before) }
    }

    /// Computes until the CPU time that belongs to a step is used, or the step is over.
    pub(super) fn compute(&self, step_begun: Instant, step_time: Duration, mut work: impl FnMut()) {
        let end = step_begun + step_time;
        let planned = self.before + (end - self.begun).mul_f64(FULL_SPEED * DUTY);
        let used = cpu_time();
        // Time that it did not get is not made up for, beyond what full speed allows in this step.
        let until = planned.min(used + step_time.mul_f64(FULL_SPEED));
        while cpu_time() < until && Instant::now() < end {
            work();
        }
    }

    /// The part of full speed that it had since this was last asked, in percent.
    pub(super) fn utilisation(&mut self) -> u8 {
        let now = (Instant::now(), cpu_time());
        let (clock, used) = (now.0 - self.told.0, now.1.saturating_sub(self.told.1));
        self.told = now;
        let full = clock.mul_f64(FULL_SPEED).as_secs_f64();
        if full == 0.0 { 0 } else { (used.as_secs_f64() / full * 100.0).min(100.0) as u8 }
    }
}

/// CPU time of this process since it began.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_uses_no_more_than_its_part_of_a_core() {
        // Other tests of this process use CPU time too, so that there may be fewer rounds, and never more.
        let mut pace = Pace::after(cpu_time());
        let step = Duration::from_millis(100);
        let mut rounds = 0u64;
        pace.compute(Instant::now(), step, || {
            rounds += 1;
            let before = cpu_time();
            while cpu_time() < before + Duration::from_micros(100) {}
        });
        // On a machine that is too busy there may be none.
        assert!(rounds <= 31, "{rounds} times 100 µs of {step:?}");
        assert!(rounds == 0 || pace.utilisation() > 0);
    }
}
