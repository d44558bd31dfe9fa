//! Questions asked of this machine's own file systems.

use std::path::Path;

use terrace_memory::dax::{
    MapSync, PathError, direct_access, direct_io, filesystem_of, supports_direct_io,
};

#[test]
fn the_file_system_of_a_folder_and_of_one_not_made_yet() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let made = filesystem_of(folder.path()).expect("a file system");
    let unmade = filesystem_of(&folder.path().join("a/b/c")).expect("a file system");
    assert_eq!(made, unmade);
    assert!(folder.path().canonicalize().expect("a path").starts_with(&made.mount_point));
    let proc = filesystem_of(Path::new("/proc/self")).expect("a file system");
    assert_eq!(proc.kind, "proc");
}

#[test]
fn relative_paths_and_links_are_followed() {
    let here = filesystem_of(Path::new(".")).expect("a file system");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(std::env::current_dir().expect("a folder"), &link).expect("a link");
    assert_eq!(filesystem_of(&link).expect("a file system"), here);
}

#[test]
fn a_path_below_a_file_is_an_error_that_names_it() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let below = file.path().join("x");
    let error = filesystem_of(&below).expect_err("no folder");
    assert!(matches!(&error, PathError::Io { path, .. } if *path == below));
}

#[test]
fn nothing_stays_behind_a_question() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let access = direct_access(folder.path()).expect("an answer");
    let io = direct_io(folder.path()).expect("an answer");
    assert_eq!(supports_direct_io(folder.path()), io.accepted);
    if let MapSync::Works = access.map_sync {
        assert_ne!(access.file_dax, Some(false), "MAP_SYNC without direct access");
    }
    if let Some(align) = io.offset_align_bytes {
        assert!(align.is_power_of_two() && align <= 4096);
    }
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 0);
}

#[test]
fn tmpfs_refuses_map_sync() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() || filesystem_of(shm).is_ok_and(|info| info.kind != "tmpfs") {
        return;
    }
    let access = direct_access(shm).expect("an answer");
    assert!(matches!(access.map_sync, MapSync::Refused(_)), "{access:?}");
}

#[test]
fn a_missing_folder_supports_nothing() {
    let missing = Path::new("/no/such/folder");
    assert!(!supports_direct_io(missing));
    assert!(direct_io(missing).is_err() && direct_access(missing).is_err());
}
