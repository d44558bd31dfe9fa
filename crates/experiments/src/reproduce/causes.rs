//! Why rows miss, by cause: the paragraph that the report opens with. Which rows miss is read from the records; the
//! cause of a miss is a judgement, made from the note of its record, and stands here.

use super::Verdict;
use super::results::Results;
use super::rows::ALL;

/// Why the rows named may miss.
struct Cause {
    /// As the end of "they miss because".
    because: &'static str,
    rows: &'static [&'static str],
}

const CAUSES: &[Cause] = &[
    Cause {
        because: "the modelled machine lacks what the effect comes from: on it instructions take no time, and what was \
                  not published of a device is simplified",
        rows: &[
            "btree-group-flush",
            "btree-log",
            "btree-scaling",
            "list-throughput",
            "pmem-classify",
            "pmem-i1",
            "pmem-i4",
            "pmem-i5",
            "prestore-apps",
            "prestore-clean",
            "ring-latency",
        ],
    },
    Cause {
        because: "Terrace's index is a hash table of one or two cache misses where the paper's is a tree of 1064 ns, so \
                  that everything but the index weighs more",
        rows: &["kv-breakdown", "kv-burst", "kv-flush", "kv-levels", "kv-sustained"],
    },
    Cause {
        because: "Terrace does the work in another way than the paper's program: it verifies what it recovers, its rival \
                  engines are faster than the published ones, its structures write other pieces",
        rows: &[
            "kv-async-free",
            "kv-recovery",
            "numa-placement",
            "orangutan-skew",
            "orangutan-speed",
            "ssp-software",
        ],
    },
    Cause {
        because: "DRAM emulates the slower device, and an effect of its latency cannot show",
        rows: &["kv-ycsb"],
    },
];

/// What passes, what misses and why, by cause.
pub(super) fn summary(results: &Results) -> String {
    let is = |id: &str, verdict| results.of(id).is_some_and(|r| r.experiment.verdict == verdict);
    let rows = |verdict| ALL.iter().map(|row| row.id).filter(move |id| is(id, verdict));
    let checks =
        || ALL.iter().filter_map(|row| results.of(row.id)).flat_map(|r| &r.experiment.checks);
    let mut text = format!(
        "{} of {} rows pass: every check of theirs lies within its bounds. {} miss at least one check; of all {} checks {} \
         pass.",
        rows(Verdict::Pass).count(),
        ALL.len(),
        rows(Verdict::Miss).count(),
        checks().count(),
        checks().filter(|check| check.pass).count(),
    );
    for cause in CAUSES {
        let missed: Vec<&str> = rows(Verdict::Miss).filter(|id| cause.rows.contains(id)).collect();
        if !missed.is_empty() {
            let (count, ids) = (missed.len(), missed.join(", "));
            text.push_str(&format!(" {count} miss because {} ({ids}).", cause.because));
        }
    }
    let unexplained: Vec<&str> = rows(Verdict::Miss)
        .filter(|id| !CAUSES.iter().any(|cause| cause.rows.contains(id)))
        .collect();
    if !unexplained.is_empty() {
        text.push_str(&format!(
            " {} miss for reasons that are not sorted yet ({}).",
            unexplained.len(),
            unexplained.join(", ")
        ));
    }
    let others = ALL.len() - rows(Verdict::Pass).count() - rows(Verdict::Miss).count();
    if others > 0 {
        text.push_str(&format!(" {others} were skipped or not run."));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_miss_on_record_has_one_cause_and_the_summary_counts_them_all() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/reproduction.json");
        let results = Results::read(&path).expect("the records");
        for row in ALL {
            let causes = CAUSES.iter().filter(|cause| cause.rows.contains(&row.id)).count();
            let verdict = results.of(row.id).map(|record| record.experiment.verdict);
            assert!(causes <= 1, "{} has {causes} causes", row.id);
            assert!(
                causes == 1 || verdict != Some(Verdict::Miss),
                "{} misses without a cause",
                row.id
            );
        }
        let known = |id: &&str| ALL.iter().any(|row| row.id == *id);
        assert!(CAUSES.iter().flat_map(|cause| cause.rows).all(known));
        let text = summary(&results);
        assert!(text.contains(" rows pass") && !text.contains("not sorted yet"), "{text}");
        let none = summary(&Results::default());
        assert!(none.ends_with(&format!(" {} were skipped or not run.", ALL.len())), "{none}");
    }
}
