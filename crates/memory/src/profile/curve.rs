//! A figure by the bytes of a piece, between the sizes that were measured.

/// A figure at some sizes, rising, of which there is one at least.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Curve(Vec<(u64, f64)>);

impl Curve {
    /// Of these; none without any.
    pub fn of(points: impl IntoIterator<Item = (u64, f64)>) -> Option<Curve> {
        let mut points: Vec<(u64, f64)> = points.into_iter().collect();
        points.sort_by_key(|(bytes, _)| *bytes);
        (!points.is_empty()).then_some(Curve(points))
    }

    /// The figure of a piece of `bytes`: between two sizes by its place on a scale of powers, beyond them
    /// that of the nearest.
    pub fn at(&self, bytes: u64) -> f64 {
        let Curve(points) = self;
        let above = points.partition_point(|(measured, _)| *measured < bytes);
        let at = |i: usize| points[i.min(points.len() - 1)];
        let ((low, figure), (high, next)) = (at(above.saturating_sub(1)), at(above));
        if bytes <= low || low == high {
            return if bytes <= low { figure } else { next };
        }
        let share = (bytes as f64 / low as f64).log2() / (high as f64 / low as f64).log2();
        figure + share.min(1.0) * (next - figure)
    }

    /// What was measured.
    pub fn points(&self) -> &[(u64, f64)] {
        &self.0
    }
}
