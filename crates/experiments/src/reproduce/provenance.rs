//! Of which commit a record is, and of which day: figures of another program, or of a year ago, are no evidence of this
//! one.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// What tells the root of the repository from other directories: another project's commit would be no answer.
const ROOT_HAS: &str = "crates/experiments/Cargo.toml";
/// Files that differ from the commit without making another program of it: what is recorded, and written from that.
const RECORDS: [&str; 2] = [":!docs/results", ":!docs/reproduction.*"];

/// The commit that is checked out, with `+` if files differ from it; none outside of the repository's root.
pub(super) fn commit() -> Option<String> {
    if !Path::new(ROOT_HAS).is_file() {
        return None;
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let [first, second] = RECORDS;
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no", "--", ".", first, second])?;
    Some(if changed.is_empty() { commit } else { commit + "+" })
}

/// Today's date, UTC, as in 2026-11-29.
pub(super) fn today() -> Option<String> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(date(since.as_secs() / 86_400))
}

/// The date of a day, counted from the first of January 1970.
fn date(mut days: u64) -> String {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let months = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= months[month] {
        days -= months[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (364, "1970-12-31"),
            (365, "1971-01-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_786, "2026-11-29"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(date(days), expected);
        }
        assert_eq!(today().expect("a clock").len(), "2026-11-29".len());
    }

    #[test]
    fn a_commit_is_told_of_the_root_alone() {
        // Tests run in the directory of their crate, which is not the root.
        assert_eq!(commit(), None);
    }
}
