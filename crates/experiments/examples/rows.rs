#![allow(missing_docs)]
use terrace_experiments::reproduce::{Run, named};
fn main() {
    for id in std::env::args().skip(1) {
        let record = named(&id)
            .unwrap()
            .run(&Run { full: false, calibrations: &[], tell: &|_| {} })
            .unwrap();
        println!("{} {} {} s", id, record.experiment.verdict, record.experiment.seconds);
        for c in &record.experiment.checks {
            println!(
                "  {} | paper {} | {:?} | {:?}..{:?} | {}",
                c.what, c.paper, c.measured, c.low, c.high, c.pass
            );
        }
        println!("{}", record.experiment.note);
    }
}
