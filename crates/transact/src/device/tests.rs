use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

static ADD: Kernel = Kernel::new("add", |launch| {
    let (left, right) = (launch.read::<u64>(0), launch.read::<u64>(1));
    let sums = launch.write::<u64>(0);
    for (sum, (left, right)) in sums.iter_mut().zip(left.iter().zip(right)) {
        *sum += left + right;
    }
});

static NONE: Kernel = Kernel::new("none", |_| {});
static FAILS: Kernel = Kernel::new("fails", |_| panic!("it was to fail"));
static READS_TOO_FAR: Kernel = Kernel::new("reads too far", |launch| {
    launch.read::<u8>(1);
});
static TAKES_TWICE: Kernel = Kernel::new("takes twice", |launch| {
    let (_, _) = (launch.write::<u64>(0), launch.write::<u64>(0));
});
static MISTAKES_A_TYPE: Kernel = Kernel::new("mistakes a type", |launch| {
    launch.read::<u32>(0);
});

/// Every way in which a device runs: all tests are of both.
fn devices(memory: u64) -> [Device; 2] {
    [Device::here(memory), Device::workers(2, memory).expect("workers")]
}

#[test]
fn operations_run_in_their_order_and_results_come_at_the_end() {
    for device in devices(1 << 10) {
        let kept = device.keep(&[100u64, 200]).expect("room");
        let (mut first, mut second) = ([9u64; 2], [9u64; 2]);
        let told = device.block(|block| {
            let mut source = [1u64, 2];
            let numbers = block.copy_in(&source)?;
            source = [77, 77]; // it was copied as it was
            let sums = block.alloc::<u64>(2)?;
            block.launch(&ADD, &[numbers.into(), (&kept).into()], &[sums.into()])?;
            block.copy_out(sums, &mut first)?;
            block.launch(&ADD, &[numbers.into(), numbers.into()], &[sums.into()])?;
            block.copy_out(sums, &mut second)?;
            Ok(source[0])
        });
        assert_eq!(told.expect("a block"), 77);
        assert_eq!((first, second), ([101, 202], [103, 206]));
        assert_eq!(device.memory_used(), 16, "what is resident");
    }
}

#[test]
fn a_block_that_fails_copies_nothing_back_and_gives_its_memory_back() {
    for device in devices(64) {
        let mut back = [5u64];
        for kernel in [&FAILS, &READS_TOO_FAR, &TAKES_TWICE, &MISTAKES_A_TYPE] {
            let ended = device.block(|block| {
                let bytes = block.copy_in(&[1u8, 2, 3])?;
                let buffer = block.copy_in(&[1u64])?;
                block.copy_out(buffer, &mut back)?;
                block.launch(kernel, &[bytes.into()], &[buffer.into()])
            });
            let error = ended.expect_err("it fails").to_string();
            assert!(
                error.contains(kernel.name()) && error.contains("nothing of its block"),
                "{error}"
            );
        }
        assert_eq!((back, device.memory_used()), ([5], 0));
        // It goes on.
        device
            .block(|block| block.copy_in(&[1u64]).and_then(|b| block.copy_out(b, &mut back)))
            .expect("a block");
        assert_eq!(back, [1]);
    }
}

#[test]
fn memory_is_bounded_over_all_blocks_and_residents() {
    for device in devices(64) {
        let kept = device.keep(&[0u8; 40]).expect("room");
        let ran = device.block(|block| {
            let (room, none) = (block.alloc::<u8>(24), block.alloc::<u8>(1));
            assert!(
                matches!(none, Err(DeviceError::OutOfMemory { wanted: 1, used: 64, capacity: 64 })),
                "{none:?}"
            );
            assert!(block.alloc::<u64>(usize::MAX).is_err());
            room.map(drop)
        });
        ran.expect("a block");
        assert!(device.keep(&[0u8; 25]).is_err());
        drop(kept);
        assert_eq!(device.memory_used(), 0);
    }
    let unbounded = Device::here(u64::MAX).block(|block| block.alloc::<u64>(usize::MAX));
    assert!(matches!(unbounded, Err(DeviceError::OutOfMemory { .. })), "{unbounded:?}");
}

#[test]
fn buffers_of_others_and_buffers_named_twice_are_refused() {
    for device in devices(1 << 10) {
        let before = device.block(|block| block.alloc::<u64>(1)).expect("a block");
        let other = Device::here(8).keep(&[1u64]).expect("room");
        let (mut back, mut other_back) = ([0u64; 2], [0u64]);
        let ran = device.block(|block| {
            let is_other =
                |ran: Result<()>| assert!(matches!(ran, Err(DeviceError::NotOfBlock)), "{ran:?}");
            is_other(block.launch(&NONE, &[before.into()], &[]));
            is_other(block.launch(&NONE, &[], &[before.into()]));
            let foreign = block.launch(&NONE, &[(&other).into()], &[]);
            assert!(matches!(foreign, Err(DeviceError::NotOfDevice)), "{foreign:?}");
            is_other(block.copy_out(before, &mut other_back));
            let own = block.alloc::<u64>(1)?;
            let is_twice = |ran: Result<()>| {
                assert!(matches!(ran, Err(DeviceError::BufferTwice { .. })), "{ran:?}")
            };
            is_twice(block.launch(&NONE, &[own.into()], &[own.into()]));
            is_twice(block.launch(&NONE, &[], &[own.into(), own.into()]));
            block.launch(&NONE, &[own.into(), own.into()], &[])?;
            block.copy_out(own, &mut back)
        });
        assert!(matches!(ran, Err(DeviceError::Size { wanted: 16, there: 8 })), "{ran:?}");
    }
}

#[test]
fn many_threads_share_a_device() {
    for device in devices(1 << 20) {
        let sum = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (device, sum) = (&device, &sum);
                scope.spawn(move || {
                    for number in 0..200 {
                        let mut back = [0u64];
                        let ran = device.block(|block| {
                            let (own, out) =
                                (block.copy_in(&[thread * 1000 + number])?, block.alloc::<u64>(1)?);
                            block.launch(&ADD, &[own.into(), own.into()], &[out.into()])?;
                            block.copy_out(out, &mut back)
                        });
                        ran.expect("a block");
                        assert_eq!(back, [2 * (thread * 1000 + number)]);
                        sum.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!((sum.into_inner(), device.memory_used()), (800, 0));
    }
}
