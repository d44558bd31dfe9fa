//! Why rows miss or show no more than the order, by cause: the opening of the report. The records say which rows do.
//! The cause is a judgement from the note of its record; this file has it.

use super::record::{Check, CheckKind, ExperimentRecord, lacks_a_column};
use super::results::Results;
use super::rows::{ALL, NOT_BUILT};
use super::{Row, Verdict};

/// Why the rows named may miss, or show no more than the order.
struct Cause {
    /// Completes "N rows miss because".
    because: &'static str,
    rows: &'static [&'static str],
}

const CAUSES: &[Cause] = &[
    Cause {
        because: "the modelled machine lacks the source of the effect: its instructions take no time, and unpublished parts \
                  of a device are simplified",
        rows: &[
            "btree-log",
            "btree-scaling",
            "list-throughput",
            "pmem-classify",
            "pmem-i4",
            "pmem-i5",
            "prestore-apps",
            "prestore-clean",
            "prestore-skip",
            "ring-latency",
        ],
    },
    Cause {
        because: "a lookup in Terrace's hash index costs one or two cache misses, and one in the paper's tree 1064 ns, so \
                  everything except the index weighs more",
        rows: &["kv-breakdown", "kv-burst", "kv-flush", "kv-levels", "kv-sustained"],
    },
    Cause {
        because: "Terrace works differently from the paper's program: it verifies recovered items, its rival engines are \
                  faster than the published ones, or its structures write blocks of other sizes",
        rows: &[
            "kv-async-free",
            "kv-recovery",
            "numa-placement",
            "orangutan-skew",
            "orangutan-speed",
        ],
    },
    Cause {
        because: "the thread that has values read from the disk also verifies them and copies them: in a profile a quarter \
                  of its time goes to the allocator and to copying, while the disk waits",
        rows: &["tier-larger"],
    },
    Cause {
        because: "each write of the last second is compared with the item that it takes the place of, and where these \
                  lie everywhere all logs are read back for that: in a profile two thirds of an opening after a kill \
                  are the kernel's zeroing of that memory",
        rows: &["tier-open"],
    },
    Cause {
        because: "a payment costs some ten microseconds here, so each record more that it reads shows: the paper hides \
                  a hundred of them behind a trip to a GPU and back, which takes longer than they do",
        rows: &["snapkv-olda"],
    },
    Cause {
        because: "two processors share what is between them and the memory: a thread that only reads memory of its own \
                  takes a quarter to a third of the transactions' rate, so the questions beside them have little left to take",
        rows: &["snapkv-htap"],
    },
    Cause {
        because: "the join that reads looks up the order and the customer of each new order before it knows whether it \
                  is chosen, which is most of its work where few are; the paper does not tell its plan",
        rows: &["snapkv-crossover"],
    },
    Cause {
        because: "the journal of all threads is one, whose lines lie in one bank here and wait for each other: in banks \
                  of their own, which the paper may mean as well, four threads gain what it says",
        rows: &["ssp-speed"],
    },
    Cause {
        because: "these structures have more pages than the TLB reaches, so pages are consolidated and looked up \
                  oftener than in the paper, which tells no sizes: with 4000 keys or a TLB of 1024 pages, SSP's share \
                  of its rivals' writes is the paper's, and trees no longer miss the TLB",
        rows: &["ssp-sensitivity", "ssp-writes"],
    },
    Cause {
        because: "the emulated network takes time for accesses and nothing else, and two threads seldom meet: what wider \
                  nodes save in steps shows in full, and a bucket whose first node lies in the array is read by one \
                  access; the paper's machines, with up to 192 threads, also waited",
        rows: &["cods-list", "cods-hash"],
    },
    Cause {
        because: "the lead over the skip list in insertions and removals grows with the number of threads in the paper, \
                  from less than 1 to 1.9 with 48; here are two",
        rows: &["lit-peers"],
    },
    Cause {
        because: "twelve threads that submit, and the emulated device, share two processors",
        rows: &["dsa-threads"],
    },
    Cause {
        because: "the modelled threads only move bytes, and what the software path of the paper's library spends besides is \
                  published nowhere",
        rows: &["dsa-cpu"],
    },
    Cause {
        because: "the paper's cache loses a tenth of the query to work and to late copies that it does not explain, and the \
                  model has neither; and here the engines are threads that share two processors with the query",
        rows: &["qdp"],
    },
    Cause {
        because: "whole programs are traced and analysed while they run, their start and the translation of their code \
                  too, where the paper traces chosen functions; and samples are of the processor's clock, since this \
                  machine counts no stores",
        rows: &["dirtbuster-gate"],
    },
    Cause {
        because: "the caches of this machine's processor tell their whole size and may be shared with other machines: \
                  suspectedly what is to be in them is not, so that loads cost as much with hits as without",
        rows: &["pmem-i1"],
    },
    Cause {
        because: "this machine's own DRAM serves reads in sequence 4.9 times as fast as at random, the paper's 1.7 \
                  times: another processor, whose prefetchers gain more, suspectedly",
        rows: &["pmem-i6"],
    },
    Cause {
        because: "the collector of logs moves less where the choice is Zipfian than where it is uniform (0.75 B and 1.13 B \
                  for each byte written), so the lead of slabs on A shrinks there",
        rows: &["kv-ycsb"],
    },
];

/// How many of the sizes among these checks are in their bands, and how many sizes there are.
pub(super) fn in_band<'a>(checks: impl Iterator<Item = &'a Check>) -> [usize; 2] {
    let sizes = checks.filter(|check| check.kind == CheckKind::Size);
    sizes.fold([0, 0], |[inside, all], check| [inside + usize::from(check.pass), all + 1])
}

/// Whether a record's verdict needs a cause that is known here: a check that does not pass.
fn falls_short(record: &ExperimentRecord) -> bool {
    let verdict = record.experiment.verdict;
    let all_pass = record.experiment.checks.iter().all(|check| check.pass);
    matches!(verdict, Verdict::Miss | Verdict::Order) && !all_pass
}

/// `2 rows miss (a, b) and 1 shows the order alone (c)`; nothing of none.
fn counted(rows: &[(&'static Row, &ExperimentRecord)]) -> Option<String> {
    let of = |verdict: Verdict, [one, more]: [&str; 2]| {
        let is_it = rows.iter().filter(|(_, record)| record.experiment.verdict == verdict);
        let ids: Vec<&str> = is_it.map(|(row, _)| row.id).collect();
        let (does, count) = (if ids.len() == 1 { one } else { more }, ids.len());
        (count > 0).then(|| format!("{count} {does} ({})", ids.join(", ")))
    };
    let misses = of(Verdict::Miss, ["row misses", "rows miss"]);
    let orders = of(Verdict::Order, ["row shows the order alone", "rows show the order alone"]);
    let both: Vec<String> = [misses, orders].into_iter().flatten().collect();
    (!both.is_empty()).then(|| both.join(" and "))
}

/// The opening of the report: a paragraph with the counts, and a sentence for each cause of what does not pass.
pub(super) fn summary(results: &Results) -> (String, Vec<String>) {
    let records: Vec<(&'static Row, &ExperimentRecord)> =
        ALL.iter().filter_map(|row| Some((row, results.of(row.id)?))).collect();
    let count =
        |verdict| records.iter().filter(|(_, record)| record.experiment.verdict == verdict).count();
    let checks = || records.iter().flat_map(|(_, record)| &record.experiment.checks);
    let orders = || checks().filter(|check| check.kind == CheckKind::Order);
    let [inside, sizes] = in_band(checks());
    let text = format!(
        "{} of {} rows pass: all their checks are within bounds. {} rows show every order that they check, and not \
         every size. {} rows miss. Orders that hold: {} of {}. Effects in band: {inside} of {sizes}.",
        count(Verdict::Pass),
        ALL.len(),
        count(Verdict::Order),
        count(Verdict::Miss),
        orders().filter(|check| check.pass).count(),
        orders().count(),
    );
    let short = || records.iter().copied().filter(|(_, record)| falls_short(record));
    let mut causes = Vec::new();
    for cause in CAUSES {
        let rows: Vec<_> = short().filter(|(row, _)| cause.rows.contains(&row.id)).collect();
        causes.extend(counted(&rows).map(|rows| format!("{rows} because {}.", cause.because)));
    }
    let known = |id| CAUSES.iter().any(|cause| cause.rows.contains(&id));
    let unexplained: Vec<_> = short().filter(|(row, _)| !known(row.id)).collect();
    let unsorted = counted(&unexplained);
    causes.extend(unsorted.map(|rows| format!("{rows} for reasons that are not sorted yet.")));
    let part = |(_, record): &(_, &ExperimentRecord)| {
        record.experiment.verdict == Verdict::Order
            && !falls_short(record)
            && lacks_a_column(&record.experiment.runs_on)
    };
    let part: Vec<_> = records.iter().copied().filter(part).collect();
    causes.extend(counted(&part).map(|rows| {
        format!("{rows} because a column of what they are to run on is not built; all their checks pass.")
    }));
    let others = ALL.len() - records.len() + count(Verdict::Skipped);
    if others > 0 {
        causes.push(format!("Skipped or not run: {others}."));
    }
    causes.push(format!("Not built: {} ({}).", NOT_BUILT.len(), NOT_BUILT.join(", ")));
    (text, causes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn all_that_falls_short_on_record_has_one_cause_and_the_summary_counts_it() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/reproduction.json");
        let results = Results::read(&path).expect("the records");
        for row in ALL {
            let causes = CAUSES.iter().filter(|cause| cause.rows.contains(&row.id)).count();
            assert!(causes <= 1, "{} has {causes} causes", row.id);
            assert!(
                causes == 1 || !results.of(row.id).is_some_and(falls_short),
                "{} falls short without a cause",
                row.id
            );
        }
        let known = |id: &&str| ALL.iter().any(|row| row.id == *id);
        assert!(CAUSES.iter().flat_map(|cause| cause.rows).all(known));
        let (text, causes) = summary(&results);
        let causes = causes.join("\n");
        assert!(
            text.contains(" rows pass") && !causes.contains("not sorted yet"),
            "{text}\n{causes}"
        );
        let (_, none) = summary(&Results::default());
        assert_eq!(none[0], format!("Skipped or not run: {}.", ALL.len()));
        assert_eq!(none.len(), 2);
    }

    #[test]
    fn sizes_alone_count_as_effects() {
        let size = |measured| Check::at_least("ratio", "2", measured, 1.5);
        let checks = [size(2.0), size(1.0), size(1.0).order(), size(2.0).order()];
        assert_eq!(in_band(checks.iter()), [1, 2]);
    }
}
