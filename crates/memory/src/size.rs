//! Amounts of memory as people write them: `64 GiB`, `512MiB`, `2G`.
//!
//! Memory is counted in powers of two here, whichever way the unit is spelled: `GB`, `GiB` and `G`
//! are the same.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};

/// An amount of bytes, read from a number or from text with a unit, and printed with the largest
/// unit that fits.
///
/// # Examples
/// ```
/// use terrace_memory::ByteSize;
/// assert_eq!("1.5 GiB".parse(), Ok(ByteSize(3 << 29)));
/// assert_eq!(ByteSize(64 << 20).to_string(), "64 MiB");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ByteSize(pub u64);

/// A text is not an amount of bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an amount of bytes such as 4096, \"512 MiB\" or \"64G\"")]
pub struct ParseSizeError {
    /// The text.
    pub text: String,
}

const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

impl FromStr for ByteSize {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, ParseSizeError> {
        parse(text.trim()).map(ByteSize).ok_or_else(|| ParseSizeError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<u64> {
    let unit_at =
        text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (amount, unit) = text.split_at(unit_at);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    let (whole, part) = amount.split_once('.').unwrap_or((amount, ""));
    let scaled = whole.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    scaled.checked_add(fraction(part, shift)?)
}

/// The digits after the point, in bytes, rounded down. Nine digits are enough to name a byte of a
/// gibibyte.
fn fraction(digits: &str, shift: u32) -> Option<u64> {
    const DIGITS_MAX: usize = 9;
    if digits.is_empty() {
        return Some(0);
    }
    if digits.len() > DIGITS_MAX || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let part = digits.parse::<u128>().ok()?;
    let scale = 10u128.pow(digits.len() as u32);
    u64::try_from((part << shift) / scale).ok()
}

impl fmt::Display for ByteSize {
    /// One decimal where the amount is not a whole number of its unit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut unit = 0;
        while unit + 1 < UNITS.len() && self.0 >> (10 * (unit + 1)) > 0 {
            unit += 1;
        }
        let shown = if self.0.is_multiple_of(1 << (10 * unit)) {
            format!("{} {}", self.0 >> (10 * unit), UNITS[unit])
        } else {
            let amount = self.0 as f64 / (1u64 << (10 * unit)) as f64;
            format!("{amount:.1} {}", UNITS[unit])
        };
        f.pad(&shown)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = ByteSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an amount of bytes such as 4096, \"512 MiB\" or \"64G\"")
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(bytes))
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
                u64::try_from(bytes)
                    .map(ByteSize)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(bytes), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_spelling() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("1b", 1),
            ("2k", 2 << 10),
            ("2 KiB", 2 << 10),
            ("512MB", 512 << 20),
            ("64 GiB", 64 << 30),
            ("0.5 TiB", 1 << 39),
            (" 1.25m ", (5 << 20) / 4),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for bad in
            ["", "GiB", "-1", "1.x", "1..2", "4 apples", "1e9", "20000000 TiB", "1.0000000001k"]
        {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad}");
        }
    }

    #[test]
    fn prints_the_largest_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (266_240 << 10, "260 MiB"),
            (u64::MAX, "16777216.0 TiB"),
        ] {
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
        assert_eq!(format!("{:>8}|", ByteSize(1024)), "   1 KiB|");
    }

    #[test]
    fn whole_amounts_survive_print_and_parse() {
        for shift in 0..50 {
            let size = ByteSize(3 << shift);
            let printed = size.to_string();
            if !printed.contains('.') {
                assert_eq!(printed.parse(), Ok(size));
            }
        }
    }
}
