//! Splits a line typed by a person into arguments: blanks separate, `"..."` takes escapes
//! (`\n \r \t \b \a \xHH`, and any other character for itself), `'...'` takes only `\'`.

use super::parser::Span;

/// Splits `line` into `spans` of `text`, both overwritten. False: a quote is not closed, or
/// something other than a blank follows a closing quote.
pub(super) fn split(line: &[u8], text: &mut Vec<u8>, spans: &mut Vec<Span>) -> bool {
    text.clear();
    spans.clear();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return true;
        }
        let start = text.len() as u32;
        match word(rest, text) {
            Some(after) => rest = after,
            None => return false,
        }
        spans.push((start, text.len() as u32));
    }
}

/// Appends one argument to `text` and returns what follows it.
fn word<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    while let Some((&byte, after)) = rest.split_first() {
        match byte {
            b'"' => return closed(double_quoted(after, text)?),
            b'\'' => return closed(single_quoted(after, text)?),
            _ if byte.is_ascii_whitespace() || byte == 0 => return Some(after),
            _ => text.push(byte),
        }
        rest = after;
    }
    Some(rest)
}

/// A closing quote must be followed by a blank or the end of the line.
fn closed(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(|byte| byte.is_ascii_whitespace()).then_some(rest)
}

fn double_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [b'"', after @ ..] => return Some(after),
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                text.push(hex(*high) << 4 | hex(*low));
                after
            }
            [b'\\', escaped, after @ ..] => {
                text.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                after
            }
            [byte, after @ ..] => {
                text.push(*byte);
                after
            }
            [] => return None,
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [b'\'', after @ ..] => return Some(after),
            [b'\\', b'\'', after @ ..] => {
                text.push(b'\'');
                after
            }
            [byte, after @ ..] => {
                text.push(*byte);
                after
            }
            [] => return None,
        }
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
        let (mut text, mut spans) = (Vec::new(), Vec::new());
        split(line, &mut text, &mut spans).then(|| {
            spans.iter().map(|&(start, end)| text[start as usize..end as usize].to_vec()).collect()
        })
    }

    #[test]
    fn quotes_and_escapes() {
        type Case = (&'static [u8], Option<&'static [&'static [u8]]>);
        let cases: &[Case] = &[
            (b"", Some(&[])),
            (b"   \t ", Some(&[])),
            (b"get a", Some(&[b"get", b"a"])),
            (b"  set  a\t b  ", Some(&[b"set", b"a", b"b"])),
            (b"set a \"x y\"", Some(&[b"set", b"a", b"x y"])),
            (b"set a \"\\x41\\n\\\"\\q\"", Some(&[b"set", b"a", b"A\n\"q"])),
            (b"set a \"\\xZZ\"", Some(&[b"set", b"a", b"xZZ"])),
            (b"set a 'it\\'s \\n'", Some(&[b"set", b"a", b"it's \\n"])),
            (b"set a \"\"", Some(&[b"set", b"a", b""])),
            (b"set a x\"y\"", Some(&[b"set", b"a", b"xy"])),
            (b"\"abc", None),
            (b"'abc", None),
            (b"\"abc\"d", None),
            (b"'abc'd", None),
            (b"\"abc\\", None),
        ];
        for (line, expected) in cases {
            let expected =
                expected.map(|words| words.iter().map(|w| w.to_vec()).collect::<Vec<_>>());
            assert_eq!(words(line), expected, "{}", line.escape_ascii());
        }
    }
}
