//! What the engine takes from a machine's profile.

use super::{Config, ConfigError};
use std::sync::Arc;
use terrace_memory::Profile;
use terrace_memory::profile::{MemoryCosts, NodeProfile};

impl Config {
    /// What the profile says of the memory that the directory is on; `None` without a profile.
    ///
    /// # Errors
    /// The profile cannot be read; it has no such memory, or several and none is named; its bandwidth was not
    /// measured, or not all of it.
    pub fn costs(&self) -> Result<Option<Arc<MemoryCosts>>, ConfigError> {
        let Some(path) = &self.profile else { return Ok(None) };
        let refused = |key: &str, what: String| ConfigError::plain(format!("`{key}`: {what}"));
        let profile = Profile::read(path).map_err(|e| refused("profile", e.to_string()))?;
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
        let missing = || {
            let name = &node.name;
            let way =
                format!("terrace probe --node {name} --part bandwidth --out {}", path.display());
            refused(
                "profile",
                format!("bandwidth of {name} was not measured, or not all of it; {way} does"),
            )
        };
        MemoryCosts::of(node).map(|costs| Some(Arc::new(costs))).ok_or_else(missing)
    }
}
