use std::time::Instant;
use terrace_store::*;
fn key(n: u64) -> [u8; 8] { n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes() }
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let dir = std::path::Path::new(&a[2]);
    let n: u64 = a[3].parse().unwrap();
    let options = || MapOptions { memory_budget_bytes: 8 << 30, ..MapOptions::default() };
    match a[1].as_str() {
        "fill" => {
            let map = Map::open(dir, options()).unwrap();
            let t = Instant::now();
            let mut s = map.session();
            let v = [7u8; 100];
            for i in 0..n { s.put(&key(i), &v, None).unwrap(); }
            s.commit().unwrap();
            drop(s);
            println!("filled {:?}", t.elapsed());
            let t = Instant::now();
            map.close().unwrap();
            println!("closed {:?}", t.elapsed());
        }
        "open" => {
            let t = Instant::now();
            let map = Map::open(dir, options()).unwrap();
            let e = t.elapsed();
            let r = map.recovery();
            println!("opened {e:?} keys {} items {} {} {:?} unfit {:?} replayed {}", map.len(), r.items, r.procedure, r.steps, r.unfit, r.replayed);
            let t = Instant::now();
            assert!(map.get(&key(n / 2)).unwrap().is_some());
            println!("first get {:?}", t.elapsed());
            let mut s = map.session();
            let t = Instant::now();
            while map.stats().away.logs > 0 && t.elapsed().as_secs() < 60 { std::thread::sleep(std::time::Duration::from_millis(1)); }
            println!("warm {:?} {:?}", t.elapsed(), map.stats().away);
            let t = Instant::now();
            for i in 0..1_000_000u64.min(n) { assert!(s.get(&key(i * 7 % n), |_| ()).unwrap().is_some()); }
            println!("1M gets {:?}", t.elapsed());
            drop(s);
            let t = Instant::now();
            map.close().unwrap();
            println!("closed {:?}", t.elapsed());
        }
        "load" => {
            let map = Map::open(dir, options()).unwrap();
            let t = Instant::now();
            let mut s = map.session();
            let v = [8u8; 100];
            let mut x = 1u64;
            let mut w = 0u64;
            loop {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1);
                s.put(&key((x >> 20) % n), &v, None).unwrap();
                w += 1;
                if w % 1_000_000 == 0 { println!("{w} {:?}", t.elapsed()); }
            }
        }
        _ => panic!(),
    }
}
