//! What the conditions of a query say of single columns, whether they stand in the statement or come from a join while
//! it runs: of which value, of which range, or of which list of values each is.

use crate::schema::Definition;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use datafusion::physical_expr::expressions::{
    BinaryExpr as PhysicalBinary, Column, InListExpr, Literal,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;

/// Something that holds for all rows that are wanted. There may be more conditions: facts leave all rows that they hold
/// for, and perhaps more.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fact {
    /// A column, compared with a value by =, <, <=, > or >=.
    Compared { column: usize, operator: Operator, value: ScalarValue },
    /// Some columns are together one of these lists of values.
    Among { columns: Vec<usize>, values: Vec<Vec<ScalarValue>> },
}

impl Fact {
    /// As plans show it.
    pub fn text(&self, table: &Definition) -> String {
        let name = |column: &usize| &*table.columns[*column].name;
        match self {
            Fact::Compared { column, operator, value } => {
                format!("{} {operator} {value}", name(column))
            }
            Fact::Among { columns, values } => {
                let names: Vec<&str> = columns.iter().map(name).collect();
                format!("[{}] is one of {}", names.join(", "), values.len())
            }
        }
    }

    /// Whether it is of one of these columns.
    pub fn is_of(&self, columns: &[usize]) -> bool {
        match self {
            Fact::Compared { column, .. } => columns.contains(column),
            Fact::Among { columns: of, .. } => of.iter().any(|column| columns.contains(column)),
        }
    }
}

/// Longer lists are not looked at: they come from statements, and each value costs time while it is planned.
const VALUES_MOST: usize = 1 << 16;

/// What these filters, all of which hold, say of a table's columns.
pub(crate) fn of_filters(table: &Definition, filters: &[Expr]) -> Vec<Fact> {
    of_conditions(&|name| table.columns.iter().position(|of| of.name == name), filters)
}

/// The same of columns whose numbers `number` knows.
pub(crate) fn of_conditions(number: &dyn Fn(&str) -> Option<usize>, filters: &[Expr]) -> Vec<Fact> {
    let mut facts = Vec::new();
    filters.iter().for_each(|filter| gather(number, filter, &mut facts));
    facts
}

fn gather(number: &dyn Fn(&str) -> Option<usize>, filter: &Expr, facts: &mut Vec<Fact>) {
    let place = |column: &Expr| match column {
        Expr::Column(column) => number(&column.name),
        _ => None,
    };
    let compared = |column: &Expr, operator, value: &Expr| match value {
        Expr::Literal(value, _) => {
            place(column).map(|column| Fact::Compared { column, operator, value: value.clone() })
        }
        _ => None,
    };
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            gather(number, left, facts);
            gather(number, right, facts);
        }
        Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }) => {
            let (mut column, mut values) = (None, Vec::new());
            if alternatives(filter, &place, &mut column, &mut values).is_some() {
                let columns = column.into_iter().collect();
                facts.push(Fact::Among { columns, values });
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            let swapped = || op.swap().and_then(|op| compared(right, op, left));
            facts.extend(compared(left, *op, right).or_else(swapped));
        }
        Expr::Between(Between { expr, negated: false, low, high }) => {
            facts.extend(compared(expr, Operator::GtEq, low));
            facts.extend(compared(expr, Operator::LtEq, high));
        }
        Expr::InList(InList { expr, list, negated: false }) if list.len() <= VALUES_MOST => {
            let value = |value: &Expr| match value {
                Expr::Literal(value, _) => Some(vec![value.clone()]),
                _ => None,
            };
            let values = list.iter().map(value).collect::<Option<Vec<_>>>();
            if let (Some(column), Some(values)) = (place(expr), values) {
                facts.push(Fact::Among { columns: vec![column], values });
            }
        }
        _ => {}
    }
}

/// The values of one column that a filter names with OR between them; none if it says more than that.
fn alternatives(
    filter: &Expr,
    place: &impl Fn(&Expr) -> Option<usize>,
    column: &mut Option<usize>,
    values: &mut Vec<Vec<ScalarValue>>,
) -> Option<()> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = filter else { return None };
    match op {
        Operator::Or => {
            alternatives(left, place, column, values)?;
            alternatives(right, place, column, values)
        }
        Operator::Eq => {
            let (of, value) = match (&**left, &**right) {
                (of, Expr::Literal(value, _)) | (Expr::Literal(value, _), of) => {
                    (place(of)?, value)
                }
                _ => return None,
            };
            values.push(vec![value.clone()]);
            (*column.get_or_insert(of) == of).then_some(())
        }
        _ => None,
    }
}

fn is_comparison(operator: Operator) -> bool {
    matches!(operator, Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)
}

/// What an expression over a scan's rows says, whose columns are these of the table.
pub(crate) fn of_expression(
    expression: &Arc<dyn PhysicalExpr>,
    columns: &[usize],
    facts: &mut Vec<Fact>,
) {
    let place = |column: &Arc<dyn PhysicalExpr>| {
        columns.get(column.downcast_ref::<Column>()?.index()).copied()
    };
    let literal = |value: &Arc<dyn PhysicalExpr>| {
        value.downcast_ref::<Literal>().map(|literal| literal.value().clone())
    };
    if let Some(binary) = expression.downcast_ref::<PhysicalBinary>() {
        if *binary.op() == Operator::And {
            of_expression(binary.left(), columns, facts);
            of_expression(binary.right(), columns, facts);
        } else if is_comparison(*binary.op())
            && let (Some(column), Some(value)) = (place(binary.left()), literal(binary.right()))
        {
            facts.push(Fact::Compared { column, operator: *binary.op(), value });
        }
        return;
    }
    let Some(list) = expression.downcast_ref::<InListExpr>().filter(|list| !list.negated()) else {
        return;
    };
    let of: Option<Vec<usize>> = match list.expr().downcast_ref::<ScalarFunctionExpr>() {
        // A join of several columns asks for structures of them.
        Some(function) if function.name() == "struct" => {
            function.args().iter().map(place).collect()
        }
        Some(_) => None,
        None => place(list.expr()).map(|column| vec![column]),
    };
    let Some(of) = of else { return };
    let values = |value: &Arc<dyn PhysicalExpr>| match literal(value)? {
        ScalarValue::Struct(parts) if of.len() > 1 => {
            let parts = parts.columns().iter().map(|part| ScalarValue::try_from_array(part, 0));
            parts.collect::<Result<Vec<_>, _>>().ok()
        }
        value => (of.len() == 1).then(|| vec![value]),
    };
    let values = list.list().iter().map(values).collect::<Option<Vec<_>>>();
    if let Some(values) = values.filter(|values| values.iter().all(|value| value.len() == of.len()))
    {
        facts.push(Fact::Among { columns: of, values });
    }
}
