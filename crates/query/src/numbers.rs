//! Numbers with a point, as the standard has them: 0.1 is a decimal, 1e-1 a float.
//!
//! The engine reads decimals if told so, and then compares a column of floats with them as decimals, which have no room
//! for large floats and are no floats. Beside a float they are made floats here, before types are made to fit.

use crate::bytes::BytesLike;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
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

/// The engine's own rules, between the one of this file and that for patterns.
pub(crate) fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> = vec![Arc::new(FloatsBesideFloats)];
    rules.extend(Analyzer::new().rules);
    rules.push(Arc::new(BytesLike));
    rules
}

#[derive(Debug)]
struct FloatsBesideFloats;

impl AnalyzerRule for FloatsBesideFloats {
    fn name(&self) -> &str {
        "floats_beside_floats"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_decimals(&plan)? {
            return Ok(plan);
        }
        let changed = plan.transform_up_with_subqueries(|plan| {
            let mut schema = DFSchema::empty();
            plan.inputs().iter().for_each(|input| schema.merge(input.schema()));
            if let LogicalPlan::TableScan(scan) = &plan {
                schema.merge(&scan.projected_schema);
            }
            // Other nodes know the expressions by their names.
            let names = NamePreserver::new(&plan);
            let changed = plan.map_expressions(|expression| {
                let name = names.save(&expression);
                let changed = expression.transform_up(|part| Ok(beside(part, &schema)))?;
                Ok(changed.update_data(|expression| name.restore(expression)))
            })?;
            changed.map_data(LogicalPlan::recompute_schema)
        });
        changed.map(|changed| changed.data)
    }
}

/// Whether there is anything to do: mostly there is not, and planning takes no longer for this.
fn has_decimals(plan: &LogicalPlan) -> Result<bool> {
    let is_decimal =
        |part: &Expr| Ok(matches!(part, Expr::Literal(ScalarValue::Decimal128(..), _)));
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expression| {
            found = found || expression.exists(is_decimal)?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

/// Makes a float of a decimal that stands beside one.
fn beside(expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let float = |of: &Expr| {
        let kind = of.get_type(schema).ok();
        kind.filter(|kind| matches!(kind, DataType::Float32 | DataType::Float64))
    };
    let mut expression = expression;
    let mut changed = false;
    let mut change = |of: &mut Expr, kind: &DataType| {
        if let Expr::Literal(value @ ScalarValue::Decimal128(Some(_), ..), metadata) = of
            && let Ok(float) = value.cast_to(kind)
        {
            *of = Expr::Literal(float, metadata.take());
            changed = true;
        }
    };
    match &mut expression {
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => match (float(left), float(right)) {
            (Some(kind), None) => change(right, &kind),
            (None, Some(kind)) => change(left, &kind),
            _ => {}
        },
        Expr::Between(between) => {
            if let Some(kind) = float(&between.expr) {
                change(&mut between.low, &kind);
                change(&mut between.high, &kind);
            }
        }
        Expr::InList(list) => {
            if let Some(kind) = float(&list.expr) {
                list.list.iter_mut().for_each(|part| change(part, &kind));
            }
        }
        _ => {}
    }
    if changed { Transformed::yes(expression) } else { Transformed::no(expression) }
}
