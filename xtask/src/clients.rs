//! Clients nobody here wrote, against a real server: they disagree with us where we misread the
//! protocol.

use crate::run::{binary, run, target};
use crate::tools::find;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// `limits` is what Flask-Limiter counts with.
const PYTHON_CLIENTS: [&str; 2] = ["redis==5.2.1", "limits==4.0.1"];

/// `terrace serve` on a fresh directory and a free port; gone with its directory when dropped.
struct Server {
    child: Child,
    port: String,
    dir: PathBuf,
}

impl Server {
    fn start(root: &Path, name: &str) -> Result<Self, String> {
        let binary = binary(root)?;
        let dir = target(root).join("clients").join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let mut child = Command::new(binary)
            .arg("serve")
            .arg(&dir)
            .args(["--port", "0", "--memory-budget", "512 MiB"])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("terrace could not be started: {e}"))?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let port = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|l| Some(l.strip_prefix("listening on ")?.rsplit_once(':')?.1.to_string()))
            .ok_or("terrace ended without saying where it listens")?;
        // Keep its output flowing, or a full pipe would stop it.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Ok(Self { child, port, dir })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The Python client, in an environment of its own beside what is built.
pub fn python(root: &Path) -> Result<Option<String>, String> {
    let venv = target(root).join("clients-venv");
    let python = venv.join("bin/python");
    let installed = |python: &Path| {
        Command::new(python)
            .args(["-c", "import redis, limits"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    };
    if !installed(&python) {
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv))
            .map_err(|what| format!("{what}\nthe Python client needs the package python3-venv"))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PYTHON_CLIENTS))?;
    }
    let server = Server::start(root, "python")?;
    let script = root.join("tests/clients/python/client_test.py");
    run(Command::new(&python).arg(script).arg(&server.port))?;
    Ok(None)
}

/// YCSB's core with a small driver over Jedis; only where a JDK and Maven are installed.
pub fn java(root: &Path) -> Result<Option<String>, String> {
    if find("javac").is_none() || find("mvn").is_none() {
        return Ok(Some("no JDK with Maven (packages default-jdk-headless, maven)".into()));
    }
    let project = root.join("tests/clients/ycsb");
    let build = target(root).join("clients-ycsb");
    let jars = build.join("jars");
    let classes = build.join("classes");
    std::fs::create_dir_all(&classes).map_err(|e| format!("{}: {e}", classes.display()))?;
    if !["core-0.17.0.jar", "jedis-5.1.0.jar"].iter().all(|jar| jars.join(jar).is_file()) {
        let fetched = run(Command::new("mvn")
            .args(["--batch-mode", "--quiet", "--file"])
            .arg(project.join("pom.xml"))
            .arg("dependency:copy-dependencies")
            .arg(format!("-DoutputDirectory={}", jars.display())));
        if let Err(what) = fetched {
            return Ok(Some(format!("YCSB could not be fetched: {what}")));
        }
    }
    let path = format!("{}:{}/*", classes.display(), jars.display());
    run(Command::new("javac")
        .args(["-nowarn", "-cp", &path, "-d"])
        .arg(&classes)
        .arg(project.join("TerraceClient.java")))?;
    let server = Server::start(root, "java")?;
    for workload in ["a", "b", "c", "d", "f"] {
        let port = format!("terrace.port={}", server.port);
        let kind = if workload == "d" { "latest" } else { "zipfian" };
        let shares = shares_of(workload);
        for phase in if workload == "a" { &["-load", "-t"][..] } else { &["-t"][..] } {
            let mut command = Command::new("java");
            command.args(["-cp", &path, "site.ycsb.Client", phase, "-threads", "4"]);
            command.args(["-db", "TerraceClient", "-p", &port]);
            for property in [
                "workload=site.ycsb.workloads.CoreWorkload",
                "recordcount=5000",
                "operationcount=20000",
                "fieldcount=1",
                "fieldlength=100",
                "dataintegrity=true",
            ] {
                command.args(["-p", property]);
            }
            for share in shares {
                command.args(["-p", share]);
            }
            command.args(["-p", &format!("requestdistribution={kind}")]);
            ycsb(&mut command, workload, phase)?;
        }
    }
    Ok(None)
}

fn shares_of(workload: &str) -> &'static [&'static str] {
    match workload {
        "a" => &["readproportion=0.5", "updateproportion=0.5"],
        "b" => &["readproportion=0.95", "updateproportion=0.05"],
        "d" => &["readproportion=0.95", "updateproportion=0", "insertproportion=0.05"],
        "f" => &["readproportion=0.5", "updateproportion=0", "readmodifywriteproportion=0.5"],
        _ => &["readproportion=1", "updateproportion=0"],
    }
}

/// Runs one phase and reads YCSB's own verdict: it counts failed operations and bad values, and
/// ends with success all the same.
fn ycsb(command: &mut Command, workload: &str, phase: &str) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("java could not be started: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let bad = |l: &&str| {
        l.contains("Return=") && !l.contains("Return=OK") && !l.trim_end().ends_with(", 0")
    };
    let throughput = text.lines().find(|l| l.starts_with("[OVERALL], Throughput"));
    if let Some(line) = text.lines().find(bad) {
        return Err(format!("YCSB {workload} {phase}: {line}"));
    }
    let Some(throughput) = throughput.filter(|_| output.status.success()) else {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("YCSB {workload} {phase} ended with {}:\n{errors}", output.status));
    };
    println!("    YCSB {workload} {phase}: {throughput}");
    Ok(())
}
