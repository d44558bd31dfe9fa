//! Tiers against machines: what is found, what may be declared, and what is refused with which
//! words.

mod common;

use std::path::Path;

use crate::common::{Tree, check_snapshot};
use terrace_memory::dax::{FilesystemInfo, MapSync, PathError};
use terrace_memory::tier::{
    Access, PathProbe, SystemPaths, Tier, TierError, TierKind, TierSpec, found_specs, found_tiers,
    resolve_all,
};
use terrace_memory::topology::{Mount, Topology};
use terrace_memory::{ByteSize, Domain};

/// Answers for the mounts of a fixture tree; `MAP_SYNC` works below `/mnt/pmem` only.
struct TreePaths {
    mounts: Vec<Mount>,
}

impl PathProbe for TreePaths {
    fn filesystem(&self, path: &Path) -> Result<FilesystemInfo, PathError> {
        let holders = self.mounts.iter().filter(|mount| path.starts_with(&mount.mount_point));
        let mount = holders.max_by_key(|mount| mount.mount_point.as_os_str().len());
        let mount = mount.ok_or_else(|| PathError::NoMount { path: path.to_owned() })?;
        Ok(FilesystemInfo {
            kind: mount.kind.clone(),
            device: mount.device.clone(),
            numbers: mount.numbers.clone(),
            mount_point: mount.mount_point.clone(),
            dax: mount.dax,
            read_only: mount.read_only,
        })
    }

    fn map_sync(&self, folder: &Path) -> Result<MapSync, PathError> {
        let text = folder.to_str().expect("a textual path");
        Ok(match text.starts_with("/mnt/pmem") {
            true => MapSync::Works,
            false => MapSync::Refused("Operation not supported".to_owned()),
        })
    }
}

struct Machine {
    topology: Topology,
    paths: TreePaths,
}

impl Machine {
    fn of(name: &str) -> Self {
        let tree = Tree::of(name);
        Machine {
            topology: tree.topology(),
            paths: TreePaths { mounts: Mount::list(&tree.roots().proc).expect("mounts") },
        }
    }

    /// Resolves a tier written as it would be in `terrace.toml`.
    fn resolve(&self, toml: &str) -> Result<Tier, TierError> {
        let spec: TierSpec =
            toml::from_str(&format!("name = 't'\n{toml}")).expect("a tier in TOML");
        spec.resolve(&self.topology, &self.paths)
    }

    fn medium(&self, toml: &str) -> (Access, Domain, bool, String) {
        let medium = self.resolve(toml).expect(toml).medium;
        (medium.access, medium.domain, medium.is_emulated, medium.reason)
    }

    fn refusal(&self, toml: &str) -> String {
        self.resolve(toml).expect_err(toml).to_string()
    }
}

#[test]
fn every_machine_has_its_tiers_found() {
    let mut shown = String::new();
    for name in ["single_vm", "optane_server", "cxl_machine"] {
        let machine = Machine::of(name);
        let specs = found_specs(&machine.topology);
        let tiers = resolve_all(&specs, &machine.topology, &machine.paths).expect(name);
        shown.push_str(&format!("{name}\n"));
        for tier in tiers {
            let bytes = tier.bytes.map_or("-".to_owned(), |bytes| ByteSize(bytes).to_string());
            shown.push_str(&format!(
                "  {:<6} {:<5} {bytes:>9}  {}\n",
                tier.name,
                tier.kind.word(),
                tier.medium
            ));
            assert!(!tier.medium.is_emulated);
        }
    }
    check_snapshot("found_tiers", &shown);
}

#[test]
fn files_are_kept_by_the_page_cache_and_memory_by_nothing() {
    let machine = Machine::of("single_vm");
    let (access, domain, is_emulated, reason) = machine.medium("kind = 'file'\npath = '/data'");
    assert_eq!((access, domain, is_emulated), (Access::Block, Domain::PageCache, false));
    assert_eq!(reason, "page cache: ext4 on /dev/vda, made durable by fdatasync");

    let (access, domain, _, reason) = machine.medium("kind = 'tmpfs'\npath = '/dev/shm/t'");
    assert_eq!((access, domain), (Access::ByteAddressable, Domain::None));
    assert_eq!(reason, "none: tmpfs at /dev/shm, lost with the power");

    // A file tier on tmpfs gains nothing from its name.
    let (access, domain, _, _) = machine.medium("kind = 'file'\npath = '/dev/shm/t'");
    assert_eq!((access, domain), (Access::Block, Domain::None));

    let (_, domain, _, reason) = machine.medium("kind = 'dram'");
    assert_eq!((domain, reason.as_str()), (Domain::None, "none: memory, lost with the power"));
}

#[test]
fn a_domain_is_never_guessed_upward() {
    let vm = Machine::of("single_vm");
    let refusal = vm.refusal("kind = 'file'\npath = '/data'\ndomain = 'adr'");
    assert_eq!(
        refusal,
        "tier t: domain ADR is declared, but page cache: ext4 on /dev/vda, made durable by \
         fdatasync; a file or tmpfs tier may stand in for it with declared = true"
    );
    for stronger in [
        "kind = 'dram'\ndomain = 'adr'",
        "kind = 'dram'\ndomain = 'page-cache'",
        "kind = 'tmpfs'\npath = '/dev/shm'\ndomain = 'page-cache'",
        "kind = 'tmpfs'\npath = '/dev/shm'\ndomain = 'eadr'",
        "kind = 'file'\npath = '/dev/shm'\ndomain = 'page-cache'",
    ] {
        assert!(
            matches!(vm.resolve(stronger), Err(TierError::DomainTooStrong { .. })),
            "{stronger}"
        );
    }
    let server = Machine::of("optane_server");
    for stronger in [
        "kind = 'dax'\npath = '/mnt/pmem0'\ndomain = 'eadr'",
        "kind = 'dax'\npath = '/mnt/striped'\ndomain = 'adr'",
        "kind = 'dax'\npath = '/mnt/shared'\ndomain = 'adr'",
        "kind = 'node'\nnode = 2\ndomain = 'adr'",
    ] {
        assert!(
            matches!(server.resolve(stronger), Err(TierError::DomainTooStrong { .. })),
            "{stronger}"
        );
    }
}

#[test]
fn a_weaker_domain_may_be_declared() {
    let server = Machine::of("optane_server");
    for weaker in ["adr", "page-cache", "none"] {
        let tier = server
            .resolve(&format!("kind = 'dax'\npath = '/mnt/pmem 1'\ndomain = '{weaker}'"))
            .expect(weaker);
        assert_ne!(tier.medium.domain, Domain::Eadr);
        assert!(!tier.medium.is_emulated);
        assert!(tier.medium.reason.contains("by declaration, though more was found (eADR:"));
    }
}

#[test]
fn an_emulated_medium_says_that_it_is_one() {
    let vm = Machine::of("single_vm");
    for (kind, path) in [("tmpfs", "/dev/shm"), ("file", "/data"), ("file", "/dev/shm")] {
        for (word, domain) in [("adr", Domain::Adr), ("eadr", Domain::Eadr)] {
            let tier = vm
                .resolve(&format!(
                    "kind = '{kind}'\npath = '{path}'\ndomain = '{word}'\ndeclared = true"
                ))
                .expect("emulated");
            assert_eq!(tier.medium.access, Access::ByteAddressable);
            assert_eq!(tier.medium.domain, domain);
            assert!(tier.medium.is_emulated && tier.medium.allows_slabs());
            assert!(
                tier.medium
                    .reason
                    .contains("emulated: it survives a killed process but no power cut")
            );
        }
    }
    // Declaring what is found anyway makes no emulated medium.
    let tier = vm
        .resolve("kind = 'file'\npath = '/data'\ndomain = 'page-cache'\ndeclared = true")
        .expect("what is found");
    assert!(!tier.medium.is_emulated && !tier.medium.allows_slabs());
}

#[test]
fn direct_access_needs_both_the_mapping_and_the_region() {
    let server = Machine::of("optane_server");
    let dax = |path: &str| server.medium(&format!("kind = 'dax'\npath = '{path}'"));
    assert_eq!(
        dax("/mnt/pmem0").3,
        "ADR: ext4 on /dev/pmem0 maps directly with MAP_SYNC on region0, durable after \
         write-back and fence"
    );
    assert_eq!(dax("/mnt/pmem 1").1, Domain::Eadr);
    let (access, domain, _, reason) = dax("/mnt/striped");
    assert_eq!((access, domain), (Access::ByteAddressable, Domain::PageCache));
    assert!(reason.contains("refuses MAP_SYNC (Operation not supported)"), "{reason}");

    // The mapping works, but the kernel is silent about the region.
    let mut silent = Machine::of("optane_server");
    silent.topology.persistent.mounts[0].domain = None;
    let (_, domain, _, reason) = silent.medium("kind = 'dax'\npath = '/mnt/pmem0'");
    assert_eq!(domain, Domain::PageCache);
    assert!(reason.contains("reports no persistence domain for region0"), "{reason}");
}

/// Tiers that do not fit the server, and the words they are refused with.
const REFUSALS: &[(&str, &str)] = &[
    ("kind = 'node'\nnode = 9", "tier t: no node 9; this machine has [0, 1, 2]"),
    ("kind = 'node'", "tier t: kind \"node\" needs the key \"node\""),
    ("kind = 'file'", "tier t: kind \"file\" needs the key \"path\""),
    ("kind = 'dram'\npath = '/x'", "tier t: the key \"path\" means nothing for kind \"dram\""),
    (
        "kind = 'file'\npath = '/x'\nnode = 0",
        "tier t: the key \"node\" means nothing for kind \"file\"",
    ),
    (
        "kind = 'dram'\ndeclared = true",
        "tier t: the key \"declared\" means nothing for kind \"dram\"",
    ),
    (
        "kind = 'file'\npath = '/x'\ndeclared = true",
        "tier t: kind \"file\" needs the key \"domain\"",
    ),
    ("kind = 'dram'\nbytes = 0", "tier t: it may hold 0 bytes"),
    ("kind = 'node'\nnode = 2\nbytes = '1 TiB'", "tier t: 1 TiB asked, 496 GiB there"),
    ("kind = 'huge'\nbytes = '9 GiB'", "tier t: 9 GiB asked, 8 GiB there"),
    (
        "kind = 'tmpfs'\npath = '/mnt/pmem0'",
        "tier t: /mnt/pmem0 is on ext4 on /dev/pmem0, which is not tmpfs",
    ),
    (
        "kind = 'dax'\npath = '/mnt/plain'",
        "tier t: /mnt/plain is on ext4 on /dev/pmem1s, which is not a mount with direct \
         access (option dax)",
    ),
    (
        "kind = 'dax'\npath = '/home'",
        "tier t: /home is on ext4 on /dev/sda1, which is not a mount with direct \
         access (option dax)",
    ),
];

#[test]
fn a_tier_that_does_not_fit_is_refused_with_the_available_memory() {
    let server = Machine::of("optane_server");
    for (toml, message) in REFUSALS {
        assert_eq!(server.refusal(toml), *message, "{toml}");
    }
    let mut without_pages = Machine::of("single_vm");
    without_pages.topology.transparent_huge_pages.enabled = Some("never".to_owned());
    assert!(
        without_pages
            .refusal("kind = 'huge'")
            .starts_with("tier t: no huge pages; reserve some in")
    );
}

#[test]
fn names_are_checked_and_unique() {
    let machine = Machine::of("single_vm");
    let named = |name: &str| TierSpec::new(name, TierKind::Dram);
    for name in ["", "a b", "n\u{e4}me", &"x".repeat(65)] {
        let refused = named(name).resolve(&machine.topology, &machine.paths);
        assert!(matches!(refused, Err(TierError::BadName { .. })), "{name:?}");
    }
    let twice = [named("a"), named("b"), named("a")];
    let refused = resolve_all(&twice, &machine.topology, &machine.paths);
    assert!(matches!(refused, Err(TierError::SameName { tier }) if tier == "a"));
}

#[test]
fn tiers_read_from_and_write_to_toml() {
    let text = "name = \"far\"\nkind = \"node\"\nnode = 2\nbytes = 1073741824\n";
    let spec: TierSpec = toml::from_str(text).expect("a tier");
    assert_eq!(spec.bytes, Some(ByteSize(1 << 30)));
    assert_eq!(toml::to_string(&spec).expect("TOML"), text);
    for bad in [
        "name = 'x'\nkind = 'dram'\nnodes = 1",
        "name = 'x'\nkind = 'ssd'",
        "name = 'x'\nkind = 'dram'\nbytes = 'lots'",
        "name = 'x'\nkind = 'dram'\nbytes = -1",
        "name = 'x'\nkind = 'dram'\ndomain = 'strong'",
        "kind = 'dram'",
    ] {
        assert!(toml::from_str::<TierSpec>(bad).is_err(), "{bad}");
    }
}

#[test]
fn the_tiers_of_the_machine_this_runs_on() {
    let topology = Topology::read().expect("this machine's files are sound");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut spec = TierSpec::new("data", TierKind::File);
    spec.path = Some(folder.path().join("not/yet/made"));
    let mut specs = found_specs(&topology);
    specs.retain(|spec| spec.kind != TierKind::Dax);
    specs.push(spec);
    let tiers = resolve_all(&specs, &topology, &SystemPaths).expect("tiers");
    let data = tiers.last().expect("the file tier");
    assert_eq!(data.medium.access, Access::Block);
    assert!(!data.medium.domain.is_byte_addressable());
}

#[test]
fn a_mount_that_cannot_be_used_is_reported_and_stops_nothing() {
    /// Every folder is closed to this process.
    struct Closed(TreePaths);
    impl PathProbe for Closed {
        fn filesystem(&self, path: &Path) -> Result<FilesystemInfo, PathError> {
            self.0.filesystem(path)
        }
        fn map_sync(&self, folder: &Path) -> Result<MapSync, PathError> {
            Err(PathError::Io {
                path: folder.to_owned(),
                source: std::io::ErrorKind::PermissionDenied.into(),
            })
        }
    }
    let server = Machine::of("optane_server");
    let (tiers, unusable) = found_tiers(&server.topology, &Closed(server.paths));
    assert_eq!(tiers.len(), 4, "memory of three nodes, and huge pages");
    let messages: Vec<String> = unusable.iter().map(ToString::to_string).collect();
    assert_eq!(messages.len(), 4);
    assert_eq!(messages[0], "tier dax0: /mnt/pmem0: permission denied");
}
