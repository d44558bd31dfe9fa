//! The rooms and the direction of their arrows, as in ARCHITECTURE.md.

/// From the ground up. A room may depend only on rooms before it.
pub const ROOMS: &[&str] = &[
    "memory",
    "prestore",
    "machine",
    "workload",
    "durable",
    "movement",
    "lockfree",
    "coalesced",
    "index",
    "device",
    "store",
    "transact",
    "advise",
    "dirtbuster",
    "terrace",
    "pools",
    "query",
    "experiments",
    "server",
    "cli",
];

/// These see the engine through its facade only.
const THROUGH_THE_FACADE: &[&str] = &["query", "server", "cli"];
const OPEN_TO_ALL: &[&str] =
    &["workload", "terrace", "query", "experiments", "server", "advise", "dirtbuster"];

/// `manifests` are pairs of a room and the text of its `Cargo.toml`.
pub fn check(manifests: &[(String, String)], complaints: &mut Vec<String>) {
    for (room, text) in manifests {
        let Some(height) = height(room) else {
            complaints.push(format!(
                "crates/{room}: no such room in ARCHITECTURE.md; known: {}",
                ROOMS.join(", ")
            ));
            continue;
        };
        for target in dependencies(room, text, complaints) {
            // A room's tests may ask the room itself for a feature that only tests have.
            if target == *room {
                continue;
            }
            let fine = self::height(&target).is_some_and(|h| h < height);
            if !fine {
                complaints.push(format!(
                    "crates/{room}: depends on `{target}`, which is not below it in the table of ARCHITECTURE.md; \
                     move what it needs to a room below both"
                ));
            } else if THROUGH_THE_FACADE.contains(&room.as_str())
                && !OPEN_TO_ALL.contains(&target.as_str())
            {
                complaints.push(format!(
                    "crates/{room}: depends on `{target}` directly; use the engine through `terrace`"
                ));
            }
        }
    }
}

fn height(room: &str) -> Option<usize> {
    ROOMS.iter().position(|r| *r == room)
}

/// The rooms a manifest names, in every kind of dependency.
fn dependencies(room: &str, text: &str, complaints: &mut Vec<String>) -> Vec<String> {
    let table: toml::Table = match text.parse() {
        Ok(table) => table,
        Err(e) => {
            complaints.push(format!("crates/{room}/Cargo.toml: {e}"));
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    collect(&table, &mut found);
    found
}

fn collect(table: &toml::Table, found: &mut Vec<String>) {
    for (key, value) in table {
        let Some(inner) = value.as_table() else {
            continue;
        };
        if matches!(key.as_str(), "dependencies" | "dev-dependencies" | "build-dependencies") {
            found.extend(inner.keys().filter_map(|name| room_of(name)));
        } else if key == "target" || key.starts_with("cfg(") {
            collect(inner, found);
        }
    }
}

fn room_of(package: &str) -> Option<String> {
    match package {
        "terrace" => Some("terrace".into()),
        other => other.strip_prefix("terrace-").map(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(room: &str, manifest: &str) -> Vec<String> {
        let mut all = Vec::new();
        check(&[(room.into(), manifest.into())], &mut all);
        all
    }

    #[test]
    fn planted_breaches_are_found() {
        let up = complaints("index", "[dependencies]\nterrace-store.workspace = true\n");
        assert_eq!(up.len(), 1, "{up:?}");
        assert!(
            up[0].starts_with("crates/index: depends on `store`, which is not below it"),
            "{up:?}"
        );
        let deep = complaints(
            "memory",
            "[target.'cfg(unix)'.dev-dependencies]\nterrace-index = { path = \"../index\" }\n",
        );
        assert_eq!(deep.len(), 1, "{deep:?}");
        let past = complaints("server", "[dependencies]\nterrace-store.workspace = true\n");
        assert!(past[0].contains("use the engine through `terrace`"), "{past:?}");
        assert_eq!(complaints("attic", "").len(), 1);
        assert_eq!(complaints("cli", "not toml").len(), 1);
        assert!(
            complaints("store", "[dependencies]\nterrace-index.workspace = true\nlibc = \"0.2\"\n")
                .is_empty()
        );
    }
}
