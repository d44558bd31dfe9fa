//! Every example that a `--help` prints works as it is printed.

use crate::common::{Served, run, run_command};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Examples that take minutes, or need what a test machine lacks: their arguments are parsed, and nothing runs.
const ONLY_PARSED: &[&str] = &[
    "terrace probe",
    "terrace bench",
    "--calibrate",
    "terrace crash-test map-logs",
    "terrace crash-test --all",
    "terrace reproduce run",
    "terrace preset profile.json",
    "--from 0 --to 1",
    "--require-engine dsa",
    "terrace dirtbuster",
    #[cfg(not(feature = "sql"))]
    "terrace sql",
];

/// Every command, as the page of commands lists them; a test of the binary holds that page to the commands.
fn commands() -> Vec<Vec<&'static str>> {
    let page = include_str!("../../../docs/commands.md");
    let listed =
        page.lines().filter_map(|line| line.strip_prefix("| `terrace ")?.split('`').next());
    let commands: Vec<Vec<&str>> = listed.map(|name| name.split_whitespace().collect()).collect();
    assert!(commands.len() >= 20, "{commands:?}");
    commands
}

/// The examples of a help, in their order.
fn examples(help: &str) -> Vec<String> {
    let (_, after) = help.split_once("Example").expect("every help has an example");
    let line = |line: &str| {
        let text = line.trim_start_matches(|c| "s: ".contains(c));
        // What stands behind two spaces and a number sign is a remark.
        text.starts_with("terrace ").then(|| text.split("  # ").next().unwrap_or(text).to_string())
    };
    let examples: Vec<String> = after.lines().filter_map(line).collect();
    assert!(!examples.is_empty(), "{help}");
    examples
}

/// What the examples find where they are tried.
fn prepare(dir: &Path) {
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    let shell = |line: &str| assert!(shell(dir, line).0, "{line}");
    for key in ["alice", "bob", "carol"] {
        shell(&format!("terrace put ./data users {key} value"));
        shell(&format!("terrace put ./data 0 {key} value"));
    }
    shell("terrace export ./data users users.csv --format csv");
    #[cfg(feature = "sql")]
    shell("terrace sql ./data 'CREATE TABLE stock (item TEXT PRIMARY KEY, pieces INT)'");
    shell("terrace ledger open ./data bank --count 100 --balance 100");
    write("accounts.csv", "17,100\n18,100\n");
    write("transfers.csv", "17,18,5\n18,17,4\n");
    write("day.csv", "17,18,5\n");
    write("transfers.jsonl", "{\"from\": 17, \"to\": 18, \"amount\": 5}\n");
    write("structures.toml", include_str!("../../../examples/structures.toml"));
    write("nodes.toml", include_str!("../../../examples/nodes.toml"));
    write("copies.json", include_str!("../../../examples/copies.json"));
    write("copies-xeon-max.json", include_str!("../../../examples/copies-xeon-max.json"));
    let records = include_str!("../../../docs/results/reproduction.json");
    // `reproduce report` works in the root of the repository, and knows it by these.
    write("crates/experiments/Cargo.toml", "");
    write("docs/results/reproduction.json", records);
    write("mine.json", records);
}

/// Runs a line in `dir` with the binary on the path: whether it succeeded, and all it printed.
fn shell(dir: &Path, line: &str) -> (bool, String) {
    let binary = Path::new(env!("CARGO_BIN_EXE_terrace")).parent().expect("a folder");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let shell = &mut Command::new("sh");
    let (code, printed, said) =
        run_command(shell.args(["-c", line]).current_dir(dir).env("PATH", path));
    (code == 0, printed + &said)
}

/// `open /dev/shm/data` and the second example of `ledger open` were printed and did not work.
#[test]
fn every_example_of_every_help_works_as_printed() {
    let dir = tempfile::tempdir().expect("temporary directory");
    prepare(dir.path());
    let (mut asked_of_servers, mut failed) = (Vec::new(), Vec::new());
    for command in std::iter::once(Vec::new()).chain(commands()) {
        if command == ["ledger", "open"] {
            // Its examples open the accounts that others found there.
            std::fs::remove_dir_all(dir.path().join("data/ledgers/bank")).expect("made before");
        }
        let help = run(&[&command[..], &["--help"]].concat()).1;
        for example in examples(&help) {
            if example.starts_with("terrace serve") {
                serve(dir.path(), &example);
                continue;
            }
            if example.contains("127.0.0.1:6379") {
                asked_of_servers.push(example);
                continue;
            }
            // What follows `peers` is for the program that it builds, `--help` too.
            let example = match example.starts_with("terrace bench peers") {
                true => "terrace bench peers".to_string(),
                false => example,
            };
            let line = match ONLY_PARSED.iter().any(|words| example.contains(words)) {
                true => format!("{} --help", example.split(['>', '|']).next().unwrap_or_default()),
                false => example.clone(),
            };
            let (done, printed) = shell(dir.path(), &line);
            if !done {
                failed.push(format!("{line}\n{printed}"));
            }
        }
    }
    assert!(asked_of_servers.len() >= 2, "{asked_of_servers:?}");
    failed.extend(ask_a_server(dir.path(), &asked_of_servers));
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// Starts a server as the example says, but for the port, and ends it once it listens.
fn serve(dir: &Path, example: &str) {
    let words = example.split("./data").nth(1).expect("the directory").replace('\'', "");
    let words = words.replace("--port 6379", "");
    // The one value with a space is a size, which may do without.
    let words = words.replace("8 GiB", "8GiB");
    let arguments: Vec<&str> = words.split_whitespace().collect();
    Served::start_with(&dir.join("data"), &arguments, &[]).terminate();
}

/// Tries the examples that ask a server while one serves the directory and clients use it; returns what failed.
fn ask_a_server(dir: &Path, examples: &[String]) -> Vec<String> {
    let served = Served::start(&dir.join("data"), &[]);
    let here = format!("127.0.0.1:{}", served.port);
    let is_over = AtomicBool::new(false);
    let mut connection = served.connect();
    let failed = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                let _: Vec<u8> =
                    redis::cmd("GET").arg("alice").query(&mut connection).expect("get");
            }
        });
        let tried = examples.iter().filter_map(|example| {
            let line =
                example.replace("127.0.0.1:6379", &here).replace("--seconds 10", "--seconds 2");
            let (done, printed) = shell(dir, &line);
            (!done).then(|| format!("{line}\n{printed}"))
        });
        let failed = tried.collect();
        is_over.store(true, Relaxed);
        failed
    });
    served.terminate();
    failed
}
