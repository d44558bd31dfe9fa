//! Bytes that are compared with patterns of texts: keys and values of maps, which may be anything.
//!
//! The engine makes texts of them, and fails at the first that is none. What is no text is like no pattern: here it
//! becomes NULL, which no condition holds for.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Expr, Like, LogicalPlan, Operator, TryCast};
use datafusion::optimizer::analyzer::AnalyzerRule;

/// Comes behind the engine's own rules: they make types fit.
#[derive(Debug)]
pub(crate) struct BytesLike;

impl AnalyzerRule for BytesLike {
    fn name(&self) -> &str {
        "bytes_like"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| {
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expression| {
                let name = names.save(&expression);
                let changed = expression.transform_up(|part| Ok(like(part)))?;
                Ok(changed.update_data(|expression| name.restore(expression)))
            })
        });
        changed.map(|changed| changed.data)
    }
}

fn like(mut expression: Expr) -> Transformed<Expr> {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    let of = match &mut expression {
        Expr::Like(Like { expr, .. }) | Expr::SimilarTo(Like { expr, .. }) => expr,
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch,
            ..
        }) => left,
        _ => return Transformed::no(expression),
    };
    let Expr::Cast(cast) = &mut **of else { return Transformed::no(expression) };
    if !matches!(cast.field.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
    {
        return Transformed::no(expression);
    }
    // Whatever is made a text of: of other types than bytes each value is one.
    let inner = std::mem::take(&mut *cast.expr);
    **of = Expr::TryCast(TryCast { expr: Box::new(inner), field: cast.field.clone() });
    Transformed::yes(expression)
}
