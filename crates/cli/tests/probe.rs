//! `terrace probe` as a process: tiers that are files, what it writes, and what it refuses before it measures.

use crate::common::run;

#[test]
fn a_tier_is_measured_into_a_profile_and_a_page() {
    let dir = tempfile::tempdir().expect("directory");
    let at = |name: &str| dir.path().join(name).to_str().expect("text").to_string();
    let (out, page, config) = (at("profile.json"), at("page.html"), at("terrace.toml"));
    let folder = dir.path().display();
    let tier = format!("[[tier]]\nname = \"disk\"\nkind = \"file\"\npath = \"{folder}\"\n");
    std::fs::write(&config, tier).expect("written");
    let asked = ["probe", "--config", &config, "--node", "disk", "--part", "files", "--quick"];
    let (code, table, said) = run(&[&asked[..], &["--out", &out, "--html", &page]].concat());
    assert!(
        code == 0 && table.contains("disk: ") && table.contains("write, sync"),
        "{table}{said}"
    );
    let text = std::fs::read_to_string(&out).expect("a profile");
    let profile: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(profile["nodes"][0]["name"], "disk");
    assert_eq!(profile["nodes"][0]["files"][0]["op"], "read");
    let page = std::fs::read_to_string(&page).expect("a page");
    assert!(page.contains("A block of a file at a random place"), "a drawing of it");
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a folder").collect();
    assert_eq!(left.len(), 3, "the file that was measured is gone: {left:?}");
    // The same tier as a flag refines what is there.
    let flag = format!("name=disk,kind=file,path={folder}");
    let again = ["probe", "--tier", &flag, "--node", "disk", "--part", "files", "--quick", "--out"];
    let (code, table, said) = run(&[&again[..], &[&out]].concat());
    assert!(code == 0 && table.contains("2 runs of measuring"), "{table}{said}");
}

#[test]
fn tiers_that_are_none_are_refused_with_what_would_be() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().to_str().expect("text");
    let dax = format!("name=pm,kind=dax,path={path}");
    let file = format!("name=pm,kind=file,path={path}");
    let node = format!("name=node0,kind=file,path={path}");
    for (arguments, words) in [
        (&["--tier", &dax, "--node", "pm"][..], "a mount with direct access"),
        (&["--tier", "name=pm,kind=dax"], "needs a `path`"),
        (&["--tier", "name=pm,kind=pmem,path=/"], "is not one of \"dram\", \"huge\""),
        (&["--tier", &file, "--node", "pmem"], "no node or tier `pmem`; this machine has: "),
        (&["--tier", &file, "--model", "cxl"], "cannot be used with"),
        (
            &["--tier", "name=fast,kind=dram"],
            "fast is not made of files; select memory nodes with --node",
        ),
        (&["--tier", &node, "--node", "node0"], "tier node0: a node is called so"),
        (&["--config", "/nowhere/terrace.toml"], "/nowhere/terrace.toml"),
    ] {
        let (code, printed, said) = run(&[&["probe"], arguments].concat());
        assert!(
            code == 2 && printed.is_empty() && said.contains(words),
            "{arguments:?}: {code} {said}"
        );
    }
}
