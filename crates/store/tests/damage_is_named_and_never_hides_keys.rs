//! A damaged value file is either read exactly right or refused with the file and the offset; it
//! never opens with a key missing, changed or come back, and nothing panics. With `salvage` what
//! is intact is read, the damage listed, every write refused, and the file left as it was.
//!
//! `TERRACE_LONG=1` flips every byte of every header instead of a choice of them.

use crate::adversary::{
    BLOCK, Random, SEGMENT, cases, contents, file_now, file_of, in_memory, options, value_of,
};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use terrace_store::{Access, Durability, Error, Map, MapOptions};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// A closed map's file, what it holds, and every value a key ever had.
struct Sound {
    name: &'static str,
    durability: Durability,
    image: Vec<u8>,
    holds: Contents,
    ever: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
}

fn sound(name: &'static str, durability: Durability, keys: u64, bytes: u64) -> Sound {
    let dir = tempfile::tempdir().expect("directory");
    // One log, and none made ready: the smaller the file the more damage can be tried.
    let small = MapOptions { writers: 1, ..options(Durability::None) };
    let map = Map::open(dir.path(), small).expect("open");
    let mut random = Random(keys);
    let mut ever: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for write in 0..keys * 2 {
        let key = random.below(keys);
        let value = value_of(key, write, (bytes + random.below(bytes)) as usize);
        if random.one_in(6) {
            map.delete(&key.to_be_bytes()).expect("delete");
        } else if random.one_in(5) {
            map.multi_put(&[(&key.to_be_bytes(), &value)]).expect("batch");
        } else {
            map.put(&key.to_be_bytes(), &value).expect("put");
        }
        ever.entry(key.to_be_bytes().to_vec()).or_default().push(value);
    }
    let holds = contents(&map);
    map.set_durability(durability).expect("switch");
    map.close().expect("close");
    Sound { name, durability, image: file_now(dir.path()), holds, ever }
}

fn sound_maps() -> Vec<Sound> {
    let interval = Durability::Interval(Duration::from_secs(3600));
    vec![
        sound("closed under sync", Durability::Sync, 40, 100),
        sound("closed under an interval", interval, 40, 100),
        sound("two logs, one sealed", interval, 60, 40_000),
    ]
}

/// Writes only what is not zero: most of an image is.
fn plant(dir: &Path, image: &[u8]) {
    let file = std::fs::File::create(file_of(dir)).expect("file");
    file.set_len(image.len() as u64).expect("length");
    for (n, block) in
        image.chunks(BLOCK).enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 0))
    {
        file.write_all_at(block, (n * BLOCK) as u64).expect("block");
    }
}

/// What is wrong with how `image` was received, if anything.
fn received(sound: &Sound, image: &[u8]) -> Result<(), String> {
    let dir = in_memory();
    plant(dir.path(), image);
    // Salvage first: it leaves the file as it was.
    salvaged(sound, image, dir.path())?;
    match Map::open(dir.path(), options(sound.durability)) {
        Ok(map) => {
            let found = contents(&map);
            match found == sound.holds {
                true => Ok(()),
                false => Err(format!(
                    "opened with {} of {} keys as they were",
                    same(&found, sound),
                    sound.holds.len()
                )),
            }
        }
        Err(error) => names_the_place(&error, &file_of(dir.path())),
    }
}

fn same(found: &Contents, sound: &Sound) -> usize {
    sound.holds.iter().filter(|(key, value)| found.get(*key) == Some(*value)).count()
}

fn names_the_place(error: &Error, path: &Path) -> Result<(), String> {
    use terrace_durable::Error as Below;
    let told = error.to_string();
    match error {
        Error::Medium(Below::Damaged { .. } | Below::Mismatch { .. })
            if told.contains(&*path.to_string_lossy()) =>
        {
            Ok(())
        }
        _ => Err(format!("an unclear error: {error:?}")),
    }
}

fn salvaged(sound: &Sound, image: &[u8], dir: &Path) -> Result<(), String> {
    let salvage = MapOptions { access: Access::Salvage, ..options(sound.durability) };
    let map = match Map::open(dir, salvage) {
        Ok(map) => map,
        // A file of another kind stays one; a head that is gone altogether leaves nothing to read.
        Err(error) if image.len() < 3 * BLOCK => return names_the_place(&error, &file_of(dir)),
        Err(Error::Medium(terrace_durable::Error::Mismatch { .. })) => return Ok(()),
        Err(error) => return Err(format!("salvage refuses: {error}")),
    };
    let found = contents(&map);
    for (key, value) in &found {
        if !sound.ever.get(key).is_some_and(|values| values.contains(value)) {
            return Err("salvage read a value that was never written".into());
        }
    }
    let report = map.recovery();
    if found != sound.holds && report.damage.is_empty() {
        return Err(format!(
            "salvage lists no damage with {} of {} keys as they were",
            same(&found, sound),
            sound.holds.len()
        ));
    }
    if report.damage.iter().any(|damage| damage.what.is_empty()) {
        return Err(format!("salvage does not say what is damaged: {:?}", report.damage));
    }
    if map.put(b"new", b"value").is_ok()
        || map.delete(b"new").and_then(|_| map.sync()).is_ok()
        || map.clear().is_ok()
    {
        return Err("salvage took a write".into());
    }
    drop(map);
    if file_now(dir) != image {
        return Err("salvage changed the file".into());
    }
    Ok(())
}

/// Runs every damaged image past the oracle and shows what it did not like, together.
fn all_received(what: &str, sound: &Sound, images: impl Iterator<Item = (String, Vec<u8>)>) {
    let mut tried = 0;
    let mut wrong = Vec::new();
    for (damage, image) in images {
        tried += 1;
        if let Err(why) = received(sound, &image) {
            wrong.push(format!("{damage}: {why}"));
        }
    }
    println!("{what}, {}: {tried} damaged images", sound.name);
    let shown = wrong.iter().take(12).cloned().collect::<Vec<_>>().join("\n  ");
    assert!(
        wrong.is_empty(),
        "{what}, {}: {} of {tried} images:\n  {shown}",
        sound.name,
        wrong.len()
    );
}

fn flipped(sound: &Sound, at: usize, mask: u8) -> (String, Vec<u8>) {
    let mut image = sound.image.clone();
    image[at] ^= mask;
    (format!("byte {at} flipped by {mask:#04x}"), image)
}

/// Offsets in a block of `bytes`: its beginning, its checksum, and some between.
fn chosen(start: usize, bytes: usize, dense: usize) -> impl Iterator<Item = usize> {
    let step = if std::env::var_os("TERRACE_LONG").is_some() { 1 } else { 97 };
    (0..bytes)
        .filter(move |n| *n < dense || *n >= bytes - 4 || n % step == 0)
        .map(move |n| start + n)
}

fn check_flips_in_block(block: usize) {
    for sound in &sound_maps()[..2] {
        let at = chosen(block * BLOCK, BLOCK, 72);
        all_received(
            "a flipped byte of the head",
            sound,
            at.map(|at| flipped(sound, at, 1 << (at % 8))),
        );
    }
}

#[test]
fn in_the_superblock() {
    check_flips_in_block(0);
}

#[test]
fn in_the_first_checkpoint() {
    check_flips_in_block(1);
}

#[test]
fn in_the_second_checkpoint() {
    check_flips_in_block(2);
}

#[test]
fn in_the_header_of_a_log() {
    for sound in &sound_maps() {
        let used = |start: &usize| sound.image[*start..*start + 64].iter().any(|byte| *byte != 0);
        let headers: Vec<usize> =
            (SEGMENT..sound.image.len()).step_by(SEGMENT).filter(used).collect();
        let at = headers.into_iter().flat_map(|start| {
            (start..start + 64).step_by(if sound.name.starts_with("two") { 19 } else { 1 })
        });
        all_received(
            "a flipped byte of a log's header",
            sound,
            at.map(|at| flipped(sound, at, 0x10)),
        );
    }
}

#[test]
fn in_the_items() {
    for (sound, images) in sound_maps().iter().zip([380, 380, 8]) {
        let written: Vec<usize> =
            (SEGMENT + 64..sound.image.len()).filter(|at| sound.image[*at] != 0).collect();
        let mut random = Random(3);
        let at = (0..cases(images)).map(|_| written[random.below(written.len() as u64) as usize]);
        all_received(
            "a flipped byte of an item",
            sound,
            at.map(|at| flipped(sound, at, 1 << (at % 8))),
        );
    }
}

#[test]
fn in_whole_sectors() {
    for sound in &sound_maps()[..2] {
        let used = |sector: &usize| {
            sound.image[sector * 512..(sector + 1) * 512].iter().any(|byte| *byte != 0)
        };
        let sectors = (0..sound.image.len() / 512).filter(used);
        let mut random = Random(5);
        let images = sectors
            .flat_map(|sector| [None, Some(random.bits() as u8 | 1)].map(|noise| (sector, noise)));
        let images = images.filter_map(|(sector, noise)| {
            let mut image = sound.image.clone();
            let bytes = &mut image[sector * 512..(sector + 1) * 512];
            match noise {
                // A log whose header reads as zero looks free; the checkpoint knows that it was open.
                None => bytes.fill(0),
                Some(noise) => bytes
                    .iter_mut()
                    .enumerate()
                    .for_each(|(n, byte)| *byte = noise.wrapping_mul(n as u8 | 1)),
            }
            (image != sound.image).then_some((format!("sector {sector} made {noise:?}"), image))
        });
        all_received("a bad sector", sound, images);
    }
}

#[test]
fn at_the_end() {
    for sound in &sound_maps()[..2] {
        let last = sound.image.iter().rposition(|byte| *byte != 0).expect("something was written");
        let mut random = Random(9);
        let head =
            [1, 100, 512, 4095, 4096, 5000, 8191, 8192, 8193, 10_000, 12_287, 12_288, 12_289];
        let body = (0..cases(90)).map(|_| SEGMENT + random.below((last - SEGMENT) as u64) as usize);
        let whole = [
            SEGMENT - 1,
            SEGMENT,
            SEGMENT + 1,
            SEGMENT + 63,
            SEGMENT + 64,
            SEGMENT + BLOCK,
            sound.image.len() - 1,
        ];
        let lengths: Vec<usize> = head.into_iter().chain(whole).chain(body).collect();
        let images = lengths
            .into_iter()
            .map(|bytes| (format!("cut off at {bytes}"), sound.image[..bytes].to_vec()));
        all_received("a file cut off", sound, images);
    }
}

/// The superblock of a file made by somebody else, with a checksum that is right.
fn superblock(image: &[u8], field: usize, value: u32) -> Vec<u8> {
    let mut image = image.to_vec();
    image[field..field + 4].copy_from_slice(&value.to_le_bytes());
    let crc = terrace_durable::checksum::Crc::new(1).update(&image[..BLOCK - 4]).finish();
    image[BLOCK - 4..BLOCK].copy_from_slice(&crc.to_le_bytes());
    image
}

#[test]
fn nor_is_another_kind_of_file_taken_for_a_map() {
    let sound = &sound_maps()[0];
    let cases = [
        ("format version", 8, 0),
        ("segment size", 12, 1 << 20),
        ("values in", 16, 2),
        ("values in", 16, 77),
    ];
    for (field, at, value) in cases {
        let dir = tempfile::tempdir().expect("directory");
        let image = superblock(&sound.image, at, value);
        plant(dir.path(), &image);
        let error = Map::open(dir.path(), options(sound.durability)).err().expect("refused");
        assert!(
            matches!(error, Error::Medium(terrace_durable::Error::Mismatch { .. })),
            "{error:?}"
        );
        assert!(error.to_string().contains(field), "{error}");
        assert!(file_now(dir.path()) == image, "a file of another kind is left as it was");
    }
    let dir = tempfile::tempdir().expect("directory");
    plant(dir.path(), &superblock(&sound.image, 8, 3));
    for access in [Access::Write, Access::Read, Access::Salvage] {
        let newer = MapOptions { access, ..options(sound.durability) };
        let error = Map::open(dir.path(), newer).err().expect("refused").to_string();
        assert!(error.contains("newer") && error.contains("format 3"), "{error}");
    }
    for other in [&b"PK\x03\x04 and so on"[..], &[0xff; 3 * BLOCK], &vec![1; 2 * SEGMENT]] {
        let dir = tempfile::tempdir().expect("directory");
        plant(dir.path(), other);
        let error = Map::open(dir.path(), options(sound.durability)).err().expect("refused");
        assert!(names_the_place(&error, &file_of(dir.path())).is_ok(), "{error:?}");
        assert!(file_now(dir.path()) == other, "a file of another kind is left as it was");
    }
}
