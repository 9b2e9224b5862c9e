//! Fixed-point amounts. No float decides anything.

use serde::{Deserialize, Serialize};
use std::{fmt, iter::Sum, ops, str::FromStr};

/// Why a text is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// Not a decimal number at all.
    #[error("`{0}` is not a number; write for example `2` or `0.5`")]
    NotANumber(String),
    /// Below zero.
    #[error("`{0}` must be 0 or more")]
    Negative(String),
    /// More decimals than the fixed point holds.
    #[error("`{0}` has more than {1} decimals")]
    TooPrecise(String, u32),
    /// Above what Berth accepts.
    #[error("`{0}` is above the largest accepted amount, {1}")]
    TooLarge(String, u64),
    /// A unit that is not known.
    #[error("`{0}` has an unknown unit; expected one of {1}")]
    UnknownUnit(String, &'static str),
}

macro_rules! amount {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// Nothing.
            pub const ZERO: Self = Self(0);

            /// Whether there is nothing.
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }

            /// The difference, or nothing when `other` is larger.
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }

            /// The sum, or the largest amount that can be written.
            pub const fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// So many times the amount.
            pub const fn times(self, count: u64) -> Self {
                Self(self.0.saturating_mul(count))
            }
        }

        impl ops::Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl ops::Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl ops::SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                Self(items.map(|item| item.0).sum())
            }
        }
    };
}

amount! {
    /// An amount of GPUs, in millionths of a device.
    Gpus
}
amount! {
    /// An amount of CPU, in thousandths of a core.
    Cpu
}
amount! {
    /// An amount of memory, in bytes.
    Bytes
}
amount! {
    /// A length of time, in milliseconds.
    Span
}

impl Gpus {
    /// Millionths in one device.
    pub const SCALE: u64 = 1_000_000;
    /// One whole device.
    pub const ONE: Self = Self(Self::SCALE);
    /// No sum of GPUs may pass this: a million devices.
    pub const MAX: Self = Self(1_000_000 * Self::SCALE);

    /// So many whole devices.
    pub const fn whole(count: u64) -> Self {
        Self(count * Self::SCALE)
    }
}

impl FromStr for Gpus {
    type Err = AmountError;
    fn from_str(text: &str) -> Result<Self, AmountError> {
        parse_decimal(text, 6, Self::MAX.0).map(Self)
    }
}

impl fmt::Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&decimal(self.0, 6))
    }
}

impl fmt::Debug for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} GPU", decimal(self.0, 6))
    }
}

impl Cpu {
    /// No sum of CPU may pass this: a hundred million cores.
    pub const MAX: Self = Self(100_000_000_000);

    /// So many whole cores.
    pub const fn cores(count: u64) -> Self {
        Self(count * 1000)
    }
}

impl FromStr for Cpu {
    type Err = AmountError;
    fn from_str(text: &str) -> Result<Self, AmountError> {
        match text.strip_suffix('m') {
            Some(millis) => parse_decimal(millis, 0, Self::MAX.0).map(Self),
            None => parse_decimal(text, 3, Self::MAX.0).map(Self),
        }
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&decimal(self.0, 3))
    }
}

impl fmt::Debug for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} CPU", decimal(self.0, 3))
    }
}

const BYTE_UNITS: [(&str, u64); 9] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("", 1),
];

impl Bytes {
    /// No sum of memory may pass this: an exbibyte.
    pub const MAX: Self = Self(1 << 60);

    /// So many mebibytes.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// So many gibibytes.
    pub const fn gib(count: u64) -> Self {
        Self(count << 30)
    }
}

impl FromStr for Bytes {
    type Err = AmountError;
    fn from_str(text: &str) -> Result<Self, AmountError> {
        let bare = text.strip_suffix('B').unwrap_or(text);
        let (unit, scale) = BYTE_UNITS
            .into_iter()
            .find(|(unit, _)| bare.ends_with(unit))
            .expect("the empty unit ends every text");
        let number = &bare[..bare.len() - unit.len()];
        if unit.is_empty() && number.chars().last().is_some_and(|last| last.is_ascii_alphabetic()) {
            return Err(AmountError::UnknownUnit(text.into(), "Ki, Mi, Gi, Ti, K, M, G, T"));
        }
        let millionths = parse_decimal(number, 6, u64::MAX / 2)?;
        let bytes = u128::from(millionths) * u128::from(scale) / 1_000_000;
        if bytes > u128::from(Self::MAX.0) {
            return Err(AmountError::TooLarge(text.into(), Self::MAX.0));
        }
        Ok(Self(bytes as u64))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, scale) = [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
            .into_iter()
            .find(|(_, scale)| self.0 >= *scale && self.0.is_multiple_of(*scale))
            .unwrap_or(("B", 1));
        f.pad(&format!("{} {unit}", self.0 / scale))
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Span {
    /// So many seconds.
    pub const fn secs(count: u64) -> Self {
        Self(count * 1000)
    }

    /// Whole seconds, rounded down.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1000
    }
}

impl FromStr for Span {
    type Err = AmountError;
    fn from_str(text: &str) -> Result<Self, AmountError> {
        let units = [("ms", 1u64), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        let Some((unit, scale)) = units.into_iter().find(|(unit, _)| text.ends_with(unit)) else {
            return Err(AmountError::UnknownUnit(text.into(), "ms, s, m, h, d"));
        };
        let millionths = parse_decimal(&text[..text.len() - unit.len()], 6, u64::MAX / 2)?;
        let millis = u128::from(millionths) * u128::from(scale) / 1_000_000;
        u64::try_from(millis).map(Self).map_err(|_| AmountError::TooLarge(text.into(), u64::MAX))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, hours) = (self.0 / 86_400_000, self.0 / 3_600_000 % 24);
        let (minutes, secs, millis) = (self.0 / 60_000 % 60, self.0 / 1000 % 60, self.0 % 1000);
        let text = match (days, hours, minutes, secs, millis) {
            (0, 0, 0, 0, millis) => format!("{millis}ms"),
            (0, 0, 0, secs, 0) => format!("{secs}s"),
            (0, 0, 0, secs, millis) => format!("{secs}.{millis:03}s"),
            (0, 0, minutes, 0, _) => format!("{minutes}m"),
            (0, 0, minutes, secs, _) => format!("{minutes}m{secs}s"),
            (0, hours, 0, _, _) => format!("{hours}h"),
            (0, hours, minutes, _, _) => format!("{hours}h{minutes}m"),
            (days, 0, _, _, _) => format!("{days}d"),
            (days, hours, _, _, _) => format!("{days}d{hours}h"),
        };
        f.pad(&text)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A point in time, in milliseconds since an epoch the caller chooses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// The span from `earlier` to here, or none when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl ops::Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

/// A part of one device: more than nothing, at most all of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Share(u32);

impl Share {
    /// The whole device.
    pub const WHOLE: Self = Self(Gpus::SCALE as u32);

    /// A share of so many millionths; nothing above one or equal to zero is a share.
    pub const fn from_millionths(millionths: u32) -> Option<Self> {
        if millionths == 0 || millionths > Self::WHOLE.0 { None } else { Some(Self(millionths)) }
    }

    /// The smallest share of a device of `device` bytes that holds `bytes`, or none if the device is too small.
    pub fn of_memory(bytes: Bytes, device: Bytes) -> Option<Self> {
        if bytes > device || bytes.is_zero() {
            return None;
        }
        let millionths = (u128::from(bytes.0) * u128::from(Gpus::SCALE)).div_ceil(u128::from(device.0));
        Self::from_millionths(millionths as u32)
    }

    /// The share in millionths.
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// The share as an amount of GPUs.
    pub const fn gpus(self) -> Gpus {
        Gpus(self.0 as u64)
    }

    /// The memory of this share of a device of `device` bytes, rounded down.
    pub fn memory(self, device: Bytes) -> Bytes {
        Bytes((u128::from(device.0) * u128::from(self.0) / u128::from(Gpus::SCALE)) as u64)
    }
}

impl TryFrom<u32> for Share {
    type Error = String;
    fn try_from(millionths: u32) -> Result<Self, String> {
        Self::from_millionths(millionths)
            .ok_or_else(|| format!("{millionths} millionths is not a share of a device"))
    }
}

impl From<Share> for u32 {
    fn from(share: Share) -> u32 {
        share.0
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", decimal(u64::from(self.0), 6))
    }
}

/// Parses a non-negative decimal with at most `decimals` decimals into fixed point.
fn parse_decimal(text: &str, decimals: u32, max: u64) -> Result<u64, AmountError> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && part.is_empty()) || !digits(whole) || !digits(part) {
        // What follows the sign of a negative number is one by itself.
        let negative = text.strip_prefix('-').filter(|rest| parse_decimal(rest, decimals, max).is_ok());
        return Err(match negative {
            Some(_) => AmountError::Negative(text.into()),
            None => AmountError::NotANumber(text.into()),
        });
    }
    let part = part.trim_end_matches('0');
    if part.len() > decimals as usize {
        return Err(AmountError::TooPrecise(text.into(), decimals));
    }
    let too_large = || AmountError::TooLarge(text.into(), max / 10u64.pow(decimals));
    let mut value: u64 = 0;
    let padding = std::iter::repeat_n(b'0', decimals as usize - part.len());
    for byte in whole.bytes().chain(part.bytes()).chain(padding) {
        value = value
            .checked_mul(10)
            .and_then(|value| value.checked_add(u64::from(byte - b'0')))
            .ok_or_else(too_large)?;
    }
    if value > max { Err(too_large()) } else { Ok(value) }
}

/// Writes fixed point as a decimal without trailing zeros.
fn decimal(value: u64, decimals: u32) -> String {
    let scale = 10u64.pow(decimals);
    if value.is_multiple_of(scale) {
        return (value / scale).to_string();
    }
    let part = format!("{:0width$}", value % scale, width = decimals as usize);
    format!("{}.{}", value / scale, part.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_read_and_written_exactly() {
        assert_eq!("0.6".parse(), Ok(Gpus(600_000)));
        assert_eq!("16".parse(), Ok(Gpus::whole(16)));
        assert_eq!(Gpus(1_250_000).to_string(), "1.25");
        assert_eq!("500m".parse(), Ok(Cpu(500)));
        assert_eq!("1.5Gi".parse(), Ok(Bytes::mib(1536)));
        assert_eq!("16GiB".parse(), Ok(Bytes::gib(16)));
        assert_eq!("90m".parse(), Ok(Span::secs(5400)));
    }

    #[test]
    fn what_is_not_an_amount_is_refused() {
        for text in ["", ".", "-1", "1e3", "0.0000001", "1000001", "nan", "1.2.3"] {
            assert!(text.parse::<Gpus>().is_err(), "{text}");
        }
        assert!("5".parse::<Span>().is_err());
        assert!("5Q".parse::<Bytes>().is_err());
        assert!("99999999999T".parse::<Bytes>().is_err());
    }

    #[test]
    fn memory_is_rounded_up_to_a_share_that_holds_it() {
        let device = Bytes::mib(32_510);
        let half = Share::from_millionths(500_000).unwrap();
        assert_eq!(half.memory(device), Bytes::mib(16_255));
        let share = Share::of_memory(Bytes(device.0 / 3), device).unwrap();
        assert!(share.memory(device).0 >= device.0 / 3 - 1);
        assert_eq!(Share::of_memory(Bytes(device.0 + 1), device), None);
        assert_eq!(Share::of_memory(device, device), Some(Share::WHOLE));
    }
}
