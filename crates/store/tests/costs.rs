//! What an operation asks of persistent memory, by what is kept: budgets in write-backs and fences.

use terrace_machine::{Counted, Counts};
use terrace_memory::{Backing, Domain, Native, Part, Region};
use terrace_store::{Durability, Map, MapOptions, Persist, ValueDesign};

const VALUES_BYTES: u64 = 32 << 20;
const INDEX_BYTES: u64 = 8 << 20;

type Media = Part<Counted<Native>>;

/// Write-backs and fences of an update, a deletion and an insertion of a value of 100 bytes.
fn costs(values: ValueDesign, persist: Persist) -> [(u64, u64); 3] {
    let bytes = VALUES_BYTES + INDEX_BYTES;
    let region = Region::reserve(bytes, Backing::Anonymous).expect("memory").declared(Domain::Adr);
    region.commit(0, bytes).expect("memory");
    let counted = Counted::new(region.native());
    let options = MapOptions {
        durability: Durability::Sync,
        domain: Domain::Adr,
        values,
        persist,
        writers: 1,
        ..MapOptions::default()
    };
    let part = |at, bytes| Part::new(counted.clone(), at, bytes);
    let (of_values, of_index) = (part(0, VALUES_BYTES), part(VALUES_BYTES, INDEX_BYTES));
    match persist {
        Persist::Values => {
            costs_of(&counted, &Map::over(of_values, true, 1, options).expect("map"))
        }
        _ => {
            let map = Map::over_with_index(of_values, of_index, true, 1, options);
            costs_of::<Media>(&counted, &map.expect("map"))
        }
    }
}

fn costs_of<I: terrace_memory::Memory>(
    counted: &Counted<Native>,
    map: &Map<Media, I>,
) -> [(u64, u64); 3] {
    let put = |key: u64| map.put(&key.to_be_bytes(), &[7; 100]).expect("put");
    (0..64).for_each(put);
    let paid = |counts: Counts| (counts.write_backs, counts.fences);
    // The least of some: an item may begin anywhere in a line, and a table may grow.
    let least = |operation: &dyn Fn(u64)| {
        (0..16).map(|key| paid(counted.measure(|| operation(key)))).min().expect("sixteen")
    };
    let update = least(&|key| put(key));
    let delete = least(&|key| assert!(map.delete(&key.to_be_bytes()).expect("delete")));
    [update, delete, least(&|key| put(1000 + key))]
}

/// An update, a deletion, an insertion. The index kept costs a line and a fence more. Sections write
/// their log and every word in its place, a sum of all entries among them, and wait no more often than that: what
/// slabs clear in place after the entry is a word of the same section.
#[test]
fn each_persist_level_has_its_write_backs_and_fences() {
    use ValueDesign::{Log, Slab};
    assert_eq!(costs(Log, Persist::Values), [(2, 1), (1, 1), (2, 1)]);
    assert_eq!(costs(Log, Persist::Index), [(3, 2), (2, 2), (3, 2)]);
    assert_eq!(costs(Log, Persist::Full), [(8, 3), (8, 3), (9, 3)]);
    assert_eq!(costs(Slab, Persist::Values), [(3, 2), (1, 1), (2, 1)]);
    assert_eq!(costs(Slab, Persist::Index), [(4, 3), (2, 2), (3, 2)]);
    assert_eq!(costs(Slab, Persist::Full), [(10, 3), (8, 2), (10, 3)]);
}

/// What a whole map does on a modelled server: its accesses have a price, wherever they go.
#[test]
fn index_and_values_are_both_on_the_modelled_server() {
    use terrace_machine::{Machine, Preset};

    let machine = Machine::new(&Preset::named("optane-000").expect("a preset"), 1, 7);
    let memory = |node, bytes| machine.memory(node, bytes, Domain::Adr).expect("memory");
    let (values, dram) = (memory("pmem0", VALUES_BYTES), memory("dram0", INDEX_BYTES));
    let options = MapOptions {
        durability: Durability::Sync,
        domain: Domain::Adr,
        writers: 1,
        ..MapOptions::default()
    };
    let map = Map::over_with_dram(values, &dram, true, 1, options).expect("map");
    let fill = || (0..1000u64).try_for_each(|key| map.put(&key.to_be_bytes(), &[7; 1000]));
    let before = machine.elapsed();
    machine.free_of_charge(fill).expect("filled");
    assert_eq!(machine.elapsed(), before, "made for nothing");

    let counts = || ["pmem0", "dram0"].map(|node| machine.node_counts(node).expect("a memory"));
    let before = counts();
    let told = map.get_with(&7u64.to_be_bytes(), |value| value.bytes.len()).expect("get");
    let [pmem, dram] = [0, 1].map(|node| counts()[node] - before[node]);
    assert_eq!(told, Some(1000));
    assert!(dram.read_bytes >= 64, "its bucket");
    assert!(pmem.read_bytes >= 1000, "its value");
    let before = counts();
    map.put(&8u64.to_be_bytes(), &[8; 8]).expect("put");
    let pmem = counts()[0] - before[0];
    assert!(pmem.written_back_bytes >= 64, "the new item");
    assert!(pmem.read_bytes - pmem.prefetched_bytes < 1000, "of the old item, its key alone");
}
