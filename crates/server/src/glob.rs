//! Patterns as `KEYS`, `SCAN MATCH` and `CONFIG GET` take them: `*`, `?`, `[a-z]`, `[^a]`, `\x`.
//!
//! Matching takes at most pattern times text steps: a star remembers where it stood and only the
//! latest star is ever retried, so no pattern makes the server spin.

/// Whether the whole of `text` matches `pattern`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_by(pattern, text, |a, b| a == b, |byte| byte)
}

/// The same, taking capital and small letters for one.
pub(crate) fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    matches_by(pattern, text, |a, b| a.eq_ignore_ascii_case(&b), |byte| byte.to_ascii_lowercase())
}

fn matches_by(
    pattern: &[u8],
    text: &[u8],
    equal: impl Fn(u8, u8) -> bool,
    fold: impl Fn(u8) -> u8,
) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, t));
            continue;
        }
        if t == text.len() {
            return p == pattern.len();
        }
        match one(&pattern[p..], text[t], &equal, &fold) {
            Some(used) => {
                p += used;
                t += 1;
            }
            None => match &mut star {
                Some((after, tried)) => {
                    *tried += 1;
                    (p, t) = (*after, *tried);
                }
                None => return false,
            },
        }
    }
}

/// Matches one byte against the first element of `pattern`; how much of the pattern that took.
fn one(
    pattern: &[u8],
    byte: u8,
    equal: &impl Fn(u8, u8) -> bool,
    fold: &impl Fn(u8) -> u8,
) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => {
            let (matched, used) = class_matches(class, fold(byte), fold);
            matched.then_some(1 + used)
        }
        [b'\\', escaped, ..] => equal(*escaped, byte).then_some(2),
        [plain, ..] => equal(*plain, byte).then_some(1),
    }
}

/// Whether a class (the text after `[`) holds `byte`, and how long the class is. A class that is
/// not closed ends with the pattern.
fn class_matches(class: &[u8], byte: u8, fold: &impl Fn(u8) -> u8) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        match class[at.min(class.len())..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                found |= fold(escaped) == byte;
                at += 2;
            }
            [from, b'-', to, ..] => {
                let (from, to) = (fold(from.min(to)), fold(from.max(to)));
                found |= (from..=to).contains(&byte);
                at += 3;
            }
            [plain, ..] => {
                found |= fold(plain) == byte;
                at += 1;
            }
        }
    }
    (found != negated, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let cases: &[(&str, &str, bool)] = &[
            ("*", "", true),
            ("*", "abc", true),
            ("a*", "abc", true),
            ("a*", "bc", false),
            ("*c", "abc", true),
            ("a*c", "abbbc", true),
            ("a*c", "abbb", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h[a-c]llo", "hdllo", false),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hxllo", false),
            ("[\\]]", "]", true),
            ("[a", "a", true),
            ("[a", "b", false),
            ("a[", "a", false),
            ("", "", true),
            ("", "a", false),
            ("a\\", "a\\", true),
            ("**a**b**", "xxaxxbxx", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), *expected, "{pattern} {text}");
        }
        assert!(matches_ignoring_case(b"MAX*[A-Z]", b"maxmemory"));
    }

    #[test]
    fn many_stars_stay_cheap() {
        let pattern = b"a*".repeat(50);
        let text = [b'a'; 10_000];
        assert!(!matches(&[&pattern[..], b"b"].concat(), &text));
    }
}
