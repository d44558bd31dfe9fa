//! Scratch: processor time of an operation in a map that caches hold.
use terrace_memory::{Backing, Domain, Region};
use terrace_store::*;
fn main() {
    for design in [ValueDesign::Slab, ValueDesign::Log] {
        let region = Region::reserve(256 << 20, Backing::HugePages).unwrap().declared(Domain::Eadr);
        region.populate(0, 256 << 20).unwrap();
        let options = MapOptions {
            durability: Durability::Sync,
            domain: Domain::Eadr,
            values: design,
            flush: Flush::Keep,
            memory_budget_bytes: 1 << 40,
            writers: 1,
            ..MapOptions::default()
        };
        let map = Map::over(region.native(), true, 1, options).unwrap();
        let mut s = map.session();
        let keys = 200u64;
        for k in 0..keys {
            s.put(&k.to_be_bytes(), &[1; 64], None).unwrap();
        }
        let cpu = || {
            let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            t.tv_sec as f64 * 1e9 + t.tv_nsec as f64
        };
        let mut best = [f64::MAX; 3];
        for _ in 0..20 {
            let n = 20_000u64;
            let t = cpu();
            for i in 0..n {
                s.put(&(i * 7919 % keys).to_be_bytes(), &[2; 64], None).unwrap();
                s.commit().unwrap();
            }
            best[0] = best[0].min((cpu() - t) / n as f64);
            let t = cpu();
            for i in 0..n {
                s.get(&(i * 7919 % keys).to_be_bytes(), |v| std::hint::black_box(v.bytes[0]))
                    .unwrap();
                s.commit().unwrap();
            }
            best[1] = best[1].min((cpu() - t) / n as f64);
            let t = cpu();
            for k in 0..keys {
                s.delete(&k.to_be_bytes()).unwrap();
                s.commit().unwrap();
            }
            best[2] = best[2].min((cpu() - t) / keys as f64);
            for k in 0..keys {
                s.put(&k.to_be_bytes(), &[1; 64], None).unwrap();
            }
            map.collect().unwrap();
        }
        println!("{design:?}: put {:.0} get {:.0} delete {:.0} ns", best[0], best[1], best[2]);
    }
}
