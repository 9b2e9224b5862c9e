//! Amounts as people write them. They become fixed point at once; a number that fixed point cannot hold is refused, not rounded.

use berth_types::{Bytes, Cpu, Gpus, Time};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::{fmt, str::FromStr};
use utoipa::ToSchema;

/// A number or the text of one, kept as text so that no float decides anything.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number, or the text of one")]
enum Written {
    Number(serde_json::Number),
    Text(String),
}

impl Written {
    fn text(self) -> String {
        match self {
            // The shortest text that reads back as the same number, which is what the person wrote; never with an exponent.
            Self::Number(number) => match number.as_f64() {
                Some(float) if !number.is_u64() => float.to_string(),
                _ => number.to_string(),
            },
            Self::Text(text) => text,
        }
    }
}

macro_rules! written {
    ($(#[$doc:meta])* $name:ident, $inner:ident, $example:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, ToSchema)]
        #[schema(value_type = f64, example = json!($example))]
        pub struct $name(pub $inner);

        impl FromStr for $name {
            type Err = <$inner as FromStr>::Err;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Written::deserialize(deserializer)?.text().parse().map_err(D::Error::custom)
            }
        }
    };
}

written! {
    /// GPUs: `2`, or `0.5` of one.
    GpuAmount, Gpus, 0.5
}
written! {
    /// Cores of CPU: `4`, or `0.25`.
    CoresAmount, Cpu, 4
}
written! {
    /// Percent, with up to six decimals.
    Percent, Gpus, 18.4
}
written! {
    /// Bytes; may be written with a unit, as `"16Gi"`.
    MemoryAmount, Bytes, "16Gi"
}

/// Writes fixed point as the number it means: exact, since the shortest text of such a float reads back as it.
fn serialize_decimal<S: Serializer>(value: u64, scale: u64, serializer: S) -> Result<S::Ok, S::Error> {
    match value % scale {
        0 => serializer.serialize_u64(value / scale),
        _ => serializer.serialize_f64(value as f64 / scale as f64),
    }
}

impl Serialize for GpuAmount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_decimal(self.0.0, Gpus::SCALE, serializer)
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_decimal(self.0.0, Gpus::SCALE, serializer)
    }
}

impl Serialize for CoresAmount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_decimal(self.0.0, 1_000, serializer)
    }
}

impl Serialize for MemoryAmount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0.0)
    }
}

/// A point in time, RFC 3339 in UTC, to the millisecond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ToSchema)]
#[schema(value_type = String, format = DateTime, example = json!("2026-11-17T08:00:00.000Z"))]
pub struct Timestamp(pub Time);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = i64::try_from(self.0.0).unwrap_or(i64::MAX);
        let instant = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
        write!(f, "{instant:.3}")
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let instant: jiff::Timestamp = text
            .parse()
            .map_err(|_| format!("`{text}` is not a time; write for example 2026-11-17T08:00:00Z"))?;
        u64::try_from(instant.as_millisecond())
            .map(|millis| Self(Time(millis)))
            .map_err(|_| format!("`{text}` is before 1970"))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl From<Time> for Timestamp {
    fn from(time: Time) -> Self {
        Self(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_millionth_of_a_gpu_is_read_back_as_it_was_written() {
        for millionths in (0..2_000_000).step_by(997).chain([1, 999_999, 1_000_001, 1_000_000_000_000]) {
            let written = serde_json::to_string(&GpuAmount(Gpus(millionths))).expect("is JSON");
            let read: GpuAmount = serde_json::from_str(&written).expect("is an amount");
            assert_eq!(read.0.0, millionths, "{written}");
        }
    }

    #[test]
    fn what_fixed_point_cannot_hold_is_refused() {
        for text in ["0.1234567", "-1", "1e-9", "\"half\"", "1e300", "null", "[]"] {
            assert!(serde_json::from_str::<GpuAmount>(text).is_err(), "{text}");
        }
        assert_eq!(serde_json::from_str::<GpuAmount>("\"0.5\"").expect("text is fine").0, Gpus(500_000));
    }

    #[test]
    fn a_time_is_read_back_as_it_was_written() {
        let time = Timestamp(Time(1_794_902_400_123));
        let written = serde_json::to_string(&time).expect("is JSON");
        assert_eq!(written, "\"2026-11-17T08:00:00.123Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&written).expect("is a time"), time);
        assert!("yesterday".parse::<Timestamp>().is_err());
    }
}
