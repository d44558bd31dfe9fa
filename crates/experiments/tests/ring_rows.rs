//! The rows of the ring come to a verdict, and print it.

use terrace_experiments::reproduce::{Run, named};

#[test]
#[ignore = "a minute of measuring: the rows are run by `terrace reproduce run`"]
fn rows_of_the_ring() {
    for id in ["ring-crash", "ring-latency", "ring-flush"] {
        let record =
            named(id).expect("a row").run(&Run { full: false, tell: &|_| {} }).expect("run");
        println!("{id}: {:?} in {} s", record.experiment.verdict, record.experiment.seconds);
        for check in &record.experiment.checks {
            println!("  {check:?}");
        }
        println!("  {}", record.experiment.note);
    }
}
