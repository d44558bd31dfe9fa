use super::{Check, Figure, Form, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::reproduce::modelled::PRESET;
use terrace_machine::Preset;
use terrace_machine::chase::{Chase, Chased, Dirty};

pub(super) const ROW: Row = Row { id: "kv-dirty-dram", source: "", runs_on: "", must_show: "", run };

fn run(run: &Run<'_>) -> Result<Outcome> {
    let preset = Preset::named(PRESET).expect("a preset");
    let _ = (Form::Bars, Figure::new, Check::at_most("", "", 1.0, 1.0));
    let t = std::time::Instant::now();
    for threads in [1, 4, 8, 12, 20] {
        for bytes in [64, 256, 1024] {
            let go = |dirty, written| -> Result<Chased> {
                Chase { chased: "dram0", written, dirty, bytes, steps: 16, threads }
                    .run(&preset)
                    .map_err(Error::system("chase"))
            };
            let all = [(Dirty::None, "pmem0"), (Dirty::Kept, "pmem0"), (Dirty::Cleaned, "pmem0"), (Dirty::Kept, "dram0")].map(|(d, w)| go(d, w).unwrap());
            (run.tell)(&format!("{:.1}s {threads} {bytes}: step {:.1?} round {:.0?} amp {:.2?}", t.elapsed().as_secs_f64(), all.map(|c| c.step_ns), all.map(|c| c.round_ns), all.map(|c| c.counts.map_or(0.0, |c| c.write_amplification()))));
        }
    }
    Ok(Outcome::default())
}
