//! Times and spans as people read them.

use berth_api::Timestamp;
use berth_types::{Span, Time};
use jiff::tz::TimeZone;
use std::{sync::OnceLock, time::SystemTime};

/// What time it is, and where.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    pub(crate) now: Time,
    /// The machine's zone is read from files, so only when a time is shown.
    zone: OnceLock<TimeZone>,
}

impl Clock {
    /// The machine's clock, read once, so that all ages of one answer are of one moment.
    pub(crate) fn of_machine() -> Self {
        Self { now: now(), zone: OnceLock::new() }
    }

    #[cfg(test)]
    pub(crate) fn fixed(now: &str) -> Self {
        let now: Timestamp = now.parse().expect("a time");
        Self { now: now.0, zone: OnceLock::from(TimeZone::UTC) }
    }

    /// The moment so long before now.
    pub(crate) fn before(&self, span: std::time::Duration) -> Timestamp {
        Timestamp(Time(self.now.0.saturating_sub(span.as_millis() as u64)))
    }

    /// The time since then, in its largest unit: `5m`, `2h`.
    pub(crate) fn age(&self, since: Timestamp) -> String {
        short(self.now.since(since.0))
    }

    /// Day and time in the machine's zone.
    pub(crate) fn local(&self, at: Timestamp) -> String {
        self.format(at, "%Y-%m-%d %H:%M:%S %Z")
    }

    /// Time in the machine's zone, with the day.
    pub(crate) fn day_and_hour(&self, at: Timestamp) -> String {
        self.format(at, "%b %d %H:%M")
    }

    /// Time in the machine's zone.
    pub(crate) fn hour(&self, at: Timestamp) -> String {
        self.format(at, "%H:%M")
    }

    fn format(&self, at: Timestamp, form: &str) -> String {
        let millis = i64::try_from(at.0.0).unwrap_or(i64::MAX);
        let Ok(instant) = jiff::Timestamp::from_millisecond(millis) else { return at.to_string() };
        let zone = self.zone.get_or_init(TimeZone::system);
        instant.to_zoned(zone.clone()).strftime(form).to_string()
    }
}

pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    // A machine whose clock is before 1970 has worse problems than ages that are zero.
    Time(since.map_or(0, |since| since.as_millis() as u64))
}

/// A span in its largest unit.
pub(crate) fn short(span: Span) -> String {
    match span.as_secs() {
        secs @ 0..60 => format!("{secs}s"),
        secs @ 60..3_600 => format!("{}m", secs / 60),
        secs @ 3_600..172_800 => format!("{}h", secs / 3_600),
        secs => format!("{}d", secs / 86_400),
    }
}

/// A span in two units, without milliseconds.
pub(crate) fn long(span: Span) -> String {
    match span.as_secs() {
        0 => "0s".into(),
        secs => Span::secs(secs).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        for (secs, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (3_599, "59m"),
            (7_200, "2h"),
            (86_400, "24h"),
            (172_800, "2d"),
            (864_000, "10d"),
        ] {
            assert_eq!(short(Span::secs(secs)), text);
        }
        assert_eq!(long(Span(90_500)), "1m30s");
    }

    #[test]
    fn a_clock_that_runs_ahead_gives_no_negative_age() {
        let clock = Clock::fixed("2026-11-17T08:00:00Z");
        assert_eq!(clock.age("2026-11-17T09:00:00Z".parse().expect("a time")), "0s");
        assert_eq!(clock.age("2026-11-17T07:55:00Z".parse().expect("a time")), "5m");
        assert_eq!(clock.local("2026-11-17T07:55:00Z".parse().expect("a time")), "2026-11-17 07:55:00 UTC");
    }
}
