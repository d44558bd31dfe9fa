//! Statements of a text: the engine's, and COPY FROM, which it does not know.

use crate::error::{Error, Result};
use datafusion::error::DataFusionError;
use datafusion::sql::parser::{DFParser, DFParserBuilder, Statement};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;
use std::collections::VecDeque;

/// The statements of a text, with `;` between.
///
/// # Errors
/// [`Error::Statement`] with the line and the column.
pub(crate) fn parse(text: &str) -> Result<VecDeque<Statement>> {
    let mut parser = DFParserBuilder::new(text).build()?;
    let (mut statements, mut is_ended) = (VecDeque::new(), true);
    loop {
        while parser.parser.consume_token(&Token::SemiColon) {
            is_ended = true;
        }
        let next = parser.parser.peek_token();
        if next == Token::EOF {
            return Ok(statements);
        }
        if !is_ended {
            let (found, at) = (&next.token, next.span.start);
            return Err(Error::Statement(format!(
                "Expected: `;` between statements, found: {found}{at}"
            )));
        }
        statements.push_back(match is_copy_from(&parser) {
            true => {
                let statement = parser.parser.parse_statement();
                Statement::Statement(Box::new(statement.map_err(DataFusionError::from)?))
            }
            false => parser.parse_statement()?,
        });
        is_ended = false;
    }
}

/// Whether a statement is to begin that copies from somewhere into a table.
fn is_copy_from(parser: &DFParser<'_>) -> bool {
    let keyword = |number| match parser.parser.peek_nth_token(number).token {
        Token::Word(word) => Some(word.keyword),
        _ => None,
    };
    if keyword(0) != Some(Keyword::COPY) {
        return false;
    }
    // Behind the table's name, and its columns.
    for number in 1.. {
        match (keyword(number), parser.parser.peek_nth_token(number).token) {
            (Some(Keyword::FROM), _) => return true,
            (Some(Keyword::TO | Keyword::SELECT | Keyword::WITH), _)
            | (_, Token::EOF | Token::SemiColon) => return false,
            _ => {}
        }
    }
    false
}
