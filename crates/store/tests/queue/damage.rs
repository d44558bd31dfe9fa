//! A damaged file of a queue is refused with the place, and what is intact can be salvaged.

use super::*;

#[test]
fn damage_is_named_with_file_and_offset() {
    let dir = tempfile::tempdir().expect("directory");
    let good = options(Durability::Sync);
    let queue = open(dir.path(), &good);
    (0..5).for_each(|number| queue.push(&element(number)).expect("push"));
    queue.close().expect("close");
    drop(queue);
    let path = dir.path().join("ring");
    let whole = std::fs::read(&path).expect("the file");
    for (at, wanted) in
        [(4096 + 128 + 20, "at offset 4224: "), (9, "at offset 24: "), (0, "no ring")]
    {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        std::fs::write(&path, damaged).expect("written");
        let refused = Queue::open(dir.path(), &good, &budget()).expect_err("damage").to_string();
        assert!(refused.contains(wanted) && refused.contains("ring"), "{refused}");
    }
    std::fs::write(&path, &whole[..8192]).expect("written");
    let refused = Queue::open(dir.path(), &good, &budget()).expect_err("damage").to_string();
    assert!(refused.contains("ends early"), "{refused}");
    let mut newer = whole.clone();
    newer[7] = b'3';
    std::fs::write(&path, newer).expect("written");
    let refused = Queue::open(dir.path(), &good, &budget()).expect_err("newer").to_string();
    assert!(refused.contains("newer") && refused.contains("queue of format 3"), "{refused}");
    std::fs::write(&path, &whole).expect("written");
    assert_eq!(open(dir.path(), &good).len(), 5);
}

#[test]
fn salvage_reads_the_intact_elements_and_leaves_the_file() {
    for domain in [Domain::PageCache, Domain::Adr] {
        let dir = tempfile::tempdir().expect("directory");
        let good = QueueOptions { domain, ..options(Durability::Sync) };
        let salvage = QueueOptions { access: Access::Salvage, ..good.clone() };
        let none = Queue::open(dir.path(), &salvage, &budget()).expect_err("nothing there");
        assert!(none.to_string().contains("ring: open: No such file"), "{none}");
        let queue = open(dir.path(), &good);
        (0..5).for_each(|number| queue.push(&element(number)).expect("push"));
        queue.close().expect("close");
        drop(queue);
        let path = dir.path().join("ring");
        let whole = std::fs::read(&path).expect("the file");
        let with = |at: usize, bytes: &[u8]| {
            let mut damaged = whole.clone();
            damaged[at..at + bytes.len()].copy_from_slice(bytes);
            damaged
        };
        // Elements 0 to 2 have a slot each, 3 and 4 two: a byte of 1, a header of 4's second, bound, tail, a
        // checkpoint.
        let cases: [(Vec<u8>, u64, &[u64]); 5] = [
            (with(4096 + 128 + 20, b"?"), 4224, &[0, 2, 3, 4]),
            (with(4096 + 6 * 128 + 8, b"?"), 4096 + 5 * 128, &[0, 1, 2, 3]),
            (with(72, &[255; 8]), 72, &[0, 1, 2, 3, 4]),
            (with(136, &[255; 8]), 136, &[0, 1, 2, 3, 4]),
            (whole[..4096 + 3 * 128].to_vec(), 4096 + 3 * 128, &[0, 1, 2]),
        ];
        for (damaged, at, intact) in cases {
            std::fs::write(&path, &damaged).expect("written");
            let refused = Queue::open(dir.path(), &good, &budget()).expect_err("damage");
            assert!(refused.to_string().contains("ring"), "{refused}");
            let queue = open(dir.path(), &salvage);
            let told = queue.damage().iter().any(|damage| damage.at == at);
            assert!(told, "{domain} {at}: {:?}", queue.damage());
            assert_eq!(queue.len(), intact.len() as u64, "{domain} {at}");
            let mut popped = Popped::new();
            assert_eq!(queue.pop_many(9, &mut popped).expect("pop"), intact.len());
            let wanted: Vec<_> = intact.iter().map(|number| element(*number)).collect();
            assert!(popped.iter().eq(wanted.iter().map(Vec::as_slice)), "{domain} {at}");
            for refused in [queue.push(b"x"), queue.sync(), queue.set_note(7)] {
                assert!(matches!(refused, Err(Error::ReadOnly(why)) if why.contains("salvage")));
            }
            queue.close().expect("nothing to write");
            drop(queue);
            assert!(std::fs::read(&path).expect("the file") == damaged, "{domain} {at}: as it was");
        }
        // Where slots begin and end is in the head alone.
        std::fs::write(&path, with(9, b"?")).expect("written");
        let refused = Queue::open(dir.path(), &salvage, &budget()).expect_err("no head");
        assert!(refused.to_string().contains("at offset 24"), "{refused}");
        std::fs::write(&path, &whole).expect("written");
        let queue = open(dir.path(), &salvage);
        assert!(queue.damage().is_empty() && queue.len() == 5);
        drop(queue);
        assert_eq!(open(dir.path(), &good).len(), 5);
    }
}

/// A file of no byte, which a full disk or a copy cut off leaves, ended whoever opened it, or asked for statistics,
/// with SIGBUS or SIGSEGV.
#[test]
fn a_file_truncated_at_any_length_is_refused_with_the_place() {
    for domain in [Domain::PageCache, Domain::Adr] {
        let dir = tempfile::tempdir().expect("directory");
        let good = QueueOptions { domain, ..options(Durability::Sync) };
        let queue = open(dir.path(), &good);
        (0..5).for_each(|number| queue.push(&element(number)).expect("push"));
        queue.close().expect("close");
        drop(queue);
        let path = dir.path().join("ring");
        let whole = std::fs::read(&path).expect("the file");
        let lengths = [0, 1, 8, 31, 32, 64, 100, 512, 4095, 4096, 4097, 4224, 8192, 9000];
        for length in lengths.into_iter().filter(|length| *length < whole.len()) {
            for access in [Access::Write, Access::Read, Access::Salvage] {
                std::fs::write(&path, &whole[..length]).expect("written");
                let options = QueueOptions { access, ..good.clone() };
                match Queue::open(dir.path(), &options, &budget()) {
                    Err(error) => {
                        let told = error.to_string();
                        assert!(told.contains("ring at offset"), "{domain} {length}: {told}");
                    }
                    Ok(queue) => {
                        assert!(access == Access::Salvage && !queue.damage().is_empty());
                    }
                }
            }
        }
    }
}
