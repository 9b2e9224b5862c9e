//! Amounts as Kubernetes writes them, exactly: no float, and what fixed point cannot hold is rounded up as Kubernetes
//! does, so that nobody gets less than they asked for.

use berth_types::{Bytes, Cpu, Gpus, Node, Share, Span};

/// Why a text is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a quantity at all.
    #[error("`{0}` is not a quantity; write for example `2`, `0.5`, `500m` or `16Gi`")]
    NotAQuantity(String),
    /// Below nothing.
    #[error("`{0}` is negative")]
    Negative(String),
    /// Above what Berth accepts.
    #[error("`{0}` is larger than Berth accepts")]
    TooLarge(String),
    /// Not a length of time.
    #[error("`{0}` is not a length of time; write for example `30s`, `90m`, `2h` or `1h30m`")]
    NotASpan(String),
}

/// Text longer than this is no amount that a person wrote.
const TEXT_BYTES_MAX: usize = 64;
/// Decimals that are read; Kubernetes keeps nine.
const DECIMALS_MAX: usize = 18;
/// The longest span that is accepted, a hundred years.
const SPAN_MAX: Span = Span::secs(100 * 365 * 86_400);

/// CPU, in thousandths of a core.
pub fn cpu(text: &str) -> Result<Cpu, QuantityError> {
    scaled(text, 3, Cpu::MAX.0).map(Cpu)
}

/// Bytes.
pub fn bytes(text: &str) -> Result<Bytes, QuantityError> {
    scaled(text, 0, Bytes::MAX.0).map(Bytes)
}

/// GPUs, in millionths of a device.
pub fn gpus(text: &str) -> Result<Gpus, QuantityError> {
    scaled(text, 6, Gpus::MAX.0).map(Gpus)
}

/// A count of things, such as devices of a node.
pub fn count(text: &str) -> Result<u64, QuantityError> {
    scaled(text, 0, Node::MEMORY_MAX.0)
}

/// A share of a device as claims and slices write it: so many millionths. They are whole numbers, because the allocator
/// of Kubernetes rounds what is asked for up to one before it looks at the smallest step.
pub fn share(text: &str) -> Result<Share, QuantityError> {
    let millionths = scaled(text, 0, Gpus::SCALE)?;
    let share = u32::try_from(millionths).ok().and_then(Share::from_millionths);
    share.ok_or_else(|| QuantityError::NotAQuantity(shown(text)))
}

/// A length of time as people write it: numbers with the units `d`, `h`, `m`, `s`, `ms`, one after the other.
pub fn span(text: &str) -> Result<Span, QuantityError> {
    let refused = || QuantityError::NotASpan(text.into());
    let mut rest = text;
    let mut millis: u64 = 0;
    if rest.is_empty() || rest.len() > TEXT_BYTES_MAX {
        return Err(refused());
    }
    while !rest.is_empty() {
        let unit_at = rest.find(|letter: char| letter.is_ascii_alphabetic()).ok_or_else(refused)?;
        let (number, after) = rest.split_at(unit_at);
        let next = after.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(next);
        let scale: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(refused()),
        };
        let (whole, part) = decimal(number).ok_or_else(refused)?;
        let part = (u128::from(part) * u128::from(scale)).div_ceil(10u128.pow(DECIMALS_MAX as u32));
        let one = whole.checked_mul(scale).and_then(|whole| whole.checked_add(u64::try_from(part).ok()?));
        let sum = one.and_then(|one| millis.checked_add(one)).filter(|sum| *sum <= SPAN_MAX.0);
        millis = sum.ok_or_else(|| QuantityError::TooLarge(text.into()))?;
        rest = after;
    }
    Ok(Span(millis))
}

/// The canonical text of CPU.
pub fn cpu_text(cpu: Cpu) -> String {
    decimal_text(cpu.0, &[("", 1_000), ("m", 1)])
}

/// The canonical text of bytes, with a binary unit.
pub fn bytes_text(bytes: Bytes) -> String {
    let units = [
        ("Ei", 1 << 60),
        ("Pi", 1 << 50),
        ("Ti", 1 << 40),
        ("Gi", 1 << 30),
        ("Mi", 1 << 20),
        ("Ki", 1 << 10),
    ];
    decimal_text(bytes.0, &units)
}

/// The canonical text of GPUs, as a quantity: half of one is `500m`.
pub fn gpus_text(gpus: Gpus) -> String {
    decimal_text(gpus.0, &[("", 1_000_000), ("m", 1_000), ("u", 1)])
}

/// The canonical text of a share: half of a device is `500k`.
pub fn share_text(share: Share) -> String {
    decimal_text(u64::from(share.millionths()), &[("M", 1_000_000), ("k", 1_000)])
}

/// With the largest unit that leaves a whole number.
fn decimal_text(value: u64, units: &[(&str, u64)]) -> String {
    let (unit, scale) = match value {
        0 => ("", 1),
        _ => units.iter().copied().find(|(_, scale)| value.is_multiple_of(*scale)).unwrap_or(("", 1)),
    };
    format!("{}{unit}", value / scale)
}

/// What a suffix multiplies with: a power of two, or a power of ten.
enum Scale {
    Two(u32),
    Ten(i32),
}

/// A quantity as a number of `10^-decimals`, rounded up.
fn scaled(text: &str, decimals: i32, max: u64) -> Result<u64, QuantityError> {
    let refused = || QuantityError::NotAQuantity(shown(text));
    let too_large = || QuantityError::TooLarge(shown(text));
    if text.len() > TEXT_BYTES_MAX {
        return Err(refused());
    }
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, suffix) = unsigned.split_at(end.unwrap_or(unsigned.len()));
    let scale = scale(suffix).ok_or_else(refused)?;
    let (whole, part) = match decimal(number) {
        Some(value) => value,
        // Digits alone can still be more than any amount.
        None if is_decimal(number) => return Err(too_large()),
        None => return Err(refused()),
    };
    if (whole, part) == (0, 0) {
        return Ok(0);
    }
    if negative {
        return Err(QuantityError::Negative(shown(text)));
    }
    let (shift, ten) = match scale {
        Scale::Two(shift) => (shift, decimals),
        Scale::Ten(ten) => (0, ten + decimals),
    };
    let value = multiplied(whole, part, shift, ten).ok_or_else(too_large)?;
    u64::try_from(value).ok().filter(|value| *value <= max).ok_or_else(too_large)
}

/// `(whole + part / 10^18) * 2^shift * 10^ten`, rounded up; none when that is beyond 128 bits.
fn multiplied(whole: u64, part: u64, shift: u32, ten: i32) -> Option<u128> {
    let two = 1u128 << shift;
    let (whole, part) = (u128::from(whole) * two, u128::from(part) * two);
    let unit = 10u128.pow(DECIMALS_MAX as u32);
    let (whole, part) = (whole + part / unit, part % unit);
    if ten >= 0 {
        let scale = 10u128.checked_pow(ten.unsigned_abs())?;
        return whole.checked_mul(scale)?.checked_add(part.checked_mul(scale)?.div_ceil(unit));
    }
    let Some(scale) = 10u128.checked_pow(ten.unsigned_abs()) else {
        return Some(1);
    };
    let above = whole % scale > 0 || part > 0;
    Some(whole / scale + u128::from(above))
}

/// The whole part, and what comes after the point in `10^-18`; none when either has too many digits.
fn decimal(number: &str) -> Option<(u64, u64)> {
    if !is_decimal(number) {
        return None;
    }
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let part = part.trim_end_matches('0');
    if part.len() > DECIMALS_MAX {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let digits: u64 = if part.is_empty() { 0 } else { part.parse().ok()? };
    Some((whole, digits * 10u64.pow((DECIMALS_MAX - part.len()) as u32)))
}

fn is_decimal(number: &str) -> bool {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !(whole.is_empty() && part.is_empty()) && digits(whole) && digits(part)
}

fn scale(suffix: &str) -> Option<Scale> {
    Some(match suffix {
        "" => Scale::Ten(0),
        "n" => Scale::Ten(-9),
        "u" => Scale::Ten(-6),
        "m" => Scale::Ten(-3),
        "k" => Scale::Ten(3),
        "M" => Scale::Ten(6),
        "G" => Scale::Ten(9),
        "T" => Scale::Ten(12),
        "P" => Scale::Ten(15),
        "E" => Scale::Ten(18),
        "Ki" => Scale::Two(10),
        "Mi" => Scale::Two(20),
        "Gi" => Scale::Two(30),
        "Ti" => Scale::Two(40),
        "Pi" => Scale::Two(50),
        "Ei" => Scale::Two(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            Scale::Ten(if is_number { exponent.parse::<i32>().ok()?.clamp(-60, 60) } else { return None })
        }
    })
}

/// The beginning of a text that may hold anything.
fn shown(text: &str) -> String {
    text.chars().take(TEXT_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_are_read_exactly_and_rounded_up() {
        for (text, millionths) in [
            ("0", 0),
            ("-0", 0),
            ("1", 1_000_000),
            ("+2", 2_000_000),
            ("1.", 1_000_000),
            (".5", 500_000),
            ("0.5", 500_000),
            ("500m", 500_000),
            ("1u", 1),
            ("1n", 1),
            ("0.0000001", 1),
            ("0.3333333", 333_334),
            ("1e3", 1_000_000_000),
            ("1E3", 1_000_000_000),
            ("1e+3", 1_000_000_000),
            ("5e-1", 500_000),
            ("1e-40", 1),
            ("1k", 1_000_000_000),
            ("1Ki", 1_024_000_000),
            ("0.000000000000000001", 1),
        ] {
            assert_eq!(gpus(text), Ok(Gpus(millionths)), "{text}");
        }
        for (text, value) in [
            ("1Gi", 1 << 30),
            ("32510Mi", 32_510 << 20),
            ("1.5Gi", 1536 << 20),
            ("0.1Ki", 103),
            ("1M", 1_000_000),
            ("1e9", 1_000_000_000),
            ("1500m", 2),
            ("0.5Ei", 1 << 59),
            ("0.000000000000000001Ei", 2),
            ("1152921504606846976", 1 << 60),
        ] {
            assert_eq!(bytes(text), Ok(Bytes(value)), "{text}");
        }
        for (text, millis) in [("4", 4000), ("250m", 250), ("0.1", 100), ("1u", 1), ("2k", 2_000_000)] {
            assert_eq!(cpu(text), Ok(Cpu(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_told_apart_from_what_is_too_large() {
        for text in [
            "", ".", "m", "Gi", "1 Gi", "1gi", "1K", "1.2.3", "1e", "1e1.5", "--1", "0x10", "é", "1e3Gi",
            "NaN",
        ] {
            assert_eq!(bytes(text), Err(QuantityError::NotAQuantity(text.into())), "{text}");
        }
        for text in ["2Ei", "1e60", "99999999999999999999", "1e99999999"] {
            assert_eq!(bytes(text), Err(QuantityError::TooLarge(text.into())), "{text}");
        }
        assert_eq!(gpus("-1"), Err(QuantityError::Negative("-1".into())));
        assert!(matches!(gpus(&"1".repeat(100)), Err(QuantityError::NotAQuantity(_))));
    }

    #[test]
    fn canonical_texts_are_those_of_kubernetes() {
        assert_eq!(gpus_text(Gpus(500_000)), "500m");
        assert_eq!(gpus_text(Gpus(333_334)), "333334u");
        assert_eq!(gpus_text(Gpus::whole(2)), "2");
        assert_eq!(cpu_text(Cpu(1500)), "1500m");
        assert_eq!(bytes_text(Bytes::mib(32_510)), "32510Mi");
        assert_eq!(bytes_text(Bytes(1000)), "1000");
        assert_eq!(bytes_text(Bytes::gib(1024)), "1Ti");
        for (text, millionths) in [("1M", 1_000_000), ("500k", 500_000), ("333334", 333_334), ("1", 1)] {
            let part = Share::from_millionths(millionths).expect("a share");
            assert_eq!((share_text(part).as_str(), share(text)), (text, Ok(part)));
        }
        assert!(share("0").is_err() && share("1000001").is_err());
        assert_eq!((gpus_text(Gpus::ZERO), bytes_text(Bytes::ZERO)), ("0".into(), "0".into()));
    }

    #[test]
    fn spans_are_read_as_people_write_them() {
        for (text, millis) in [
            ("30s", 30_000),
            ("2h", 7_200_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("250ms", 250),
            ("7d", 604_800_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("0s", 0),
        ] {
            assert_eq!(span(text), Ok(Span(millis)), "{text}");
        }
        for text in ["", "5", "s", "1h30", "1 h", "-1s", "1y", "h1"] {
            assert_eq!(span(text), Err(QuantityError::NotASpan(text.into())), "{text}");
        }
        assert_eq!(span("40000d"), Err(QuantityError::TooLarge("40000d".into())));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value in 0..=Bytes::MAX.0, small in 0..=Gpus::MAX.0, millis in 0..=Cpu::MAX.0) {
            prop_assert_eq!(bytes(&bytes_text(Bytes(value))), Ok(Bytes(value)));
            prop_assert_eq!(gpus(&gpus_text(Gpus(small))), Ok(Gpus(small)));
            prop_assert_eq!(gpus(&Gpus(small).to_string()), Ok(Gpus(small)));
            prop_assert_eq!(cpu(&cpu_text(Cpu(millis))), Ok(Cpu(millis)));
        }

        #[test]
        fn a_decimal_is_never_rounded_down(whole in 0u64..1000, digits in "[0-9]{1,18}") {
            let text = format!("{whole}.{digits}");
            let exact = u128::from(whole) * 10u128.pow(18)
                + digits.parse::<u128>().expect("digits") * 10u128.pow(18 - digits.len() as u32);
            let read = u128::from(gpus(&text).expect("a quantity").0) * 10u128.pow(12);
            prop_assert!(read >= exact && read - exact < 10u128.pow(12), "{} {}", read, exact);
        }

        #[test]
        fn no_text_breaks_the_reader(text in ".{0,40}") {
            let _ = (bytes(&text), gpus(&text), cpu(&text), span(&text));
        }

        #[test]
        fn spans_are_read_back(secs in 0u64..4_000_000) {
            // Text for people leaves out what is small beside the rest, so only what it shows is compared.
            let written = Span::secs(secs).to_string();
            let read = span(&written).expect("a span");
            prop_assert_eq!(read.to_string(), written);
        }
    }
}
