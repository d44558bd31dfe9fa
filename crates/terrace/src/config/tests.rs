use super::*;
use terrace_memory::Topology;
use terrace_store::QueueOptions;
use terrace_store::queue::Form;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new("terrace.toml")).map_err(|e| e.to_string())
}

/// Each bad file and the exact complaint.
#[test]
fn bad_settings_are_named_with_file_line_and_what_would_be_right() {
    let cases = [
        ("prot = 1", "terrace.toml:1: unknown key `prot`; did you mean `port`?"),
        (
            "port = 1\n\ndurabilty = \"sync\"\n",
            "terrace.toml:3: unknown key `durabilty`; did you mean `durability`?",
        ),
        (
            "[limits]\nclient = 3\n",
            "terrace.toml:2: unknown key `limits.client`; did you mean `limits.clients`?",
        ),
        (
            "[maps.users]\nvalue = \"log\"\n",
            "terrace.toml:2: unknown key `maps.users.value`; did you mean `maps.users.values`?",
        ),
        (
            "durability = \"fsync\"",
            "terrace.toml:1: `durability`: `fsync` is not one of \"sync\", \"interval\" or \"none\"; \
             did you mean \"sync\"?",
        ),
        (
            "disk_budget = \"1 MiB\"",
            "terrace.toml:1: `disk_budget`: `1 MiB` is too small; the least is 32 MiB",
        ),
        ("port = 70000", "terrace.toml:1: `port`: `70000` is not a number from 0 to 65535"),
        (
            "memory_budget = \"8 gigs\"",
            "terrace.toml:1: `memory_budget`: `8 gigs` is not a size; write one like \"8 GiB\", \
             \"512 MiB\" or 4096",
        ),
        (
            "[[tier]]\nname = \"a\"\nkind = \"flash\"",
            "terrace.toml:3: `tier.kind`: `flash` is not one of \"dram\", \"huge\", \"node\", \
             \"file\", \"dax\" or \"tmpfs\"",
        ),
        ("[[tier]]\nkind = \"dram\"", "terrace.toml:2: a tier needs a `name`"),
        (
            "[tls]\nport = 6380",
            "terrace.toml: TLS needs `tls.port`, `tls.cert` and `tls.key` together",
        ),
        ("[limit]\nclients = 1", "terrace.toml:1: unknown key `limit`; did you mean `limits`?"),
        (
            "[port]\nx = 1",
            "terrace.toml:1: `port`: expected a string, a number or a list of strings",
        ),
        ("maps = 3", "terrace.toml:1: `maps` is a section: [maps.NAME]"),
        ("queues = 3", "terrace.toml:1: `queues` is a section: [queues.NAME]"),
        ("words = 3", "terrace.toml:1: `words` is a section: [words.NAME]"),
        (
            "[words.seats]\nsize = 3\n",
            "terrace.toml:2: unknown key `words.seats.size`; known keys: form, capacity, path, domain",
        ),
        (
            "[words.seats]\nform = \"hard\"\n",
            "terrace.toml:2: `words.seats.form`: `hard` is none of tlog, log-free, link-free, soft",
        ),
        (
            "[words.seats]\ncapacity = 0\n",
            "terrace.toml:2: `words.seats.capacity`: `0` is not a number from 1 to 1099511627776",
        ),
        (
            "[queues.jobs]\nsize = \"1 MiB\"\n",
            "terrace.toml:2: unknown key `queues.jobs.size`; known keys: form, durability, interval_ms, capacity, \
             slot, largest",
        ),
        (
            "[queues.jobs]\nform = \"tx_free\"\n",
            "terrace.toml:2: `queues.jobs.form`: `tx_free` is none of tx, tx-free, volatile",
        ),
        (
            "[queues.jobs]\nslot = 100\n",
            "terrace.toml:2: `queues.jobs.slot`: `100` is not a multiple of 64 from 64 to 65472",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text).expect_err(text), expected, "for {text:?}");
    }
    let error = parse("a = ").expect_err("not TOML");
    assert!(error.starts_with("terrace.toml:1: not TOML"), "{error}");
}

#[test]
fn the_disk_is_bounded_by_a_size_or_by_what_it_has() {
    let limit = |text: &str| parse(text).map(|config| config.options().disk_budget.limit());
    assert_eq!(limit(""), Ok(None), "automatic by default");
    assert_eq!(limit("disk_budget = \"auto\""), Ok(None));
    assert_eq!(limit("disk_budget = \"off\""), Ok(None), "as files of before say");
    assert_eq!(limit("disk_budget = \"64 MiB\""), Ok(Some(64 << 20)));
    assert!(limit("disk_budget = \"automatic\"").is_err());
}

#[test]
fn a_full_file_is_understood() {
    let config = parse(
        r#"
listen = ["127.0.0.1", "::1"]
port = 7000
password = "secret"
metrics = "127.0.0.1:9121"
durability = "sync"
memory_budget = "1.5 GiB"
when_full = "evict"

[limits]
clients = 50
argument = "1 MiB"

[maps.sessions]
durability = "none"
values = "log"
when_full = "refuse"

[[tier]]
name = "fast"
kind = "node"
node = 1
bytes = "16 GiB"

[[tier]]
name = "kept"
kind = "dax"
path = "/mnt/pmem0"
domain = "adr"
"#,
    )
    .expect("valid");
    assert_eq!(config.server.listen.len(), 2);
    assert_eq!(config.server.limits.clients, 50);
    assert_eq!(config.options().durability, Durability::Sync);
    let sessions = config.options_of("sessions", config.options());
    assert_eq!(sessions.durability, Durability::None);
    assert_eq!(sessions.when_full, WhenFull::Refuse);
    assert_eq!(sessions.memory_budget_bytes, 3 << 29);
    assert_eq!(config.options_of("other", config.options()).when_full, WhenFull::Evict);
    assert_eq!(config.tiers[1].domain, Some(Domain::Adr));
}

#[test]
fn flags_and_file_are_the_same_table() {
    let mut config = Config::default();
    config.set("limits.clients", "7").expect("known");
    config.set_map("users.durability=sync").expect("known");
    config.set_tier("name=fast,kind=node,node=1,bytes=16 GiB").expect("known");
    let file = "[limits]\nclients = 7\n[maps.users]\ndurability = \"sync\"\n\
                [[tier]]\nname = \"fast\"\nkind = \"node\"\nnode = 1\nbytes = \"16 GiB\"\n";
    assert_eq!(config, parse(file).expect("valid"));
    let error = config.set_map("users.durabilty=sync").expect_err("misspelt");
    assert_eq!(
        error.to_string(),
        "unknown key `maps.users.durabilty`; did you mean `maps.users.durability`?"
    );
}

#[test]
fn the_written_defaults_are_the_defaults() {
    for key in KEYS {
        let mut config = Config::default();
        config.set(key.name, key.default).expect("a default is valid");
        assert_eq!(config, Config::default(), "{}", key.name);
    }
}

/// Nobody's file stops working because a setting went; a flag has nobody's past to keep, and is refused.
#[test]
fn settings_of_earlier_versions_do_nothing_and_are_reported() {
    let text = "kind = \"ordered\"\nindex = \"btree-wal\"\nflush = \"skip\"\n[maps.a]\nnode_bytes = 256\n\
                inner_tier = \"index\"\ndeferred_frees = 3\n";
    let config = parse(text).expect("understood");
    let lines: Vec<_> = config.retired.iter().filter_map(|told| told.split(':').next()).collect();
    assert_eq!(lines, ["line 2", "line 3", "line 5", "line 6", "line 7"], "{:?}", config.retired);
    assert!(config.retired[2].contains("`maps.a.node_bytes` is no longer a setting"));
    let without = parse("kind = \"ordered\"\n[maps.a]\n").expect("understood");
    assert_eq!(Config { retired: Vec::new(), ..config }, without);
    let refused = Config::default().set_map("a.node_bytes=256").expect_err("gone").to_string();
    assert!(
        refused.contains("no longer a setting: the machine profile chooses the size of a leaf"),
        "{refused}"
    );
    let elsewhere = parse("[queues.jobs]\nflush = \"skip\"\n").expect_err("never was one");
    assert!(elsewhere.contains("unknown key"), "{elsewhere}");
}

#[test]
fn sizes() {
    for (text, bytes) in [
        ("0", 0),
        ("17", 17),
        ("17 B", 17),
        ("4KiB", 4096),
        ("4 kb", 4000),
        ("1.5 MiB", 3 << 19),
        ("8 GiB", 8 << 30),
        ("2 TB", 2_000_000_000_000),
    ] {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
    for text in ["", "GiB", "1.2.3", "-1", "8 G", "1e9", "99999999999 TiB", "1 GiB 2"] {
        assert!(parse_size(text).is_err(), "{text}");
    }
    assert_eq!(format_size(8 << 30), "8 GiB");
    assert_eq!(format_size(1536), "1.5 KiB");
    assert_eq!(format_size(12), "12 B");
}

#[test]
fn the_examples_of_the_documents_are_valid() {
    let example = |text: &'static str| {
        let (_, rest) = text.split_once("```toml\n").expect("an example");
        rest.split_once("```").expect("its end").0
    };
    parse(example(include_str!("../../../../README.md"))).expect("valid");
    let page = include_str!("../../../../docs/configuration.md");
    let config = parse(example(page)).expect("valid");
    assert_eq!(config.tiers.len(), 2);
    assert_eq!(config.options_of("0", config.options()).durability, Durability::Sync);
}

#[test]
fn a_map_lies_in_a_tier_of_memory_or_is_told_which_there_are() {
    let topology = Topology::read().expect("a topology");
    let node = topology.nodes[0].node;
    let text = |tier: &str| {
        format!(
            "[maps.users]\ntier = \"{tier}\"\n[[tier]]\nname = \"near\"\nkind = \"node\"\nnode = {node}\n\
             bytes = \"64 MiB\"\n[[tier]]\nname = \"ram-disk\"\nkind = \"tmpfs\"\npath = \"/dev/shm\"\n"
        )
    };
    let tier_of = |tier: &str, map: &str| {
        let config = Config::parse(&text(tier), Path::new("terrace.toml")).expect("understood");
        config.tiers_on(&topology, map).map(|tiers| tiers.values).map_err(|e| e.to_string())
    };
    let tier = tier_of("near", "users").expect("fits").expect("is said");
    assert_eq!((tier.node, tier.bytes), (Some(node), Some(64 << 20)));
    assert_eq!(tier_of("near", "others"), Ok(None));
    let unknown = tier_of("nearer", "users").expect_err("there is none");
    assert!(
        unknown.starts_with("`maps.users.tier`: no tier `nearer`; there are near, "),
        "{unknown}"
    );
    let files = tier_of("ram-disk", "users").expect_err("files");
    assert!(
        files.contains("`ram-disk` is a tier of files (tmpfs); those of memory are near"),
        "{files}"
    );
}

#[test]
fn an_index_lies_in_a_tier_of_its_own_which_counts_as_one_in_use() {
    let mut topology = Topology::read().expect("a topology");
    topology.nodes.truncate(1);
    let node = topology.nodes[0].node;
    topology.nodes[0].total_bytes = Some(4 << 30);
    let tiers_of = |index_tier: &str, bytes: &str| {
        let text = format!(
            "[maps.a]\nindex_tier = \"{index_tier}\"\n[maps.b]\ntier = \"far\"\n[[tier]]\nname = \"far\"\n\
             kind = \"node\"\nnode = {node}\nbytes = \"{bytes}\"\n[[tier]]\nname = \"near\"\nkind = \"node\"\n\
             node = {node}\nbytes = \"2 GiB\"\n"
        );
        let config = Config::parse(&text, Path::new("terrace.toml")).expect("understood");
        config.tiers_on(&topology, "a").map_err(|e| e.to_string())
    };
    let tiers = tiers_of("near", "2 GiB").expect("they fit");
    assert!(tiers.values.is_none());
    let index = tiers.index.expect("is said");
    assert_eq!((index.name.as_str(), index.node, index.bytes), ("near", Some(node), Some(2 << 30)));
    let refused = tiers_of("near", "3 GiB").expect_err("more than there is");
    assert!(
        refused.starts_with("`maps.a.index_tier`: the tiers far, near have 5 GiB together"),
        "{refused}"
    );
    let unknown = tiers_of("nearer", "2 GiB").expect_err("there is none");
    assert!(
        unknown.starts_with("`maps.a.index_tier`: no tier `nearer`; there are far, near"),
        "{unknown}"
    );
}

#[test]
fn a_far_tier_is_of_another_node_than_the_near_one() {
    let mut topology = Topology::read().expect("a topology");
    topology.nodes.truncate(1);
    topology.nodes[0].total_bytes = Some(4 << 30);
    let near = topology.nodes[0].node;
    let other = terrace_memory::topology::NumaNode { node: near + 1, ..topology.nodes[0].clone() };
    topology.nodes.push(other);
    let tiers_of = |settings: &str| {
        let tier = |name, kind, node: Option<u32>| {
            let node = node.map_or(String::new(), |node| format!("node = {node}\n"));
            format!("[[tier]]\nname = \"{name}\"\nkind = \"{kind}\"\n{node}bytes = \"1 GiB\"\n")
        };
        let text = format!(
            "[maps.a]\n{settings}\n{}{}{}",
            tier("near", "node", Some(near)),
            tier("far", "node", Some(near + 1)),
            tier("any", "dram", None)
        );
        let config = Config::parse(&text, Path::new("terrace.toml")).expect("understood");
        config.tiers_on(&topology, "a").map_err(|e| e.to_string())
    };
    let tiers = tiers_of("tier = \"near\"\nfar_tier = \"far\"").expect("they are apart");
    let far = tiers.far.expect("is said");
    assert_eq!((far.name.as_str(), far.node, far.bytes), ("far", Some(near + 1), Some(1 << 30)));
    let refused = |settings: &str, what: &str| {
        let refused = tiers_of(settings).expect_err("a refusal");
        assert!(refused.starts_with("`maps.a.far_tier`: ") && refused.contains(what), "{refused}");
    };
    refused("far_tier = \"far\"", "it needs `tier`");
    refused("tier = \"near\"\nfar_tier = \"near\"", "and so is `near`");
    refused("tier = \"any\"\nfar_tier = \"far\"", "`any` may take memory of `far` as well");
    refused("tier = \"near\"\nfar_tier = \"any\"", "`any` is memory of no one node");
    let shared = "tier = \"near\"\nfar_tier = \"far\"\n[maps.b]\nindex_tier = \"far\"";
    refused(shared, "`far` is `maps.b.index_tier` as well");
    refused("tier = \"near\"\nfar_tier = \"further\"", "no tier `further`; there are near, far");
}

/// A kernel that has no memory of a node left ends the process: so no two tiers may be promised it.
#[test]
fn tiers_of_one_node_have_no_more_than_it_together() {
    let mut topology = Topology::read().expect("a topology");
    topology.nodes.truncate(1);
    let node = topology.nodes[0].node;
    topology.nodes[0].total_bytes = Some(4 << 30);
    let bytes_of = |map: &str, first: &str, second: &str| {
        let tier = |name, bytes: &str| {
            let bytes =
                if bytes.is_empty() { String::new() } else { format!("bytes = \"{bytes}\"\n") };
            format!("[[tier]]\nname = \"{name}\"\nkind = \"node\"\nnode = {node}\n{bytes}")
        };
        let maps = "[maps.a]\ntier = \"first\"\n[maps.b]\ntier = \"second\"\n";
        let unused = tier("unused", "4 GiB");
        let text = format!("{maps}{}{}{unused}", tier("first", first), tier("second", second));
        let config = Config::parse(&text, Path::new("terrace.toml")).expect("understood");
        let tiers = config.tiers_on(&topology, map).map_err(|e| e.to_string())?;
        Ok::<_, String>(tiers.values.expect("is said").bytes.expect("known") >> 20)
    };
    assert_eq!(bytes_of("a", "3 GiB", "1 GiB"), Ok(3072), "all of it");
    for map in ["a", "b"] {
        let refused = bytes_of(map, "3 GiB", "1536 MiB").expect_err("more than there is");
        let expected = format!(
            "`maps.{map}.tier`: the tiers first, second have 4.5 GiB together, of node {node}, which has 4 GiB"
        );
        assert!(refused.starts_with(&expected) && !refused.contains('\n'), "{refused}");
    }
    assert_eq!(bytes_of("a", "", "2 GiB"), Ok(1024), "half of what the other leaves");
    assert_eq!((bytes_of("a", "", ""), bytes_of("b", "", "")), (Ok(1024), Ok(1024)));
    // Either fits its node, and the second takes from all of them.
    let text = format!(
        "[maps.a]\ntier = \"near\"\n[maps.b]\ntier = \"any\"\n[[tier]]\nname = \"near\"\nkind = \"node\"\n\
         node = {node}\nbytes = \"3 GiB\"\n[[tier]]\nname = \"any\"\nkind = \"dram\"\nbytes = \"2 GiB\"\n"
    );
    let config = Config::parse(&text, Path::new("terrace.toml")).expect("understood");
    let refused = config.tiers_on(&topology, "a").expect_err("too much").to_string();
    assert!(refused.contains("any, near have 5 GiB together, of the machine"), "{refused}");
}

#[test]
fn a_tier_may_not_take_the_name_of_the_shared_budget() {
    let text = "[[tier]]\nname = \"memory\"\nkind = \"dram\"\n";
    let refused = Config::parse(text, Path::new("terrace.toml")).expect_err("taken").to_string();
    assert!(refused.contains("`memory` is what maps without a tier share"), "{refused}");
}

#[test]
fn a_profile_is_of_one_memory_that_was_measured_or_is_refused() {
    use terrace_memory::profile::{
        Bandwidth, Estimate, Flavour, Measured, NodeProfile, ProfiledMachine,
    };
    let node = |name: &str, gb_s: &[(Flavour, f64)]| NodeProfile {
        bandwidth: Measured::Points(
            gb_s.iter()
                .map(|(flavour, gb_s)| Bandwidth {
                    flavour: *flavour,
                    is_random: true,
                    piece_bytes: 256,
                    threads: 2,
                    gb_s: Estimate::of(*gb_s).expect("a figure"),
                })
                .collect(),
        ),
        ..NodeProfile::new(name)
    };
    let folder = tempfile::tempdir().expect("directory");
    let path = folder.path().join("profile.json");
    let nodes = vec![
        node("node0", &[(Flavour::Store, 4.0), (Flavour::StoreFlush, 2.0)]),
        node("node1", &[(Flavour::Store, 4.0)]),
    ];
    let mut profile = terrace_memory::Profile::new(ProfiledMachine {
        name: "this machine".into(),
        is_modelled: false,
        processor: None,
        threads: 2,
        cache_bytes: 1 << 20,
        nodes: vec!["node0".into(), "node1".into()],
    });
    profile.nodes = nodes;
    profile.write(&path).expect("written");
    let keeping = |more: &str| {
        let text = format!("domain = \"eadr\"\nprofile = {path:?}\n{more}");
        let config = Config::parse(&text, Path::new("terrace.toml")).map_err(|e| e.to_string())?;
        let costs = config.costs().map_err(|e| e.to_string())?;
        Ok::<_, String>(MapOptions { costs, ..config.options() }.flush_rule())
    };
    // A node of an index's tier by its number; none where it was not measured.
    let of_index = |profile: &Path, node: u32| {
        let text = format!(
            "profile = {profile:?}\n[maps.a]\nindex_tier = \"near\"\n[[tier]]\nname = \"near\"\nkind = \"node\"\n\
             node = {node}\nbytes = \"1 GiB\"\n"
        );
        let config = Config::parse(&text, Path::new("terrace.toml")).expect("understood");
        config.costs_of_node(node).map_err(|e| e.to_string())
    };
    let costs = of_index(&path, 0).expect("a profile").expect("measured");
    assert_eq!(costs.keeping.gain(256), 0.5);
    assert!(of_index(&path, 1).expect("a profile").is_none(), "half of what it takes");
    assert!(of_index(&path, 2).expect("a profile").is_none());
    let refused = of_index(Path::new("/nowhere"), 0).expect_err("no profile");
    assert!(refused.starts_with("`profile`: /nowhere"), "{refused}");
    let rule = keeping("profile_node = \"node0\"").expect("measured");
    assert!(
        rule.contains("measured on node0 with 2 threads") && rule.contains("0.50 times"),
        "{rule}"
    );
    for (more, expected) in [
        ("", "`profile_node`: needed: "),
        ("profile_node = \"pmem0\"", "no memory `pmem0`; "),
        ("profile_node = \"node1\"", "terrace probe --node node1 --part bandwidth --out"),
    ] {
        let refused = keeping(more).expect_err(expected);
        assert!(refused.contains(expected) && !refused.contains('\n'), "{refused}");
    }
    std::fs::write(&path, "{}").expect("written");
    assert!(keeping("").expect_err("malformed").contains("missing field"), "the field is named");
    let alone = Config::parse("profile_node = \"node0\"", Path::new("t")).expect_err("no profile");
    assert!(alone.to_string().contains("`profile_node` needs `profile`"), "{alone}");
    let none = MapOptions { domain: Domain::Eadr, ..MapOptions::default() };
    assert!(none.flush_rule().contains("assumed"), "{}", none.flush_rule());
}

#[test]
fn a_queue_opens_in_the_form_that_its_section_names() {
    let text = "[queues.jobs]\nform = \"tx\"\n[queues.news]\nform = \"volatile\"\n[queues.mail]\n";
    let mut config = parse(text).expect("a configuration");
    config.set_queue("mail.form=volatile").expect("set");
    let form = |config: &Config, name| config.queue_options_of(name, QueueOptions::default()).form;
    assert_eq!(form(&config, "jobs"), Form::Tx);
    assert_eq!(form(&config, "news"), Form::Volatile);
    assert_eq!(form(&config, "mail"), Form::Volatile);
    assert_eq!(form(&config, "others"), Form::TxFree);
}

/// The tables of `docs/configuration.md`: what `terrace serve --help-all` is made of, too.
fn tables_of_keys() -> String {
    fn table<T>(title: &str, about: &str, keys: &[Key<T>]) -> String {
        let row = |key: &Key<T>| {
            let default = if key.default.is_empty() { "none" } else { key.default };
            format!("| `{}` | {default} | {} |\n", key.name, key.help.replace('|', "\\|"))
        };
        let rows: String = keys.iter().map(row).collect();
        format!("### {title}\n\n{about}\n\n| key | default | meaning |\n|---|---|---|\n{rows}\n")
    }
    let top = "The server, and the defaults of all maps. `tls.` and `limits.` are the sections `[tls]` and `[limits]`.";
    let map = "One map; overrides the top level. `[maps.0]` is database 0. As a flag: `--map NAME.KEY=VALUE`.";
    let queue = "One queue, opened or created at start. As a flag: `--queue NAME.KEY=VALUE`.";
    let ledger = "One ledger, opened or created at start. As a flag: `--ledger NAME.KEY=VALUE`.";
    let words = "One word table, opened or created at start. As a flag: `--words NAME.KEY=VALUE`.";
    let tier = "A memory tier declared by hand; Terrace checks it against the machine at start. As a flag: \
                `--tier KEY=VALUE,...`.";
    [
        table("Top level", top, KEYS),
        table("`[maps.NAME]`", map, MAP_KEYS),
        table("`[queues.NAME]`", queue, QUEUE_KEYS),
        table("`[ledgers.NAME]`", ledger, LEDGER_KEYS),
        table("`[words.NAME]`", words, WORDS_KEYS),
        table("`[[tier]]`", tier, TIER_KEYS),
    ]
    .concat()
}

/// The reference of keys was copied by hand, and differed from what the commands took.
#[test]
fn the_page_of_keys_is_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (begin, end) = ("<!-- keys: begin -->\n", "<!-- keys: end -->");
    let (before, rest) = page.split_once(begin).expect("where tables begin");
    let (tables, after) = rest.split_once(end).expect("where they end");
    let right = format!("\n{}", tables_of_keys());
    if std::env::var_os("TERRACE_UPDATE").is_some() {
        std::fs::write(&path, [before, begin, &right, end, after].concat()).expect("written");
        return;
    }
    let way = "TERRACE_UPDATE=1 cargo test -p terrace --lib the_page_of_keys writes it anew";
    assert!(tables == right, "docs/configuration.md is not what the tables of keys say: {way}");
}
