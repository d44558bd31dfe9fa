//! The example programs run, and find what they say.

macro_rules! examples {
    ($($name:ident in $path:literal;)*) => {$(
        #[path = $path]
        mod $name;

        #[test]
        fn $name() {
            $name::main().expect(concat!("the example ", stringify!($name), " runs"));
        }
    )*};
}

examples! {
    backup in "../examples/backup.rs";
    bank_transfer in "../examples/bank_transfer.rs";
    cache in "../examples/cache.rs";
    counters in "../examples/counters.rs";
    dispatch in "../examples/dispatch.rs";
    jobs in "../examples/jobs.rs";
    larger_than_memory in "../examples/larger_than_memory.rs";
    pool in "../examples/pool.rs";
    time_series in "../examples/time_series.rs";
}

#[test]
fn each_example_is_run_here() {
    let listed = include_str!("examples.rs");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for entry in std::fs::read_dir(folder).expect("the examples") {
        let name = entry.expect("a file").file_name().into_string().expect("a name");
        assert!(listed.contains(&format!("../examples/{name}\"")), "{name} is run by no test");
    }
}
