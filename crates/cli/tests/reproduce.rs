//! `terrace reproduce` as a user meets it: what it prints, keeps, refuses and reports.

use crate::common::run_command;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Runs `terrace reproduce` in `dir`: exit code, standard output, standard error.
fn reproduce(dir: &Path, arguments: &[&str]) -> (i32, String, String) {
    let binary = &mut Command::new(env!("CARGO_BIN_EXE_terrace"));
    run_command(binary.current_dir(dir).arg("reproduce").args(arguments))
}

#[test]
fn a_row_runs_is_recorded_listed_and_reported() {
    let dir = tempfile::tempdir().expect("directory");
    let run = ["run", "prestore-hotline", "--json", "--results", "mine.json"];
    let (code, printed, errors) = reproduce(dir.path(), &run);
    assert_eq!(code, 0, "{errors}");
    let printed: Value = serde_json::from_str(&printed).expect("JSON");
    let rows = printed["experiments"].as_array().expect("rows");
    let [row] = &rows[..] else { panic!("one row: {printed}") };
    let names = |value: &Value| -> Vec<String> {
        let mut names: Vec<_> = value.as_object().expect("an object").keys().cloned().collect();
        names.sort();
        names
    };
    assert_eq!(names(row), ["checks", "id", "note", "runs_on", "seconds", "verdict"]);
    assert_eq!(row["id"], "prestore-hotline");
    let passes = |check: &Value| {
        assert_eq!(names(check), ["high", "kind", "low", "measured", "paper", "pass", "what"]);
        let (measured, low) = (check["measured"].as_f64(), check["low"].as_f64());
        let pass = measured.expect("a number") >= low.expect("a number");
        assert_eq!(check["pass"], pass);
        pass
    };
    let [order, size] = [&row["checks"][0], &row["checks"][1]];
    assert_eq!((&order["kind"], &size["kind"]), (&Value::from("order"), &Value::from("size")));
    let verdict = match (passes(order), passes(size)) {
        (true, true) => "pass",
        (true, false) => "order",
        (false, _) => "miss",
    };
    assert_eq!(row["verdict"], verdict);

    let list = ["list", "--json", "--results", "mine.json"];
    let (_, listed, _) = reproduce(dir.path(), &list);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let all = listed["rows"].as_array().expect("rows");
    let verdict = |id: &str| all.iter().find(|row| row["id"] == id).map(|row| &row["verdict"]);
    assert_eq!(verdict("prestore-hotline"), Some(&row["verdict"]));
    assert_eq!(verdict("kv-sustained"), Some(&Value::Null));
    let ours = |id: &str| all.iter().find(|row| row["id"] == id).map(|row| &row["ours"]);
    assert_eq!(ours("btree-auto"), Some(&Value::from(true)));
    assert_eq!(ours("kv-sustained"), Some(&Value::from(false)));
    let not_built = listed["not_built"].as_array().expect("ids");
    assert!(not_built.contains(&Value::from("tmc-pack")), "{not_built:?}");
    let text = reproduce(dir.path(), &["list", "--results", "mine.json"]).1;
    let counted = ["1 pass, 0 order", "0 pass, 1 order", "0 pass, 0 order"]
        .iter()
        .any(|of| text.contains(of));
    assert!(counted && text.contains("effects in band: ") && text.contains("not built"), "{text}");

    let report = ["report", "--results", "mine.json", "--dir", "."];
    let (code, _, errors) = reproduce(dir.path(), &report);
    assert_eq!(code, 0, "{errors}");
    let read = |name| std::fs::read_to_string(dir.path().join(name)).expect("written");
    assert!(read("reproduction.md").contains("## prestore-hotline"));
    assert!(read("reproduction.html").contains("<canvas"));
}

#[test]
fn absent_rows_are_refused_and_no_file_is_written_unasked() {
    let dir = tempfile::tempdir().expect("directory");
    let (code, _, errors) = reproduce(dir.path(), &["run", "no-such-row"]);
    assert!(
        code == 2 && errors.contains("no-such-row") && errors.contains("kv-sustained"),
        "{errors}"
    );
    let (code, _, errors) = reproduce(dir.path(), &["run", "tmc-pack"]);
    assert!(code == 2 && errors.contains("`tmc-pack` is not built"), "{errors}");
    let (code, _, errors) = reproduce(dir.path(), &["report"]);
    assert!(code == 2 && errors.contains("--results"), "{errors}");
    let absent = ["report", "--results", "none.json", "--dir", "."];
    let (code, _, errors) = reproduce(dir.path(), &absent);
    assert!(code == 1 && errors.contains("reproduce run"), "{errors}");
    let (code, listed, _) = reproduce(dir.path(), &["list"]);
    assert!(code == 0 && listed.contains("not run"), "{listed}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("directory").count(), 0);
    std::fs::write(dir.path().join("bad.json"), "{\"experiments\": 1}").expect("written");
    let (code, _, errors) = reproduce(dir.path(), &["list", "--results", "bad.json"]);
    assert!(code == 1 && errors.contains("bad.json"), "{errors}");
}

/// The longest row ran to its end before the file of records turned out to be impossible.
#[test]
fn a_file_that_cannot_be_written_is_refused_before_anything_runs() {
    let dir = tempfile::tempdir().expect("directory");
    std::fs::create_dir(dir.path().join("a-directory")).expect("directory");
    std::fs::write(dir.path().join("a-file"), "").expect("written");
    let before = names_in(dir.path());
    for impossible in ["missing/mine.json", "a-file/mine.json", "a-directory", "/dev/null"] {
        let start = std::time::Instant::now();
        // Soundness over thousands of crash states: nothing that ends at once.
        let run = ["run", "ssp-crash", "--results", impossible];
        let (code, printed, errors) = reproduce(dir.path(), &run);
        assert!(code == 2 && printed.is_empty(), "{impossible}: {code} {printed} {errors}");
        assert!(errors.contains(impossible) && errors.contains("--results"), "{errors}");
        assert!(start.elapsed().as_secs() < 30, "{impossible}: something ran first");
        assert_eq!(names_in(dir.path()), before, "{impossible}: something was left behind");
    }
}

fn names_in(dir: &Path) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(dir).expect("directory");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    names
}
