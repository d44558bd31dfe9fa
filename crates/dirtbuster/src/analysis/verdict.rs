//! The rule: from what a function's writes do to what it should do.

use super::report::{Advice, Measured, SizeClass, Verdict};
use super::thresholds::Thresholds;

/// The fewest writes that a judgement can rest on.
const FEWEST_WRITES: u64 = 64;

/// Judges a function by its measurements.
///
/// The order of the questions is the paper's: is anything to be gained (sequential writes, or writes before a fence)?
/// Then: re-written, re-read, or neither? Where the paper is silent, this is the rule:
/// - Re-written data without a fence behind it gets nothing while it is hot (FT's `fftz2`): it is overwritten in the
///   cache, and cleaning it writes every version to memory.
/// - Scattered writes before a fence are never streamed: a streaming store of part of a line costs more than it saves.
///
/// # Examples
/// ```
/// use terrace_dirtbuster::{Advice, Measured, Thresholds, judge};
/// let written_once = Measured { writes: 1 << 20, sequential_share: 1.0, ..Measured::default() };
/// assert_eq!(judge(&written_once, &[], &Thresholds::default()).advice, Advice::Stream);
/// let scattered = Measured { sequential_share: 0.01, ..written_once };
/// assert_eq!(judge(&scattered, &[], &Thresholds::default()).advice, Advice::Nothing);
/// ```
pub fn judge(of: &Measured, classes: &[SizeClass], thresholds: &Thresholds) -> Verdict {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let nothing = |reason: String, warning| Verdict { advice: Advice::Nothing, reason, warning };
    if of.writes < FEWEST_WRITES {
        return nothing(format!("only {} writes: too few to judge", of.writes), None);
    }
    let is_sequential = of.sequential_share >= thresholds.sequential;
    let fence = of.fence_distance.filter(|_| of.fenced_share >= thresholds.fenced_share);
    let before_fence = match fence {
        Some(distance) => format!(
            "a fence follows {} of them, {distance} instructions at the least",
            percent(of.fenced_share)
        ),
        None => "no fence follows soon".into(),
    };
    let pattern =
        format!("{} of the writes are sequential; {before_fence}", percent(of.sequential_share));
    if !is_sequential && fence.is_none() {
        let reason = format!(
            "{pattern}: a pre-store would change neither the order of write-backs nor a wait"
        );
        return nothing(reason, None);
    }
    let (rewritten, rewrite) = (of.rewritten_share >= thresholds.reused_share, of.rewrite_distance);
    if let Some(distance) = rewrite.filter(|_| rewritten) {
        return judge_rewritten(&pattern, distance, of, fence, thresholds);
    }
    // A class that is re-read decides for all: the code is the same.
    let class = classes
        .iter()
        .filter(|class| class.share >= thresholds.class_share)
        .filter(|class| class.reread_share >= thresholds.reused_share)
        .find_map(|class| Some((class.bytes, class.reread_distance?)));
    let all = of.reread_distance.filter(|_| of.reread_share >= thresholds.reused_share);
    if let Some(distance) = class.map(|(_, distance)| distance).or(all) {
        let which = match class.filter(|_| classes.len() > 1) {
            Some((bytes, _)) => format!("data in regions of {}", super::report::bytes(bytes)),
            None => "the data".into(),
        };
        return Verdict {
            advice: Advice::Clean,
            reason: format!("{pattern}; {which} is re-read after {distance:.0} instructions, not re-written"),
            warning: Some("do not stream it: a streaming store leaves the cache without the data that is read next".into()),
        };
    }
    let never = format!(
        "{pattern}; neither re-read nor re-written within {} instructions",
        thresholds.horizon
    );
    if is_sequential {
        let reason = format!("{never}; where streaming stores are hard to write, clean");
        return Verdict { advice: Advice::Stream, reason, warning: None };
    }
    let warning = Some("do not stream it: scattered streaming stores write parts of lines".into());
    Verdict { advice: Advice::Clean, reason: never, warning }
}

fn judge_rewritten(
    pattern: &str,
    distance: f64,
    of: &Measured,
    fence: Option<u64>,
    thresholds: &Thresholds,
) -> Verdict {
    let rewritten = format!(
        "{pattern}; {:.0} % is re-written after {distance:.0} instructions",
        of.rewritten_share * 100.0
    );
    if fence.is_some() {
        return Verdict {
            advice: Advice::Demote,
            reason: format!("{rewritten}: publish it before the fence, and keep it cached"),
            warning: Some(
                "do not clean or stream it: every version would be written to memory".into(),
            ),
        };
    }
    if distance <= thresholds.hot as f64 {
        return Verdict {
            advice: Advice::Nothing,
            reason: format!("{rewritten}: hot data that stays in the cache"),
            warning: Some(
                "do not clean or stream it: every version would be written to memory instead of overwritten in the cache \
                 (3 times slower for FT's fftz2 in the paper)"
                    .into(),
            ),
        };
    }
    Verdict {
        advice: Advice::Clean,
        reason: format!("{rewritten}: so late that the line is evicted in between anyway"),
        warning: None,
    }
}
