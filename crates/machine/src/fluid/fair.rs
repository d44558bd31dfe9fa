//! Max-min fairness: who gets how much of what several share.

use super::flows::Use;

/// Resources that are this near to full are full: what is left is rounding.
const NEARLY: f64 = 1e-9;

/// What wants to flow.
pub(super) struct Demand<'a> {
    /// Its rate with everything for itself, and its weight.
    pub alone: f64,
    pub uses: &'a [Use],
}

/// The rates of all demands. Each is its `alone` times a level of at most 1. Levels rise together until a resource is
/// full; who uses it stays at that level, and the others rise on.
pub(super) fn rates(capacities: &[f64], demands: &[Demand<'_>]) -> Vec<f64> {
    let mut left = capacities.to_vec();
    let mut rates = vec![None; demands.len()];
    loop {
        let mut wanted = vec![0.0; capacities.len()];
        for (demand, _) in demands.iter().zip(&rates).filter(|(_, rate)| rate.is_none()) {
            demand.uses.iter().for_each(|of| wanted[of.resource] += demand.alone * of.cost);
        }
        // What nobody wants holds nobody back.
        let level = |(left, wanted): (&f64, &f64)| {
            if *wanted > 0.0 { (left / wanted).max(0.0) } else { f64::INFINITY }
        };
        let levels: Vec<f64> = left.iter().zip(&wanted).map(level).collect();
        let lowest = levels.iter().copied().fold(f64::INFINITY, f64::min);
        let level = lowest.min(1.0);
        let is_full = |of: &Use| levels[of.resource] <= lowest * (1.0 + NEARLY);
        let mut are_all = true;
        for (demand, rate) in demands.iter().zip(&mut rates).filter(|(_, rate)| rate.is_none()) {
            if lowest < 1.0 && !demand.uses.iter().any(is_full) {
                are_all = false;
                continue;
            }
            let found = demand.alone * level;
            demand.uses.iter().for_each(|of| left[of.resource] -= found * of.cost);
            *rate = Some(found);
        }
        if are_all {
            return rates.into_iter().map(|rate| rate.unwrap_or(0.0)).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Uses = Vec<(usize, f64)>;

    fn found(capacities: &[f64], demands: &[(f64, &[(usize, f64)])]) -> Vec<f64> {
        let uses: Vec<Vec<Use>> = demands
            .iter()
            .map(|(_, uses)| {
                uses.iter()
                    .map(|(resource, cost)| Use { resource: *resource, cost: *cost })
                    .collect()
            })
            .collect();
        let demands: Vec<Demand<'_>> = demands
            .iter()
            .zip(&uses)
            .map(|((alone, _), uses)| Demand { alone: *alone, uses })
            .collect();
        rates(capacities, &demands)
    }

    #[test]
    fn who_is_held_back_elsewhere_leaves_the_rest_to_the_others() {
        assert_eq!(found(&[10.0], &[(3.0, &[(0, 1.0)])]), [3.0], "alone");
        assert_eq!(found(&[10.0], &[(8.0, &[(0, 1.0)]), (8.0, &[(0, 1.0)])]), [5.0, 5.0], "alike");
        assert_eq!(
            found(&[10.0], &[(9.0, &[(0, 1.0)]), (6.0, &[(0, 1.0)])]),
            [6.0, 4.0],
            "by weight"
        );
        assert_eq!(
            found(&[10.0], &[(8.0, &[(0, 2.0)]), (8.0, &[(0, 2.0)])]),
            [2.5, 2.5],
            "by cost"
        );
        // The first is held to 1 by another resource: the second gets 9.
        let held = found(&[10.0, 1.0], &[(20.0, &[(0, 1.0), (1, 1.0)]), (20.0, &[(0, 1.0)])]);
        assert_eq!(held, [1.0, 9.0]);
        assert_eq!(
            found(&[10.0], &[(2.0, &[]), (20.0, &[(0, 1.0)])]),
            [2.0, 10.0],
            "without a resource"
        );
        assert!(found(&[10.0], &[]).is_empty());
    }

    #[test]
    fn no_resource_gives_more_than_it_has_and_nobody_could_have_more() {
        let mut random = crate::random::Rng::new(5);
        for _ in 0..500 {
            let mut of = |most: u64| 1.0 + random.below(most) as f64;
            let capacities: Vec<f64> = (0..4).map(|_| of(50)).collect();
            let demands: Vec<(f64, Uses)> = (0..6)
                .map(|_| (of(40), (0..3).map(|_| (of(4) as usize - 1, of(3))).collect()))
                .collect();
            let as_slices: Vec<(f64, &[(usize, f64)])> =
                demands.iter().map(|(alone, uses)| (*alone, &uses[..])).collect();
            let rates = found(&capacities, &as_slices);
            let used = |resource: usize| -> f64 {
                let of = |((_, uses), rate): (&(f64, Uses), &f64)| {
                    uses.iter()
                        .filter(|(at, _)| *at == resource)
                        .map(|(_, cost)| cost * rate)
                        .sum::<f64>()
                };
                demands.iter().zip(&rates).map(of).sum()
            };
            for (resource, capacity) in capacities.iter().enumerate() {
                assert!(used(resource) <= capacity * (1.0 + 1e-6), "{demands:?} {rates:?}");
            }
            for ((alone, uses), rate) in demands.iter().zip(&rates) {
                let is_held = uses.iter().any(|(at, _)| used(*at) > capacities[*at] * (1.0 - 1e-6));
                assert!(*rate > alone * (1.0 - 1e-6) || is_held, "{demands:?} {rates:?}");
            }
        }
    }
}
