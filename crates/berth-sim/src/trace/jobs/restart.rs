//! What an eviction costs: work since the last checkpoint, and the time to start again.

use anyhow::anyhow;
use berth_types::Span;

/// When jobs save their state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoints {
    /// At the moment of eviction: nothing is lost.
    Perfect,
    /// After every so many seconds of work.
    Every(u64),
    /// Never: everything since the first start is lost.
    None,
}

impl Checkpoints {
    /// `perfect`, `none`, or a span like `30m`.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        match text {
            "perfect" => Ok(Self::Perfect),
            "none" => Ok(Self::None),
            _ => match text.parse::<Span>() {
                Ok(span) if span.as_secs() > 0 => Ok(Self::Every(span.as_secs())),
                _ => Err(anyhow!("`{text}` is no checkpoint; write `perfect`, `none` or for example `30m`")),
            },
        }
    }

    /// How much of `worked_s` seconds of one run is kept when it is evicted.
    pub fn kept_s(self, worked_s: u64) -> u64 {
        match self {
            Self::Perfect => worked_s,
            Self::Every(period_s) => worked_s / period_s * period_s,
            Self::None => 0,
        }
    }
}

/// Seconds until an evicted job works again once it is started, as in the Helios simulator.
pub fn restart_s(gpus: u32) -> u64 {
    match gpus {
        0..=1 => 7,
        2..=8 => 30,
        _ => 60,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_kept_up_to_the_last_checkpoint() {
        let every = Checkpoints::parse("30m").unwrap();
        assert_eq!((every.kept_s(1799), every.kept_s(3700)), (0, 3600));
        assert_eq!(Checkpoints::parse("perfect").unwrap().kept_s(17), 17);
        assert_eq!(Checkpoints::parse("none").unwrap().kept_s(17), 0);
        assert!(Checkpoints::parse("0s").is_err() && Checkpoints::parse("often").is_err());
    }
}
