//! The same operations as transactions of PMDK's libpmemobj, where that is installed.
//!
//! The program is compiled when it is needed, so nobody needs the library to build Terrace. Both sides
//! write back by the processor's instruction to a file of the same length in the same folder:
//! libpmemobj is told that the file is persistent memory, as our pools are declared to be. Its rounds
//! take turns with ours.

use super::loads::{Draw, filled, operations};
use super::{PLACES, Settings};
use crate::structures::{HashTable, Structure, Swaps};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use tempfile::TempDir;

const SOURCE: &str = include_str!("pmdk.c");

/// The compiled program, in a folder that goes with it.
pub(super) struct Program {
    dir: TempDir,
}

/// What the operations make of the contents.
struct Model {
    created: fn() -> BTreeMap<u64, u64>,
    toggle: fn(&mut BTreeMap<u64, u64>, u64, u64),
}

fn model<S: Structure>() -> Model {
    Model { created: S::model_created, toggle: S::model_toggle }
}

/// The program at work on one workload.
pub(super) struct Peer {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Of the contents at the end.
    digest: u64,
    sections_per_second: Vec<f64>,
}

impl Program {
    /// Compiles it; what is missing if that fails.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn compile(settings: &Settings) -> io::Result<Result<Program, String>> {
        let dir = tempfile::tempdir_in(&settings.dir)?;
        let source = dir.path().join("pmdk.c");
        std::fs::write(&source, SOURCE)?;
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-o"]).arg(dir.path().join("pmdk")).arg(&source).arg("-lpmemobj");
        let Ok(output) = cc.output() else {
            return Ok(Err("no C compiler `cc` on the search path".into()));
        };
        if output.status.success() {
            return Ok(Ok(Program { dir }));
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let why = said.lines().find(|line| line.contains("error") || line.contains("cannot find"));
        let why = why.unwrap_or("its program does not compile").trim();
        Ok(Err(format!("{why}; Debian has it as libpmemobj-dev")))
    }

    /// Starts it on a workload and waits until it is warm, if it knows the workload.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn start(
        &self,
        settings: &Settings,
        workload: &str,
        draw: Draw,
    ) -> io::Result<Option<Peer>> {
        let model = match workload.split('-').next() {
            // A tree and a table of the same keys have the same contents.
            Some("RBTree" | "Hash") => model::<HashTable<PLACES>>(),
            Some("SPS") => model::<Swaps<PLACES>>(),
            _ => return Ok(None),
        };
        let file = self.dir.path().join("pool");
        let mut child = Command::new(self.dir.path().join("pmdk"))
            .args([workload, &format!("{draw:?}")])
            .arg(&file)
            .args(numbers(settings).map(|number| number.to_string()))
            .env("PMEM_IS_PMEM_FORCE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        let digest = digest(settings, draw, &model);
        let sections_per_second = Vec::new();
        let mut peer = Peer { child, orders, answers, digest, sections_per_second };
        let said: String = peer.answer()?;
        if said != "ready" {
            return Err(io::Error::other("libpmemobj's program failed; it says why above"));
        }
        // It has the file mapped; the next one makes its own.
        std::fs::remove_file(&file)?;
        Ok(Some(peer))
    }
}

/// Pool, sections, rounds, keys, places, seed: as the program takes them.
fn numbers(settings: &Settings) -> [u64; 6] {
    let Settings { pool_bytes, sections, keys, seed, .. } = *settings;
    [pool_bytes, sections, settings.rounds.max(1), keys, PLACES, seed]
}

impl Peer {
    /// The next thing it says.
    fn answer<T: FromStr>(&mut self) -> io::Result<T> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        line.trim()
            .parse()
            .map_err(|_| io::Error::other(format!("libpmemobj's program said {line:?}")))
    }

    /// Runs a round.
    ///
    /// # Errors
    /// The system's, and if the program ended or failed.
    pub(super) fn round(&mut self) -> io::Result<()> {
        self.orders.write_all(b"\n")?;
        self.orders.flush()?;
        let speed = self.answer()?;
        self.sections_per_second.push(speed);
        Ok(())
    }

    /// The median speed, if its contents are what the operations make of them.
    ///
    /// # Errors
    /// The system's, and contents that are not.
    pub(super) fn finish(mut self) -> io::Result<f64> {
        let found: u64 = self.answer()?;
        self.child.wait()?;
        if found != self.digest {
            let what = format!("libpmemobj's contents: checksum {found}, expected {}", self.digest);
            return Err(io::Error::other(what));
        }
        Ok(super::run::median(self.sections_per_second))
    }
}

/// What the program must say of its contents: those that the operations make of a map.
fn digest(settings: &Settings, draw: Draw, model: &Model) -> u64 {
    let mut contents = (model.created)();
    if contents.is_empty() {
        for number in 0..settings.keys / 2 {
            (model.toggle)(&mut contents, filled(number, settings.keys), number);
        }
    }
    let drawn = |seed, count| operations(draw, settings.keys, settings.seed + seed, count);
    let timed = settings.sections * settings.rounds.max(1);
    for (key, word) in drawn(0, settings.sections).into_iter().chain(drawn(1, timed)) {
        (model.toggle)(&mut contents, key, word);
    }
    contents.iter().fold(0, |sum, (key, value)| {
        let entry = (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ value;
        entry.wrapping_add(sum)
    })
}
