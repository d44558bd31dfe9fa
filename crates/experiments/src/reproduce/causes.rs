//! Why rows miss, by cause: the opening of the report. The records say which rows miss. The cause of a miss is a
//! judgement from the note of its record; this file has it.

use super::Verdict;
use super::results::Results;
use super::rows::ALL;

/// Why the rows named may miss.
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
            "ssp-software",
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
        because: "DRAM emulates the slower device, so an effect of the device's latency cannot appear",
        rows: &["kv-ycsb"],
    },
];

/// The opening of the report: a paragraph with the counts, and a sentence for each cause of misses.
pub(super) fn summary(results: &Results) -> (String, Vec<String>) {
    let is = |id: &str, verdict| results.of(id).is_some_and(|r| r.experiment.verdict == verdict);
    let rows = |verdict| ALL.iter().map(|row| row.id).filter(move |id| is(id, verdict));
    let checks =
        || ALL.iter().filter_map(|row| results.of(row.id)).flat_map(|r| &r.experiment.checks);
    let text = format!(
        "{} of {} rows pass: all their checks are within bounds. {} rows miss at least one check. Of all {} checks, {} \
         pass.",
        rows(Verdict::Pass).count(),
        ALL.len(),
        rows(Verdict::Miss).count(),
        checks().count(),
        checks().filter(|check| check.pass).count(),
    );
    let mut causes = Vec::new();
    for cause in CAUSES {
        let missed: Vec<&str> = rows(Verdict::Miss).filter(|id| cause.rows.contains(id)).collect();
        if !missed.is_empty() {
            let (count, ids) = (missed.len(), missed.join(", "));
            let rows = if count == 1 { "row misses" } else { "rows miss" };
            causes.push(format!("{count} {rows} because {} ({ids}).", cause.because));
        }
    }
    let unexplained: Vec<&str> = rows(Verdict::Miss)
        .filter(|id| !CAUSES.iter().any(|cause| cause.rows.contains(id)))
        .collect();
    if !unexplained.is_empty() {
        causes.push(format!(
            "{} miss for reasons that are not sorted yet ({}).",
            unexplained.len(),
            unexplained.join(", ")
        ));
    }
    let others = ALL.len() - rows(Verdict::Pass).count() - rows(Verdict::Miss).count();
    if others > 0 {
        causes.push(format!("{others} were skipped or not run."));
    }
    (text, causes)
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
        let (text, causes) = summary(&results);
        let causes = causes.join("\n");
        assert!(
            text.contains(" rows pass") && !causes.contains("not sorted yet"),
            "{text}\n{causes}"
        );
        let (_, none) = summary(&Results::default());
        assert_eq!(none, [format!("{} were skipped or not run.", ALL.len())]);
    }
}
