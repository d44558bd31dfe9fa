//! What kind of file a command names, before it is run: what can be seen of it, and what cannot.

use object::{Architecture, Object, ObjectSection, ObjectSymbol};
use std::path::{Path, PathBuf};

/// A program that can be traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Where it is.
    pub path: PathBuf,
    /// It has no table of symbols: functions are named by their addresses.
    pub is_stripped: bool,
    /// It has no lines of source.
    pub lacks_lines: bool,
    /// It loads no libraries.
    pub is_static: bool,
}

/// Why a program cannot be traced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// There is none of this name.
    #[error("{name}: no such program, here or on the path")]
    Missing {
        /// What was asked for.
        name: String,
    },
    /// It may not be executed.
    #[error("{path}: not executable; `chmod +x` makes it so, if it is a program")]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// It is a script: its stores are those of its interpreter.
    #[error(
        "{path}: a script; DirtBuster sees instructions, so trace its interpreter: terrace dirtbuster -- {interpreter} {path}"
    )]
    Script {
        /// The file.
        path: PathBuf,
        /// What runs it.
        interpreter: String,
    },
    /// It is for another processor, or no program.
    #[error("{path}: {what}; DirtBuster reads programs for x86-64 Linux")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// It cannot be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl Program {
    /// Finds a program, as a shell would, and looks at what it is.
    ///
    /// # Errors
    /// [`ProgramError`] says why it cannot be traced, and what can be traced instead.
    ///
    /// # Examples
    /// ```
    /// use terrace_dirtbuster::{Program, ProgramError};
    /// assert!(Program::find("sh").is_ok());
    /// assert!(matches!(Program::find("/nowhere"), Err(ProgramError::Missing { .. })));
    /// ```
    pub fn find(name: &str) -> Result<Program, ProgramError> {
        let path = locate(name).ok_or_else(|| ProgramError::Missing { name: name.into() })?;
        if !is_executable(&path) {
            return Err(ProgramError::NotExecutable { path });
        }
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(source) => return Err(ProgramError::Unreadable { path, source }),
        };
        if let Some(line) = bytes.strip_prefix(b"#!") {
            let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let interpreter = String::from_utf8_lossy(line).trim().to_string();
            return Err(ProgramError::Script { path, interpreter });
        }
        let foreign = |what: String| ProgramError::Foreign { path: path.clone(), what };
        let object =
            object::File::parse(&*bytes).map_err(|e| foreign(format!("no program: {e}")))?;
        if object.architecture() != Architecture::X86_64 {
            return Err(foreign(format!("for {:?}", object.architecture())));
        }
        if object.format() != object::BinaryFormat::Elf {
            return Err(foreign(format!("a {:?} file", object.format())));
        }
        let has =
            |name: &str| object.section_by_name(name).is_some_and(|section| section.size() > 0);
        let is_stripped = !object.symbols().any(|symbol| symbol.is_definition());
        let (lacks_lines, is_static) = (!has(".debug_line"), !has(".interp"));
        Ok(Program { path, is_stripped, lacks_lines, is_static })
    }

    /// What cannot be seen of it, in sentences.
    ///
    /// # Examples
    /// ```
    /// let program = terrace_dirtbuster::Program {
    ///     path: "/bin/x".into(), is_stripped: true, lacks_lines: true, is_static: false,
    /// };
    /// assert!(program.caveats()[0].contains("stripped"));
    /// ```
    pub fn caveats(&self) -> Vec<String> {
        let path = self.path.display();
        let mut all = Vec::new();
        if self.is_stripped {
            all.push(format!(
                "{path} is stripped: its functions are named by their addresses; its package of debug symbols, or a build \
                 with -g, names them"
            ));
        } else if self.lacks_lines {
            all.push(format!("{path} has no lines of source: instructions are named by their addresses; build it with -g"));
        }
        if self.is_static {
            all.push(format!("{path} is static: calls into the C library are calls within it"));
        }
        all
    }
}

fn locate(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Path::new(name).is_file().then(|| PathBuf::from(name));
    }
    let paths = std::env::var_os("PATH")?;
    let candidates = std::env::split_paths(&paths).map(|folder| folder.join(name));
    candidates.into_iter().find(|path| path.is_file() && is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
