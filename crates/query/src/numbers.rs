//! Numbers with a point, as the standard has them: 0.1 is a decimal, 1e-1 a float.
//!
//! The engine reads decimals if told so, and then compares a column of floats with them as decimals, which have no room
//! for large floats and are no floats. Beside a float they are made floats here, before types are made to fit.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::analyzer::{Analyzer, AnalyzerRule};
use datafusion::scalar::ScalarValue;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Makes floats of literals with an exponent, as the standard has it; those without one are decimals.
pub(crate) fn make_floats(statement: &mut Statement) {
    let statement = match statement {
        Statement::Statement(statement) => statement,
        Statement::Explain(explain) => return make_floats(&mut explain.statement),
        _ => return,
    };
    let _all = ast::visit_expressions_mut(statement, |expression| {
        if let ast::Expr::Value(value) = expression
            && let ast::Value::Number(number, _) = &value.value
            && number.contains(['e', 'E'])
        {
            let text = ast::Value::SingleQuotedString(number.clone());
            *expression = ast::Expr::Cast {
                kind: ast::CastKind::Cast,
                expr: Box::new(ast::Expr::Value(text.into())),
                data_type: ast::DataType::Double(ast::ExactNumberInfo::None),
                array: false,
                format: None,
            };
        }
        ControlFlow::<()>::Continue(())
    });
}

/// The engine's own rules, behind the one of this file.
pub(crate) fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> = vec![Arc::new(FloatsBesideFloats)];
    rules.extend(Analyzer::new().rules);
    rules
}

#[derive(Debug)]
struct FloatsBesideFloats;

impl AnalyzerRule for FloatsBesideFloats {
    fn name(&self) -> &str {
        "floats_beside_floats"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| {
            let mut schema = DFSchema::empty();
            plan.inputs().iter().for_each(|input| schema.merge(input.schema()));
            if let LogicalPlan::TableScan(scan) = &plan {
                schema.merge(&scan.projected_schema);
            }
            plan.map_expressions(|expression| {
                expression.transform_up(|part| Ok(beside(part, &schema)))
            })
        });
        changed.map(|changed| changed.data)
    }
}

/// Makes a float of a decimal that stands beside one.
fn beside(expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let is_float = |of: &Expr| {
        matches!(of.get_type(schema), Ok(DataType::Float16 | DataType::Float32 | DataType::Float64))
    };
    let mut expression = expression;
    let mut changed = false;
    let mut change = |of: &mut Expr| {
        if let Expr::Literal(value @ ScalarValue::Decimal128(Some(_), ..), metadata) = of
            && let Ok(float) = value.cast_to(&DataType::Float64)
        {
            *of = Expr::Literal(float, metadata.take());
            changed = true;
        }
    };
    match &mut expression {
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => match (is_float(left), is_float(right))
        {
            (true, false) => change(right),
            (false, true) => change(left),
            _ => {}
        },
        Expr::Between(between) if is_float(&between.expr) => {
            change(&mut between.low);
            change(&mut between.high);
        }
        Expr::InList(list) if is_float(&list.expr) => list.list.iter_mut().for_each(change),
        _ => {}
    }
    if changed { Transformed::yes(expression) } else { Transformed::no(expression) }
}
