//! How deep a statement nests, before anything looks at it by calling itself: a stack that overflows ends the process.
//!
//! The parser bounds brackets within brackets to 50, but reads `a OR b OR c` in a loop, of any length, to as many
//! levels. Here these are counted from the text's tokens, as no more than they are at the most.

use crate::error::{Error, Result};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// Deeper statements are refused.
const DEPTH_MOST: usize = 2000;
/// Deeper ones are given a larger stack: a level of NOT takes the parser up to 40 KB.
const SHALLOW: usize = 16;

/// Whether a text's statements need a larger stack.
///
/// # Errors
/// [`Error::Statement`] if one is too deep.
pub(crate) fn is_deep(text: &str) -> Result<bool> {
    // Each level takes two bytes at least.
    if text.len() < 2 * SHALLOW {
        return Ok(false);
    }
    // What are no tokens is told by the parser.
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, text).tokenize() else { return Ok(false) };
    match depth(&tokens) {
        deep if deep > DEPTH_MOST => Err(Error::Statement(format!(
            "the statement has more than {DEPTH_MOST} operators one behind the other; write `a IN (1, 2, 3)` for \
             `a = 1 OR a = 2 OR a = 3`, or ask in parts"
        ))),
        deep => Ok(deep > SHALLOW),
    }
}

/// How many operators stand one behind the other, with those of the brackets around them: the most of any place.
fn depth(tokens: &[Token]) -> usize {
    // Of each bracket that is open, since its last comma.
    let mut open = vec![0];
    let (mut sum, mut most) = (0, 0);
    for token in tokens {
        let keyword = match token {
            Token::Word(word) => word.keyword,
            _ => Keyword::NoKeyword,
        };
        match (token, keyword) {
            (Token::Whitespace(_), _) => {}
            (Token::LParen | Token::LBracket | Token::LBrace, _) | (_, Keyword::CASE) => {
                open.push(0)
            }
            (Token::RParen | Token::RBracket | Token::RBrace, _) | (_, Keyword::END) => {
                if open.len() > 1 {
                    sum -= open.pop().unwrap_or(0);
                }
                // What stands in brackets behind another is one level more of it.
                add(&mut open, &mut sum);
            }
            (Token::Comma | Token::SemiColon, _)
            | (_, Keyword::WHEN | Keyword::THEN | Keyword::ELSE) => {
                if let Some(last) = open.last_mut() {
                    sum -= std::mem::take(last);
                }
            }
            // What is no name and no value joins what is before it with what is behind.
            (Token::Word(_), Keyword::NoKeyword)
            | (Token::Number(..) | Token::SingleQuotedString(_) | Token::Placeholder(_), _) => {}
            _ => add(&mut open, &mut sum),
        }
        most = most.max(sum);
    }
    most
}

fn add(open: &mut [usize], sum: &mut usize) {
    if let Some(last) = open.last_mut() {
        *last += 1;
        *sum += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> usize {
        depth(&Tokenizer::new(&GenericDialect {}, text).tokenize().expect("tokens"))
    }

    #[test]
    fn chains_are_counted_and_lists_are_not() {
        assert!(of(&vec!["a"; 500].join(" OR ")) >= 499);
        assert!(of(&format!("SELECT ({}) + 1", vec!["a"; 500].join("||"))) >= 499);
        assert!(of(&vec!["SELECT 1"; 500].join(" UNION ALL ")) >= 499);
        assert!(of(&format!("SELECT a{}", "::INT".repeat(500))) >= 500);
        assert!(of(&format!("SELECT a{}", "[1]".repeat(500))) >= 500);
        assert!(of(&format!("SELECT {} 1", "- ".repeat(500))) >= 500);
        assert!(of(&format!("SELECT a {}", "IS NULL ".repeat(500))) >= 500);
        assert!(of(&format!("SELECT f(1, {}) OR c", vec!["a"; 500].join(" AND "))) >= 499);
        assert!(
            of(&format!("INSERT INTO t VALUES {}", vec!["(-1, 'a', NULL)"; 500].join(", "))) < 20
        );
        assert!(of(&format!("SELECT a IN ({})", vec!["-1"; 500].join(", "))) < 20);
        let cases = vec!["WHEN a = 1 THEN 2"; 500].join(" ");
        assert!(of(&format!("SELECT CASE {cases} END")) < 20);
        assert!(of("SELECT )))) END END") < 20);
    }

    #[test]
    fn what_is_too_deep_is_refused_and_what_is_short_is_not_looked_at() {
        let chain = |length| format!("SELECT {}", vec!["1"; length].join("+"));
        assert!(!is_deep("SELECT 1").expect("short"));
        assert!(!is_deep(&chain(15)).expect("shallow"));
        assert!(is_deep(&chain(1000)).expect("deep"));
        assert!(is_deep(&chain(3000)).expect_err("too deep").to_string().contains("IN (1, 2, 3)"));
    }
}
