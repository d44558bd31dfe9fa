use super::*;
use std::io::Cursor;

fn records() -> Vec<OwnedRecord> {
    let mut all: Vec<OwnedRecord> = (0u32..5000)
        .map(|i| OwnedRecord {
            key: format!("key-{i}").into_bytes(),
            value: vec![(i % 251) as u8; (i % 300) as usize],
            expires_at_ms: (i % 3 == 0).then_some(4_000_000_000_000 + u64::from(i)),
        })
        .collect();
    let odd: [(&[u8], &[u8]); 6] = [
        (b"comma,quote\"", b"\"\",\"\n\r\t\\x41"),
        (b"\x00\xff\xfe", b"\x80 binary \x01"),
        ("gr\u{fc}n".as_bytes(), "\u{1f332}".as_bytes()),
        (b"\\", b"\\\\n"),
        (b" spaces ", b""),
        (b"last", b"\r\n"),
    ];
    all.extend(odd.map(|(k, v)| OwnedRecord {
        key: k.to_vec(),
        value: v.to_vec(),
        expires_at_ms: None,
    }));
    all.push(OwnedRecord { key: b"big".to_vec(), value: vec![7; 1 << 20], expires_at_ms: None });
    all
}

fn written(format: Format, all: &[OwnedRecord]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = format.writer(&mut file).expect("memory");
    for record in all {
        writer.write(record.as_record()).expect("memory");
    }
    writer.finish().expect("memory");
    drop(writer);
    file
}

fn read(format: Format, file: &[u8], salvage: bool) -> Result<Vec<OwnedRecord>, TransferError> {
    let mut reader = format.reader(Cursor::new(file), salvage)?;
    let (mut all, mut record) = (Vec::new(), OwnedRecord::default());
    while reader.read(&mut record)? {
        all.push(record.clone());
    }
    Ok(all)
}

#[test]
fn every_format_brings_back_every_byte() {
    let all = records();
    for format in [Format::Binary, Format::Csv, Format::Jsonl] {
        let file = written(format, &all);
        assert!(read(format, &file, false).expect("intact") == all, "{format:?}");
        assert!(read(format, &written(format, &[]), false).expect("intact").is_empty());
    }
}

/// Each byte of a small file changed, each prefix of it: never a wrong record, always a complaint.
#[test]
fn damage_and_truncation_of_a_binary_file_are_always_found() {
    let all = &records()[..20];
    let file = written(Format::Binary, all);
    for at in 0..file.len() {
        for flip in [1u8, 0x80, 0xff] {
            let mut bad = file.clone();
            bad[at] ^= flip;
            assert!(read(Format::Binary, &bad, false).is_err(), "byte {at} flipped by {flip}");
        }
        assert!(read(Format::Binary, &file[..at], false).is_err(), "cut at {at}");
    }
    let mut long = file.clone();
    long.push(0);
    assert!(read(Format::Binary, &long, false).is_err());
}

#[test]
fn a_salvage_keeps_the_sound_blocks_and_names_the_others() {
    let all = records();
    let file = written(Format::Binary, &all);
    let mut bad = file.clone();
    bad[100] ^= 1;
    let kept = read(Format::Binary, &bad, true).expect("salvage");
    assert!(kept.len() < all.len() && !kept.is_empty());
    assert!(kept.iter().all(|r| all.contains(r)));

    let mut reader = Format::Binary.reader(Cursor::new(&bad), true).expect("salvage");
    let summary = verify(&mut *reader, &mut |_| ()).expect("salvage");
    assert_eq!(summary.records, kept.len() as u64);
    assert!(summary.skipped[0].starts_with("offset 32: block 0"), "{:?}", summary.skipped);

    // A damaged block header: the next sound frame is found by its own checksum.
    let mut bad = file;
    bad[32 + 8] ^= 1;
    let again = read(Format::Binary, &bad, true).expect("salvage");
    assert!(again == kept);
}

#[test]
fn a_bad_line_is_named_by_its_number() {
    let check = |format, file: &str, expected: &str| {
        let error = read(format, file.as_bytes(), false).expect_err(file).to_string();
        assert!(error.contains(expected), "{error} should contain {expected}");
    };
    check(Format::Csv, "a,b\n", "line 1: the first line must name the columns");
    check(Format::Csv, "key,value\nx\n", "line 2: 1 fields where 2 are due");
    check(Format::Csv, "key,value\nx,\"y\n", "line 2: a quoted field does not end");
    check(Format::Csv, "key,value\nx,\\q\n", "line 2: `\\q` is no escape");
    check(Format::Csv, "key,value\nx,\\x+1\n", "line 2: `\\x` needs two");
    check(Format::Csv, "key,value,expires_at_ms\nx,y,z\n", "line 2: `z` is not a time");
    check(Format::Jsonl, "{\"key\":\"a\"}\n", "line 1: needs either `value`");
    check(Format::Jsonl, "{\"key\":\"a\",\"value\":\"b\"}\n{", "line 2:");
    check(Format::Jsonl, "{\"key_base64\":\"!\",\"value\":\"b\"}\n", "is not base64");
    check(Format::Jsonl, "{\"ky\":\"a\",\"value\":\"b\"}\n", "unknown field");
    let foreign = read(Format::Csv, b"value,key\r\n1,a\r\n", false).expect("another order");
    assert_eq!(foreign[0].key, b"a");
}

#[test]
fn a_map_goes_out_and_comes_back() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let options = crate::MapOptions { memory_budget_bytes: 256 << 20, ..Default::default() };
    let db = crate::Database::open(dir.path().join("a"), options.clone()).expect("open");
    let map = db.map("things").expect("map");
    let all = records();
    let mut sink = MapSink::new(&map);
    for record in &all {
        sink.put(record.as_record()).expect("room");
    }
    sink.flush().expect("room");

    let mut file = Vec::new();
    let mut writer = Format::Binary.writer(&mut file).expect("memory");
    let out = export(&mut MapSource::new(&map), &mut *writer, &mut |_| ()).expect("export");
    drop(writer);
    assert_eq!(out.records, all.len() as u64);

    let other = crate::Database::open(dir.path().join("b"), options).expect("open");
    let map = other.map("things").expect("map");
    let mut reader = Format::Binary.reader(Cursor::new(&file), false).expect("header");
    let back = import(&mut *reader, &mut MapSink::new(&map), &mut |_| ()).expect("import");
    assert_eq!(back, out);
    let mut session = map.session();
    for record in &all {
        let found = session
            .get(&record.key, |v| (v.bytes.to_vec(), v.expires_at_ms))
            .expect("get")
            .expect("present");
        assert_eq!(found, (record.value.clone(), record.expires_at_ms));
    }
}

#[test]
fn records_whose_time_has_passed_are_counted_and_left_out() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let db = crate::Database::open(dir.path(), crate::MapOptions::default()).expect("open");
    let map = db.map("m").expect("map");
    let file = "key,value,expires_at_ms\nold,1,1000\nnew,2,\n";
    let mut reader = Format::Csv.reader(Cursor::new(file), false).expect("head");
    let summary = import(&mut *reader, &mut MapSink::new(&map), &mut |_| ()).expect("import");
    assert_eq!((summary.records, summary.expired), (1, 1));
    assert_eq!(map.get(b"old").expect("get"), None);
}

/// After a failed sync an export left out what was not durable, and said nothing.
#[test]
fn an_export_after_a_failed_sync_says_what_it_lacks() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let options =
        crate::MapOptions { durability: crate::Durability::Sync, ..crate::MapOptions::default() };
    let db = crate::Database::open(dir.path(), options).expect("open");
    let map = db.map("m").expect("map");
    map.put(b"durable", b"1").expect("put");
    let exported = || {
        let mut writer = Format::Binary.writer(std::io::sink()).expect("nowhere");
        export(&mut MapSource::new(&map), &mut *writer, &mut |_| ()).expect("export")
    };
    assert_eq!((exported().records, exported().lacks), (1, None));
    // The logs that are made ready ahead of need are.
    std::thread::sleep(std::time::Duration::from_millis(500));
    map.medium().inject_write_fault(0);
    map.put(b"lost", b"2").expect_err("the sync fails");
    let summary = exported();
    assert_eq!(summary.records, 1);
    let lacks = summary.lacks.expect("a word about the key that is left out");
    assert!(lacks.starts_with("1 keys whose last write is not durable: "), "{lacks}");
}
