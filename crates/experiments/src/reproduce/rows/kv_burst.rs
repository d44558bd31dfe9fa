use super::{Check, Figure, Form, Outcome, Result, Row, Run};
use crate::reproduce::modelled::{ModelledMap, PRESET, options};
use terrace_machine::Preset;
use terrace_store::ValueDesign;

pub(super) const ROW: Row = Row { id: "kv-burst", source: "", runs_on: "", must_show: "", run };

fn run(run: &Run<'_>) -> Result<Outcome> {
    let preset = Preset::named(PRESET).expect("a preset");
    let _ = (Form::Bars, Figure::new, Check::at_most("", "", 1.0, 1.0));
    for threads in [1, 8, 20] {
        for value in [64, 256, 1024] {
            for design in [ValueDesign::Slab, ValueDesign::Log] {
                let start = std::time::Instant::now();
                let keys = 300_000;
                let mut map = ModelledMap::new(&preset, keys * 2, value, options(design, threads))?;
                map.fill(keys)?;
                let filled = start.elapsed();
                let ran = map.update(keys / 4)?;
                let took = start.elapsed() - filled;
                let deleted = map.delete(keys / 4)?;
                let ns = ran.time.as_nanos() as f64 * threads as f64 / ran.operations as f64;
                let dns = deleted.time.as_nanos() as f64 * threads as f64 / deleted.operations as f64;
                (run.tell)(&format!(
                    "{threads} {value} {design:?}: fill {:.2}s run {:.2}s  {ns:.0} ns {:.2} M/s del {dns:.0} ns EWR {:.3} written/op {:.0} media/op {:.0} read/op {:.0} mread/op {:.0} acc/op {:.1} miss/op {:.2} fence {:.0} mem {:.0} store {:.0} buf {:.0}",
                    filled.as_secs_f64(), took.as_secs_f64(), ran.million_s(), ran.pmem.ewr(),
                    ran.pmem.written_bytes as f64 / ran.operations as f64,
                    ran.pmem.media_written_bytes as f64 / ran.operations as f64,
                    ran.pmem.read_bytes as f64 / ran.operations as f64,
                    ran.pmem.media_read_bytes as f64 / ran.operations as f64,
                    ran.threads.accesses as f64 / ran.operations as f64,
                    ran.threads.misses as f64 / ran.operations as f64,
                    ran.threads.fence_wait_ps as f64 / 1e3 / ran.operations as f64,
                    ran.threads.memory_wait_ps as f64 / 1e3 / ran.operations as f64,
                    ran.threads.store_wait_ps as f64 / 1e3 / ran.operations as f64,
                    ran.threads.buffer_wait_ps as f64 / 1e3 / ran.operations as f64,
                ));
            }
        }
    }
    Ok(Outcome::default())
}
