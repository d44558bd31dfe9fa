//! The nearest free taxi, found on a device within the transaction that takes it: no two riders get the same one.
//!
//! `cargo run --release -p terrace --example dispatch`

use std::collections::BTreeSet;
use terrace::device::{Device, Kernel};
use terrace::{Database, Kind, MapOptions, ProcedureError};

const TAXIS: u32 = 400;
const RIDERS: usize = 100;

/// Which of the taxis is nearest to a rider: its number in the list.
static NEAREST: Kernel = Kernel::new("nearest", |launch| {
    let (taxis, rider) = (launch.read::<[f32; 2]>(0), launch.read::<f32>(1));
    let distance = |taxi: &[f32; 2]| (taxi[0] - rider[0]).powi(2) + (taxi[1] - rider[1]).powi(2);
    let nearest =
        (0..taxis.len()).min_by(|a, b| distance(&taxis[*a]).total_cmp(&distance(&taxis[*b])));
    launch.write::<u64>(0)[0] = nearest.map_or(u64::MAX, |nearest| nearest as u64);
});

fn place(number: u32) -> [f32; 2] {
    [(number * 37 % 101) as f32, (number * 53 % 97) as f32]
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Database::open(dir.path(), MapOptions::default())?;
    let free = db.map_builder("free").kind(Kind::Ordered).open()?;
    let rides = db.map("rides")?;
    for taxi in 0..TAXIS {
        let [x, y] = place(taxi);
        free.put(&taxi.to_be_bytes(), &[x.to_le_bytes(), y.to_le_bytes()].concat())?;
    }

    // The processor, until there is another device.
    let device = Device::here(1 << 20);
    let take = db.procedure("take", &device, {
        let (free, rides) = (free.clone(), rides.clone());
        move |call, (rider, [x, y]): &(usize, [f32; 2])| {
            let found = call.snapshot(&free, &[], &[terrace::Range::ALL])?;
            let mut nearest = [0u64];
            call.device(|block| {
                // The values are one vector: one copy, however many there are.
                let taxis = block.copy_in(&found.values)?;
                let place = block.copy_in(&[*x, *y])?;
                let which = block.alloc::<u64>(1)?;
                block.launch(&NEAREST, &[taxis.into(), place.into()], &[which.into()])?;
                block.copy_out(which, &mut nearest)
            })?;
            let Some((_, taxi, _)) =
                found.iter().nth(usize::try_from(nearest[0]).unwrap_or(usize::MAX))
            else {
                return Ok::<_, ProcedureError>(None);
            };
            call.delete(&free, taxi)?;
            call.put(&rides, &rider.to_be_bytes(), taxi)?;
            Ok(Some(taxi.to_vec()))
        }
    });

    let taken = std::thread::scope(|scope| {
        let rider = |rider: usize| {
            take.call(&(rider, place(rider as u32 * 7))).map(Option::unwrap_or_default)
        };
        let threads: Vec<_> = (0..2)
            .map(|half| {
                scope.spawn(move || {
                    (0..RIDERS / 2).map(|n| rider(2 * n + half)).collect::<Result<Vec<_>, _>>()
                })
            })
            .collect();
        let taken = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
        taken.collect::<Result<Vec<_>, _>>()
    })?;
    let taxis: BTreeSet<Vec<u8>> = taken.into_iter().flatten().collect();
    assert_eq!(taxis.len(), RIDERS, "each rider has a taxi of their own");
    let stats = take.stats();
    println!(
        "{} riders, {} runs, {} trips to the device",
        stats.calls, stats.runs, stats.device_blocks
    );
    db.close()?;
    Ok(())
}
