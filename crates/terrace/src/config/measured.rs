//! What the engine takes from a machine's profile.

use super::{Config, ConfigError};
use std::sync::Arc;
use terrace_memory::Profile;
use terrace_memory::profile::{MemoryCosts, NodeProfile};
use terrace_memory::topology::node_name;

fn refused(key: &str, what: String) -> ConfigError {
    ConfigError::plain(format!("`{key}`: {what}"))
}

impl Config {
    /// What the profile says of the memory that the directory is on; `None` without a profile.
    ///
    /// ```
    /// let mut config = terrace::Config::default();
    /// assert!(config.costs()?.is_none(), "no profile is named");
    /// config.set("profile", "no-such-file.json")?;
    /// assert!(config.costs().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The profile cannot be read; it has no such memory, or several and none is named; its bandwidth was not
    /// measured, or not all of it.
    pub fn costs(&self) -> Result<Option<Arc<MemoryCosts>>, ConfigError> {
        let (Some(path), Some(profile)) = (&self.profile, self.read_profile()?) else {
            return Ok(None);
        };
        let names = || {
            let names: Vec<&str> = profile.nodes.iter().map(|node| node.name.as_str()).collect();
            format!("{} has {}", path.display(), names.join(", "))
        };
        let node: &NodeProfile = match (&self.profile_node, &profile.nodes[..]) {
            (None, [only]) => only,
            (None, _) => return Err(refused("profile_node", format!("needed: {}", names()))),
            (Some(name), _) => profile.node(name).ok_or_else(|| {
                refused("profile_node", format!("no memory `{name}`; {}", names()))
            })?,
        };
        let missing = || refused("profile", profile.not_measured(&node.name, "bandwidth", path));
        MemoryCosts::of(node).map(|costs| Some(Arc::new(costs))).ok_or_else(missing)
    }

    /// The same of a NUMA node; `None` too where it was not measured.
    ///
    /// # Errors
    /// The profile cannot be read.
    pub(super) fn costs_of_node(&self, node: u32) -> Result<Option<Arc<MemoryCosts>>, ConfigError> {
        let profile = self.read_profile()?;
        let found = profile.as_ref().and_then(|profile| profile.node(&node_name(node)));
        Ok(found.and_then(MemoryCosts::of).map(Arc::new))
    }

    /// The profile, if one is named.
    ///
    /// ```
    /// assert_eq!(terrace::Config::default().read_profile()?, None, "none is named");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_profile(&self) -> Result<Option<Profile>, ConfigError> {
        let read = self.profile.as_deref().map(Profile::read).transpose();
        read.map_err(|e| refused("profile", e.to_string()))
    }
}
