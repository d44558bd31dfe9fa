//! Scratch.
fn main() {
    let id = std::env::args().nth(1).unwrap();
    let row = terrace_experiments::reproduce::named(&id).unwrap();
    let full = std::env::args().nth(2).is_some();
    let record = row
        .run(&terrace_experiments::reproduce::Run { full, tell: &|t| eprintln!("{t}") })
        .unwrap();
    let e = &record.experiment;
    println!("{} {} {:.1}s", e.id, e.verdict, e.seconds);
    for c in &e.checks {
        println!(
            "  {} {:?} [{:?} {:?}] paper {}: {}",
            if c.pass { "ok  " } else { "MISS" },
            c.measured,
            c.low,
            c.high,
            c.paper,
            c.what
        );
    }
    println!("  note: {}", e.note);
    for f in &record.figures {
        println!("  fig {} over {:?}", f.title, f.places);
        for s in &f.series {
            println!("     {}: {:?}", s.name, s.values);
        }
    }
}
