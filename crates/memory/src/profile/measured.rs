//! What a part of a profile has: figures, a part of them, or the reason why there are none.

use schemars::JsonSchema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::marker::PhantomData;

/// The reason that stands where a run did not ask.
pub const NOT_ASKED_FOR: &str = "not asked for";

/// Figures, or why there are none. A field that a file does not have was not asked for.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
pub enum Measured<P> {
    /// One for each setting.
    Points(Vec<P>),
    /// It was not measured.
    Not {
        /// Why.
        not_measured: String,
    },
    /// Some settings were measured, and others were not.
    Partial {
        /// One for each setting that was.
        points: Vec<P>,
        /// Which were not, and why.
        left_out: String,
    },
}

impl<P> Default for Measured<P> {
    fn default() -> Self {
        Measured::not_asked_for()
    }
}

impl<P> Measured<P> {
    /// Not measured, since nobody asked.
    pub fn not_asked_for() -> Measured<P> {
        Measured::not(NOT_ASKED_FOR)
    }

    /// Not measured, for this reason.
    pub fn not(reason: impl Into<String>) -> Measured<P> {
        Measured::Not { not_measured: reason.into() }
    }

    /// These figures, and what was left out beside them; without figures it was not measured.
    pub fn of(points: Vec<P>, left_out: Option<String>) -> Measured<P> {
        match left_out {
            None => Measured::Points(points),
            Some(reason) if points.is_empty() => Measured::not(reason),
            Some(left_out) => Measured::Partial { points, left_out },
        }
    }

    /// The figures, as many as there are; none if it was not measured.
    pub fn points(&self) -> &[P] {
        match self {
            Measured::Points(points) | Measured::Partial { points, .. } => points,
            Measured::Not { .. } => &[],
        }
    }

    /// The figures if no setting was left out: what a maximum over settings may be taken of.
    pub fn whole(&self) -> &[P] {
        if self.left_out().is_none() { self.points() } else { &[] }
    }

    /// What is missing, and why; nothing is where nobody asked.
    pub fn left_out(&self) -> Option<&str> {
        match self {
            Measured::Points(_) => None,
            Measured::Not { not_measured } if not_measured == NOT_ASKED_FOR => None,
            Measured::Not { not_measured: why } | Measured::Partial { left_out: why, .. } => {
                Some(why)
            }
        }
    }

    /// Takes in what the same run found elsewhere: what was left out of either is left out.
    pub fn join(&mut self, other: Measured<P>) {
        let (mut points, why) = std::mem::take(self).into_parts();
        let (more, other_why) = other.into_parts();
        points.extend(more);
        let why: Vec<String> = why.into_iter().chain(other_why).collect();
        *self = Measured::of(points, (!why.is_empty()).then(|| why.join("; ")));
    }

    /// Puts the figures in order.
    pub fn sort_by_key<K: Ord>(&mut self, key: impl FnMut(&P) -> K) {
        match self {
            Measured::Points(points) | Measured::Partial { points, .. } => points.sort_by_key(key),
            Measured::Not { .. } => {}
        }
    }

    /// The figures, and what is missing.
    fn into_parts(self) -> (Vec<P>, Option<String>) {
        let left_out = self.left_out().map(String::from);
        match self {
            Measured::Points(points) | Measured::Partial { points, .. } => (points, left_out),
            Measured::Not { .. } => (Vec::new(), left_out),
        }
    }
}

/// The shape decides which of them it is, so that what is wrong further down is told with the field it is in.
impl<'de, P: Deserialize<'de>> Deserialize<'de> for Measured<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ByShape(PhantomData))
    }
}

struct ByShape<P>(PhantomData<P>);

/// What an object may have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<P> {
    not_measured: Option<String>,
    points: Option<Vec<P>>,
    left_out: Option<String>,
}

impl<'de, P: Deserialize<'de>> Visitor<'de> for ByShape<P> {
    type Value = Measured<P>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an array of points, or an object with `not_measured`, or with `points` and `left_out`",
        )
    }

    fn visit_seq<A: SeqAccess<'de>>(self, points: A) -> Result<Measured<P>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(points)).map(Measured::Points)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Measured<P>, A::Error> {
        match Fields::deserialize(MapAccessDeserializer::new(fields))? {
            Fields { not_measured: Some(not_measured), points: None, left_out: None } => {
                Ok(Measured::Not { not_measured })
            }
            Fields { not_measured: Some(_), points, .. } => {
                let beside = if points.is_some() { "points" } else { "left_out" };
                Err(A::Error::custom(format_args!(
                    "`{beside}` beside `not_measured`, which stands alone"
                )))
            }
            Fields { points: Some(points), left_out: Some(left_out), .. } => {
                Ok(Measured::Partial { points, left_out })
            }
            Fields { points: Some(_), .. } => Err(A::Error::missing_field("left_out")),
            Fields { left_out: Some(_), .. } => Err(A::Error::missing_field("points")),
            Fields { .. } => Err(A::Error::missing_field("not_measured")),
        }
    }
}

/// A setting with figures.
pub(super) trait Point: Sized {
    fn is_of_setting(&self, other: &Self) -> bool;
    /// Takes the figures of a later run at the same setting in.
    fn refine(&mut self, later: Self);
}

#[allow(private_bounds, reason = "the points are all here")]
impl<P: Point> Measured<P> {
    /// What another run has measured counts as well; that it measured nothing takes nothing away. A part is whole if
    /// one of the runs left nothing out: of the others it takes the settings that this one has.
    pub fn refine(&mut self, run: Measured<P>) {
        match (&mut *self, run) {
            (_, Measured::Not { not_measured }) if not_measured == NOT_ASKED_FOR => {}
            (known @ Measured::Not { .. }, run) => *known = run,
            (_, Measured::Not { .. }) => {}
            (known, run) => {
                let (mut points, before) = std::mem::take(known).into_parts();
                let (mut more, now) = run.into_parts();
                let left_out = match (before, now) {
                    (None, Some(_)) => {
                        more.retain(|point| has_setting(&points, point));
                        None
                    }
                    (Some(_), None) => {
                        points.retain(|point| has_setting(&more, point));
                        None
                    }
                    (before, now) => now.or(before),
                };
                for point in more {
                    match points.iter_mut().find(|known| known.is_of_setting(&point)) {
                        Some(known) => known.refine(point),
                        None => points.push(point),
                    }
                }
                *known = Measured::of(points, left_out);
            }
        }
    }
}

fn has_setting<P: Point>(points: &[P], point: &P) -> bool {
    points.iter().any(|other| other.is_of_setting(point))
}
