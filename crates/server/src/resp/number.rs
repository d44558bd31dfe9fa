//! Numbers as Redis reads and writes them in values and arguments.
//!
//! Integers are strict: no blanks, no `+`, no leading zeros. Decimal fractions are added exactly:
//! Redis uses an 80-bit float and prints 17 decimals, which Rust has not; a fixed-point sum of
//! 128 bits with 17 decimals gives the digits people expect (`0.1 + 0.2 = 0.3`), and only numbers
//! outside its range fall back to 64-bit floats.

/// Decimals kept by [`add_decimal`].
const SCALE_DIGITS: usize = 17;
const SCALE: i128 = 100_000_000_000_000_000;

/// Formats `value` at the end of `digits` and returns the part used.
#[inline]
pub(crate) fn decimal(value: i64, digits: &mut [u8; 20]) -> &[u8] {
    let mut rest = value.unsigned_abs();
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        digits[at] = b'-';
    }
    &digits[at..]
}

/// A 64-bit integer written the only way Redis writes it.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [] => return None,
        [b'0'] => return (!negative).then_some(0),
        [b'0', ..] => return None,
        _ if digits.len() > 19 => return None,
        _ => {}
    }
    let mut magnitude: u64 = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    match negative {
        true => 0i64.checked_sub_unsigned(magnitude),
        false => i64::try_from(magnitude).ok(),
    }
}

/// A decimal number as `value * 10^17`, if it is one that fits exactly.
fn fixed(text: &[u8]) -> Option<i128> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let (whole, fraction) = match digits.iter().position(|&byte| byte == b'.') {
        Some(dot) => (&digits[..dot], &digits[dot + 1..]),
        None => (digits, &[][..]),
    };
    if whole.len() + fraction.len() == 0 || whole.len() > 20 || fraction.len() > SCALE_DIGITS {
        return None;
    }
    let mut value: i128 = 0;
    let padding = std::iter::repeat_n(&b'0', SCALE_DIGITS - fraction.len());
    for byte in whole.iter().chain(fraction).chain(padding) {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i128::from(byte - b'0');
    }
    Some(if negative { -value } else { value })
}

/// A floating-point number as the C library reads it (no hexadecimal), `inf` included.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    let starts_well = text.first().is_some_and(|byte| !byte.is_ascii_whitespace());
    let value: f64 = std::str::from_utf8(text).ok().filter(|_| starts_well)?.parse().ok()?;
    (!value.is_nan()).then_some(value)
}

/// Why two numbers could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAdded {
    /// One of the two is not a number.
    NotANumber,
    /// The sum is infinite or undefined.
    NotFinite,
}

/// `value + increment`, written without exponent and without trailing zeros.
pub(crate) fn add_decimal(value: &[u8], increment: &[u8]) -> Result<String, NotAdded> {
    if let (Some(value), Some(increment)) = (fixed(value), fixed(increment)) {
        return Ok(fixed_text(value + increment));
    }
    let value = float(value).ok_or(NotAdded::NotANumber)?;
    let sum = value + float(increment).ok_or(NotAdded::NotANumber)?;
    if !sum.is_finite() {
        return Err(NotAdded::NotFinite);
    }
    Ok(if sum == 0.0 { "0".into() } else { format!("{sum}") })
}

fn fixed_text(sum: i128) -> String {
    let magnitude = sum.unsigned_abs();
    let (whole, fraction) = (magnitude / SCALE as u128, magnitude % SCALE as u128);
    let sign = if sum < 0 { "-" } else { "" };
    match fraction {
        0 => format!("{sign}{whole}"),
        _ => format!("{sign}{whole}.{}", format!("{fraction:017}").trim_end_matches('0')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_round_trip() {
        for value in [0, 1, -1, 9, 10, 99, 12345, i64::MAX, i64::MIN, i64::MIN + 1] {
            let mut digits = [0; 20];
            let text = decimal(value, &mut digits).to_vec();
            assert_eq!(text, value.to_string().into_bytes());
            assert_eq!(integer(&text), Some(value));
        }
    }

    #[test]
    fn integers_are_strict() {
        for text in [
            "",
            "-",
            "+1",
            " 1",
            "1 ",
            "01",
            "-0",
            "00",
            "1.0",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
            "1a",
            "--1",
        ] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn decimals_are_exact() {
        let cases = [
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.1", "10.6"),
            ("3.0e3", "200", "3200"),
            ("5", "-5", "0"),
            ("1.5", "1.5", "3"),
            ("-0.5", "0.25", "-0.25"),
            ("1e2", "1", "101"),
            ("12345678901234567890", "0.5", "12345678901234567890.5"),
            (".5", "1.", "1.5"),
        ];
        for (value, increment, sum) in cases {
            assert_eq!(
                add_decimal(value.as_bytes(), increment.as_bytes()).as_deref(),
                Ok(sum),
                "{value} + {increment}"
            );
        }
        assert_eq!(add_decimal(b"1", b"inf"), Err(NotAdded::NotFinite));
        assert_eq!(add_decimal(b"1", b"nan"), Err(NotAdded::NotANumber));
        assert_eq!(add_decimal(b" 1", b"1"), Err(NotAdded::NotANumber));
        assert_eq!(add_decimal(b"abc", b"1"), Err(NotAdded::NotANumber));
    }
}
