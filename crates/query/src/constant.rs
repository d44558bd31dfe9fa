//! Constants of columns: what DEFAULT says, and what rows have in a column that came after them.

use crate::error::{Error, Result};
use crate::schema::ColumnType;
use datafusion::arrow::array::ArrayRef;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Cast, Expr, Volatility};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::scalar::ScalarValue;
use serde::{Deserialize, Serialize};

/// A value of a column that is not NULL, as a text: the catalogue is JSON, whose numbers are not those of all types.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Constant(String);

impl Constant {
    /// The value of an expression as one of this type; none if it is NULL.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for what is not the same whenever it is computed; [`Error::Statement`] for what is no
    /// value of the type.
    pub(crate) fn of(expression: Expr, column: &str, kind: ColumnType) -> Result<Option<Constant>> {
        let changes = |part: &Expr| {
            Ok(match part {
                Expr::ScalarFunction(call) => {
                    call.func.signature().volatility != Volatility::Immutable
                }
                Expr::Literal(..) | Expr::Cast(_) | Expr::Negative(_) | Expr::BinaryExpr(_) => {
                    false
                }
                _ => true,
            })
        };
        if expression.exists(changes)? {
            return Err(Error::Unsupported {
                what: format!("`DEFAULT {expression}`, which is no constant,"),
                instead: "give the value in INSERT",
            });
        }
        let cast = Expr::Cast(Cast::new(Box::new(expression.clone()), kind.arrow()));
        let simplified = ExprSimplifier::new(SimplifyContext::builder().build()).simplify(cast);
        match simplified {
            Ok(Expr::Literal(value, _)) if value.is_null() => Ok(None),
            Ok(Expr::Literal(value, _)) if value.data_type() == kind.arrow() => {
                let text = text_of(&value)?;
                Ok(Some(Constant(text)))
            }
            _ => Err(Error::Statement(format!(
                "`DEFAULT {expression}` of column `{column}` is no value of the type {kind}"
            ))),
        }
    }

    /// The value; none if the text is not one of this type.
    pub(crate) fn value(&self, kind: ColumnType) -> Option<ScalarValue> {
        if kind == ColumnType::Bytes {
            return bytes_of_digits(&self.0).map(|bytes| ScalarValue::Binary(Some(bytes)));
        }
        let value = ScalarValue::try_from_string(self.0.clone(), &kind.arrow()).ok()?;
        (!value.is_null()).then_some(value)
    }
}

impl std::fmt::Display for Constant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// So many rows with what a column's constant says, or NULL.
pub(crate) fn repeated(constant: Option<&Constant>, kind: ColumnType, rows: usize) -> ArrayRef {
    let value = match constant {
        Some(constant) => constant.value(kind).expect("invariant: looked at when it was read"),
        None => ScalarValue::try_new_null(&kind.arrow()).expect("invariant: each type has NULL"),
    };
    value.to_array_of_size(rows).expect("invariant: an array of one value can be had")
}

fn text_of(value: &ScalarValue) -> Result<String> {
    if let ScalarValue::Binary(Some(bytes)) = value {
        return Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
    }
    match value.cast_to(&datafusion::arrow::datatypes::DataType::Utf8)? {
        ScalarValue::Utf8(Some(text)) => Ok(text),
        other => unreachable!("invariant: a text of a value is one, not {other}"),
    }
}

/// The bytes of hexadecimal digits.
pub(crate) fn bytes_of_digits(text: &str) -> Option<Vec<u8>> {
    let digit = |sign: char| sign.to_digit(16).map(|digit| digit as u8);
    let digits = text.chars().map(digit).collect::<Option<Vec<u8>>>()?;
    let (pairs, rest) = digits.as_chunks();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}
