//! One boot of the emulated machine: how it is built, what it says over its serial line, and how its
//! power fails.
//!
//! Two processors with DRAM (node 0), memory like HBM (node 1) and like a CXL expander (node 2), both
//! without processors, an NVDIMM beside the DRAM and one that becomes node 3. What memory costs is
//! written in the firmware's tables and nowhere else: nothing in here is slow or fast.

use super::initramfs;
use super::parts::Parts;
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// An emulator on a machine with other work is slow; one that is slower than this is stuck.
const PATIENCE: Duration = Duration::from_secs(480);

/// How often a boot that the emulator did not survive is tried again.
const BOOTS_AGAIN: u32 = 1;
/// Lines of a failed boot that its error repeats: the log itself goes with a run's target folder.
const LAST_LINES: usize = 30;

/// Memory of the nodes, and what the firmware says of it: MiB, ns, GiB/s. Node 3 gets its memory
/// from the second NVDIMM.
pub const NODES: [Node; 4] = [
    Node { mib: 512, latency_ns: 90, bandwidth_gib: 100 },
    Node { mib: 256, latency_ns: 130, bandwidth_gib: 400 },
    Node { mib: 256, latency_ns: 400, bandwidth_gib: 30 },
    Node { mib: 0, latency_ns: 1000, bandwidth_gib: 8 },
];

const DISTANCES: [(u32, u32, u32); 6] =
    [(0, 1, 15), (0, 2, 21), (0, 3, 40), (1, 2, 25), (1, 3, 45), (2, 3, 45)];

/// Images of the NVDIMMs, the nodes they are of, MiB.
const NVDIMMS: [(&str, u32, u32); 2] = [("file", 0, 768), ("device", 3, 256)];

/// Memory of one node.
pub struct Node {
    pub mib: u32,
    pub latency_ns: u64,
    pub bandwidth_gib: u64,
}

/// What the firmware tells.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Firmware {
    /// What each memory costs, and that the NVDIMMs keep what reached their controller.
    Tells,
    /// Neither.
    IsSilent,
}

/// When a boot ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The guest has done its steps and turns the power off.
    InOrder,
    /// The power fails once so many operations on each of so many maps were acknowledged.
    PowerCut { maps: usize, acknowledged: u64 },
}

/// What one command in the guest printed.
#[derive(Default)]
pub struct Section {
    pub output: String,
    /// Its exit status; `None` if it never ended.
    pub status: Option<i32>,
}

/// What was said during one boot.
#[derive(Default)]
pub struct Boot {
    pub sections: BTreeMap<String, Section>,
    /// Operations acknowledged on each map, counted.
    pub acknowledged: BTreeMap<String, u64>,
    /// Operations that were answered otherwise.
    pub refused: Vec<String>,
    is_over: bool,
}

/// The machine, with the images its NVDIMMs keep.
pub struct Machine {
    parts: Parts,
    initramfs: PathBuf,
    /// Images, and what each boot said.
    folder: PathBuf,
}

impl Machine {
    /// A new machine in `work`: its NVDIMMs were never used.
    pub fn build(parts: Parts, work: &Path) -> Result<Machine, String> {
        let initramfs = initramfs::build(&parts, work)?;
        let folder = work.join("boots");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for (name, _, mib) in NVDIMMS {
            let path = folder.join(format!("{name}.nvdimm"));
            let made = File::create(&path).and_then(|image| image.set_len(u64::from(mib) << 20));
            made.map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(Machine { parts, initramfs, folder })
    }

    /// Boots, with `settings` of the guest's script, until the `end`. What each command printed is
    /// kept in a folder named `name`. An emulator that dies before the guest's first word or of a
    /// signal, or whose kernel does, is started once more on the NVDIMMs as they were, and that is
    /// printed: our programs can end themselves, but neither of these. (Emulators run a kernel's
    /// change to its own code a moment too late on the other processor now and then.)
    pub fn boot(
        &self,
        name: &str,
        firmware: Firmware,
        settings: &str,
        end: End,
    ) -> Result<Boot, String> {
        for _ in 0..BOOTS_AGAIN {
            self.copy_images("nvdimm", "before")?;
            match self.boot_once(name, firmware, settings, end) {
                Err(failure) if failure.is_of_the_emulator => {
                    println!("    boot `{name}` again: {}", failure.why);
                    self.copy_images("before", "nvdimm")?;
                }
                Err(failure) => return Err(failure.why),
                Ok(boot) => return Ok(boot),
            }
        }
        self.boot_once(name, firmware, settings, end).map_err(|failure| failure.why)
    }

    fn boot_once(
        &self,
        name: &str,
        firmware: Firmware,
        settings: &str,
        end: End,
    ) -> Result<Boot, Failure> {
        let early = |why| Failure { why, is_of_the_emulator: false };
        let start = Instant::now();
        let mut child = self
            .command(firmware, settings)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| early(format!("the emulator could not be started: {e}")))?;
        let log = self.folder.join(format!("{name}.log"));
        let mut line = SerialLine::of(&mut child, log).map_err(early)?;
        let said = line.listen_until(end);
        // Before the power fails: what it ended of was its own doing.
        let was_alive = said.is_err().then(|| is_alive(&mut child));
        let ended = child.kill().and_then(|()| child.wait());
        let status = ended.map_err(|e| early(format!("the emulator could not be ended: {e}")))?;
        line.hear_the_rest();
        if let Err(why) = said {
            let crashed = was_alive == Some(false) && status.code().is_none();
            return Err(line.failure(&format!("{why} ({status})"), crashed));
        }
        let how = if end == End::InOrder { "off in order" } else { "power cut" };
        println!("    boot `{name}`: {how} after {:.1} s", start.elapsed().as_secs_f64());
        self.keep(name, &line.boot).map_err(early)?;
        Ok(line.boot)
    }

    fn command(&self, firmware: Firmware, settings: &str) -> Command {
        let tells = firmware == Firmware::Tells;
        let machine = match firmware {
            Firmware::Tells => "q35,nvdimm=on,hmat=on,nvdimm-persistence=mem-ctrl",
            Firmware::IsSilent => "q35,nvdimm=on",
        };
        let memory: u32 = NODES.iter().map(|node| node.mib).sum();
        let mut command = Command::new(&self.parts.emulator);
        command.args([
            "-accel",
            "tcg,thread=multi,tb-size=512",
            "-machine",
            machine,
            "-cpu",
            "max",
        ]);
        command.args(["-smp", "2,sockets=1,cores=2", "-nodefaults", "-no-user-config"]);
        command.args(["-nographic", "-serial", "stdio", "-no-reboot"]);
        command.args(["-m", &format!("{memory}M,slots=4,maxmem=8G")]);
        for (number, node) in NODES.iter().enumerate() {
            let mut words = format!("node,nodeid={number}");
            if number == 0 {
                words.push_str(",cpus=0-1");
            } else if tells {
                words.push_str(",initiator=0");
            }
            if node.mib > 0 {
                let (id, mib) = (format!("m{number}"), node.mib);
                command.args(["-object", &format!("memory-backend-ram,id={id},size={mib}M")]);
                words.push_str(&format!(",memdev={id}"));
            }
            command.args(["-numa", &words]);
        }
        for (from, to, distance) in DISTANCES {
            command.args(["-numa", &format!("dist,src={from},dst={to},val={distance}")]);
        }
        if tells {
            NODES.iter().enumerate().for_each(|(number, node)| tell(&mut command, number, node));
        }
        for (name, node, mib) in NVDIMMS {
            let image = self.folder.join(format!("{name}.nvdimm"));
            let backend = format!("memory-backend-file,id={name},share=on,size={mib}M");
            command.args(["-object", &format!("{backend},mem-path={}", image.display())]);
            command.args(["-device", &format!("nvdimm,id=nv-{name},memdev={name},node={node}")]);
        }
        let line = format!("console=ttyS0 quiet loglevel=3 panic=-1 rdinit=/init {settings}");
        command.arg("-kernel").arg(&self.parts.kernel);
        command.arg("-initrd").arg(&self.initramfs).args(["-append", &line]);
        command
    }

    /// Copies the NVDIMMs' images from one ending of their names to another.
    fn copy_images(&self, from: &str, to: &str) -> Result<(), String> {
        for (name, _, _) in NVDIMMS {
            let [from, to] = [from, to].map(|ending| self.folder.join(format!("{name}.{ending}")));
            let copied = Command::new("cp").arg("--sparse=always").arg(&from).arg(&to).status();
            if !copied.is_ok_and(|status| status.success()) {
                return Err(format!("{} could not be copied to {}", from.display(), to.display()));
            }
        }
        Ok(())
    }

    fn keep(&self, name: &str, boot: &Boot) -> Result<(), String> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for (section, said) in &boot.sections {
            let path = folder.join(format!("{section}.txt"));
            fs::write(&path, &said.output).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(())
    }
}

/// What a processor of node 0 pays for a node, as a line of the firmware's table.
fn tell(command: &mut Command, number: usize, node: &Node) {
    let pair = format!("hmat-lb,initiator=0,target={number},hierarchy=memory");
    let latency = format!("{pair},data-type=access-latency,latency={}", node.latency_ns);
    let bandwidth = format!("{pair},data-type=access-bandwidth,bandwidth={}G", node.bandwidth_gib);
    command.args(["-numa", &latency, "-numa", &bandwidth]);
}

/// Why a boot did not come to its end.
struct Failure {
    why: String,
    /// Nothing of ours can be the cause.
    is_of_the_emulator: bool,
}

/// The guest's only way to say anything.
struct SerialLine {
    lines: Receiver<String>,
    last: VecDeque<String>,
    /// Whether the guest's script has begun.
    has_spoken: bool,
    /// Whether the kernel died of a fault of its own; one whose `/init` ended says otherwise.
    kernel_crashed: bool,
    /// Everything that was said.
    log: BufWriter<File>,
    boot: Boot,
    /// The section that lines belong to.
    open: Option<String>,
}

impl SerialLine {
    fn of(child: &mut Child, path: PathBuf) -> Result<SerialLine, String> {
        let log = File::create(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let lines = lines_of(child.stdout.take().ok_or("the emulator has no output")?);
        Ok(SerialLine {
            lines,
            last: VecDeque::new(),
            has_spoken: false,
            kernel_crashed: false,
            log: BufWriter::new(log),
            boot: Boot::default(),
            open: None,
        })
    }

    /// `Err` says in a few words why the end was not reached.
    fn listen_until(&mut self, end: End) -> Result<(), &'static str> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.hear(&line),
                Err(RecvTimeoutError::Timeout) => return Err("it is stuck"),
                Err(RecvTimeoutError::Disconnected) => return Err("it ended before its time"),
            }
            let is_end = match end {
                End::InOrder => self.boot.is_over,
                End::PowerCut { maps, acknowledged } => {
                    let enough = self.boot.acknowledged.values().filter(|n| **n >= acknowledged);
                    enough.count() == maps
                }
            };
            if is_end {
                return Ok(());
            }
        }
    }

    fn failure(&mut self, why: &str, emulator_crashed: bool) -> Failure {
        let _unwritten = self.log.flush();
        let last = Vec::from(std::mem::take(&mut self.last)).join("\n      ");
        let why = format!("the guest: {why}; its last lines:\n      {last}");
        let is_of_the_emulator = emulator_crashed || self.kernel_crashed || !self.has_spoken;
        Failure { why, is_of_the_emulator }
    }

    /// What the emulator had passed on before it was ended.
    fn hear_the_rest(&mut self) {
        while let Ok(line) = self.lines.recv() {
            self.hear(&line);
        }
    }

    fn hear(&mut self, line: &str) {
        // The log is for people; a full disk must not look like a failing guest.
        let _unwritten = writeln!(self.log, "{line}");
        self.has_spoken |= line.contains("@@ ");
        self.kernel_crashed |= line.contains("Kernel panic - not syncing: Fatal exception");
        self.last.push_back(line.to_owned());
        if self.last.len() > LAST_LINES {
            self.last.pop_front();
        }
        self.boot.hear(&mut self.open, line);
    }
}

/// Whether it still runs a moment after its output ended.
fn is_alive(child: &mut Child) -> bool {
    for _ in 0..50 {
        if matches!(child.try_wait(), Ok(Some(_))) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Whole lines, as they come. One that the power cut short is none.
fn lines_of(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            if line.ends_with(b"\n") {
                let text = String::from_utf8_lossy(&line);
                let _nobody_listens = sender.send(text.trim_end_matches(['\r', '\n']).to_owned());
            }
            line.clear();
        }
    });
    lines
}

impl Boot {
    /// Takes in one line; `open` is the section it belongs to.
    fn hear(&mut self, open: &mut Option<String>, line: &str) {
        // The firmware's codes for the terminal stand before the first line.
        let mark = line.find("@@ ").map(|at| line[at + 3..].split(' ').collect::<Vec<_>>());
        match mark.as_deref() {
            Some(["begin", name]) => {
                self.sections.insert((*name).to_owned(), Section::default());
                *open = Some((*name).to_owned());
            }
            Some(["end", name, status]) => {
                self.sections.entry((*name).to_owned()).or_default().status = status.parse().ok();
                *open = None;
            }
            Some(["acknowledged", map, _]) => {
                *self.acknowledged.entry((*map).to_owned()).or_default() += 1;
            }
            Some(["refused", ..]) => self.refused.push(line.to_owned()),
            Some(["over"]) => self.is_over = true,
            _ => {
                let section = open.as_ref().and_then(|name| self.sections.get_mut(name));
                section.into_iter().for_each(|section| section.output += &format!("{line}\n"));
            }
        }
    }

    /// What the command called `name` printed, if it ended well.
    pub fn output(&self, name: &str) -> Result<&str, String> {
        let section = self.section(name)?;
        match section.status {
            Some(0) => Ok(&section.output),
            Some(status) => Err(format!("`{name}` ended with {status}: {}", section.output.trim())),
            None => Err(format!("`{name}` did not end")),
        }
    }

    /// What the command called `name` printed, if it refused.
    pub fn refusal(&self, name: &str) -> Result<&str, String> {
        let section = self.section(name)?;
        match section.status {
            Some(1 | 2) => Ok(&section.output),
            status => Err(format!("`{name}` ended with {status:?}, not with a refusal")),
        }
    }

    fn section(&self, name: &str) -> Result<&Section, String> {
        self.sections.get(name).ok_or(format!("`{name}` was not run"))
    }
}
