//! Table 1 from the figures of section 4, and no table from figures without effects.

use super::*;
use crate::idiosyncrasies::{
    Asymmetry, CachedLatency, DirtyCache, Grid, Losses, Reads, Rewritten, SmallWrites,
};

const THREADS: [usize; 6] = [1, 2, 4, 8, 16, 28];
const SIZES: [u64; 7] = [64, 128, 256, 512, 1024, 2048, 4096];
const GIB: f64 = 1024.0;

fn losses(sequential: [[i32; 7]; 6], random: [[i32; 7]; 6]) -> Losses {
    let grid = |percents: [[i32; 7]; 6]| Grid {
        threads: THREADS.into(),
        sizes: SIZES.into(),
        values: percents.map(|row| row.map(|p| f64::from(p) / 100.0).into()).into(),
    };
    Losses { sequential: grid(sequential), random: grid(random) }
}

fn gib(values: [f64; 7]) -> Vec<f64> {
    values.map(|value| value * GIB).into()
}

fn latency(load_ns: [f64; 2], persist_ns: [f64; 2]) -> CachedLatency {
    CachedLatency {
        threads: 8,
        region_bytes: 16 << 20,
        hit_ratios: vec![0.0, 1.0],
        load_ns: load_ns.into(),
        persist_ns: persist_ns.into(),
    }
}

/// Section 4 of the paper, persistent memory: figures 3 to 7 with the values of its data sheets.
fn pmem() -> Findings {
    Findings {
        machine: "Gugnani".into(),
        node: "pmem".into(),
        cached_latency: latency([393.0, 107.0], [2450.0, 2493.0]),
        asymmetry: Asymmetry {
            threads: THREADS.into(),
            reads_by_threads: vec![],
            writes_by_threads: vec![1932.0, 3861.0, 7114.0, 8013.0, 6169.0, 5561.0],
            sizes: SIZES.into(),
            reads: gib([7.29, 14.10, 27.25, 29.24, 29.03, 28.82, 29.15]),
            flushes: gib([2.22, 4.16, 7.23, 7.80, 7.83, 7.84, 7.83]),
            streams: gib([2.39, 4.77, 7.91, 7.87, 7.86, 7.88, 7.88]),
        },
        small_writes: SmallWrites {
            threads: 16,
            sizes: vec![64, 128, 256, 512],
            sequential: vec![4873.0, 7582.0, 6898.0, 6820.0],
            random: vec![1963.0, 3172.0, 7264.0, 6882.0],
            sequential_ewr: Reading::Measured(vec![0.991, 0.981, 0.951, 0.944]),
            random_ewr: Reading::Measured(vec![0.248, 0.248, 0.961, 0.948]),
        },
        remote: Reading::Measured(losses(
            [
                [1, 1, 1, 7, 18, 21, 21],
                [-2, -1, 0, 6, 20, 21, 23],
                [1, 0, 0, 7, 16, 16, 22],
                [1, 1, 51, 91, 91, 91, 91],
                [85, 94, 92, 92, 93, 92, 92],
                [94, 93, 93, 93, 93, 93, 93],
            ],
            [
                [9, 9, 10, 15, 12, 15, 22],
                [9, 8, 9, 14, 12, 18, 28],
                [9, 9, 9, 17, 13, 39, 60],
                [8, 9, 10, 13, 25, 81, 85],
                [7, 7, 9, 43, 79, 84, 87],
                [32, 41, 46, 79, 86, 84, 86],
            ],
        )),
        plain_stores: losses(
            [
                [-1, -2, 9, 14, 7, 16, 7],
                [-5, -5, -1, 15, 21, 25, 24],
                [-3, -2, 7, 51, 57, 59, 61],
                [-2, 30, 61, 65, 66, 66, 66],
                [38, 66, 58, 58, 59, 59, 59],
                [61, 55, 55, 55, 55, 54, 55],
            ],
            [
                [-2, 0, 4, 0, 6, 12, 11],
                [-1, 1, 4, 2, 10, 21, 24],
                [0, 2, 7, 9, 23, 45, 52],
                [0, 4, 14, 39, 52, 58, 59],
                [1, 17, 50, 62, 59, 53, 53],
                [1, 34, 65, 57, 51, 48, 48],
            ],
        ),
        reads: Reads {
            threads: 16,
            sizes: SIZES.into(),
            sequential: vec![5107.0, 9889.0, 19606.0, 28731.0, 29246.0, 29186.0, 29516.0],
            random: vec![1531.0, 2869.0, 5501.0, 10176.0, 13504.0, 14276.0, 20187.0],
            buffer_hits: Reading::Measured([0.74, 0.60]),
        },
        rewritten: Reading::Measured(Rewritten { ewr: 0.913, rwr: 0.793, write_hits: 0.726 }),
        // Not published; nothing is concluded from it.
        dirty_cache: DirtyCache { region_bytes: 0, clean_ns: 1.0, dirty_ns: 1.0 },
    }
}

/// The same of DRAM. Its small writes are the p-stores of table 4.4, since the paper has none streamed.
fn dram() -> Findings {
    fn no_counters<T>() -> Reading<T> {
        Reading::NotMeasurable("DRAM has no medium".into())
    }
    Findings {
        machine: "Gugnani".into(),
        node: "dram".into(),
        cached_latency: latency([183.0, 106.0], [711.0, 712.0]),
        asymmetry: Asymmetry {
            threads: THREADS.into(),
            reads_by_threads: vec![],
            writes_by_threads: vec![3418.0, 6630.0, 12815.0, 22120.0, 28570.0, 33258.0],
            sizes: SIZES.into(),
            reads: gib([7.22, 13.92, 26.66, 47.14, 66.80, 71.05, 75.99]),
            flushes: gib([6.52, 12.25, 22.01, 30.91, 32.18, 32.40, 32.48]),
            streams: gib([6.86, 13.44, 24.48, 37.95, 40.13, 42.35, 41.67]),
        },
        small_writes: SmallWrites {
            threads: 16,
            sizes: vec![64, 128, 256, 512],
            sequential: vec![4615.0, 8716.0, 15508.0, 23465.0],
            random: vec![3077.0, 5728.0, 10840.0, 15717.0],
            sequential_ewr: no_counters(),
            random_ewr: no_counters(),
        },
        remote: Reading::Measured(losses(
            [
                [2, 2, 5, 7, 31, 33, 41],
                [1, 1, 2, 5, 30, 33, 42],
                [0, 2, 2, 5, 30, 36, 42],
                [0, 1, 3, 10, 32, 38, 42],
                [1, 1, 11, 47, 56, 58, 59],
                [0, 0, 50, 66, 67, 67, 67],
            ],
            [
                [20, 18, 17, 22, 27, 35, 43],
                [18, 15, 16, 23, 25, 34, 44],
                [17, 17, 17, 22, 25, 35, 45],
                [17, 17, 17, 22, 27, 38, 45],
                [18, 17, 18, 24, 37, 50, 55],
                [13, 14, 16, 34, 48, 56, 60],
            ],
        )),
        plain_stores: losses(
            [
                [-1, -1, -1, 1, -8, -12, -17],
                [-1, -2, -3, -4, -13, -19, -23],
                [-1, -2, -2, -5, -12, -14, -19],
                [-1, -2, -1, -4, -9, -7, -7],
                [-1, -1, 1, 1, 0, 3, 3],
                [-1, -1, -2, -1, 2, 3, 3],
            ],
            [
                [1, 0, 6, -3, 1, -6, -20],
                [2, -2, 3, -4, -2, -13, -25],
                [0, 0, 4, -3, -1, -9, -19],
                [1, 0, 5, -2, 0, -5, -5],
                [3, 4, 9, 3, 2, 1, -1],
                [4, 8, 11, 7, 3, 4, 2],
            ],
        ),
        reads: Reads {
            threads: 16,
            sizes: SIZES.into(),
            sequential: vec![5092.0, 9881.0, 19039.0, 33702.0, 53241.0, 63688.0, 66945.0],
            random: vec![3129.0, 5880.0, 11058.0, 20048.0, 30629.0, 49044.0, 74026.0],
            buffer_hits: no_counters(),
        },
        rewritten: no_counters(),
        dirty_cache: DirtyCache { region_bytes: 0, clean_ns: 1.0, dirty_ns: 1.0 },
    }
}

fn table(subject: &Findings, dram: &Findings, by: Thresholds) -> Vec<(String, Vec<Component>)> {
    let causes = classify(subject, dram, by);
    causes.into_iter().map(|cause| (cause.classes_text(), cause.components)).collect()
}

#[test]
fn the_papers_figures_give_its_table_1() {
    use Component::*;
    let expected = [
        ("C1, C2, C3, C4", vec![CpuCache]),
        ("C4", vec![Contention]),
        ("C3, C4", vec![Granularity]),
        ("C1, C2*, C3, C4*", vec![Interconnect, DevicePrefetcher]),
        ("C2, C4", vec![DevicePrefetcher]),
        ("C1, C2*, C3, C4*", vec![CpuPrefetcher, DevicePrefetcher]),
        ("C4", vec![DeviceBuffer]),
    ];
    let expected = expected.map(|(text, parts)| (text.to_string(), parts));
    assert_eq!(table(&pmem(), &dram(), Thresholds::default()), expected);
    // It does not hang on where in that range the thresholds are, and is gone beyond.
    for factor in [1.15, 1.4, 1.6] {
        let by = Thresholds { shows: factor, stronger: factor };
        assert_eq!(table(&pmem(), &dram(), by), expected, "{factor}");
    }
    for (shows, stronger) in [(1.05, 1.25), (1.8, 1.25), (1.25, 2.2)] {
        let by = Thresholds { shows, stronger };
        assert_ne!(table(&pmem(), &dram(), by), expected, "{by:?}");
    }
}

#[test]
fn dram_beside_itself_has_only_what_the_platform_does() {
    use Component::*;
    let found = table(&dram(), &dram(), Thresholds::default());
    let platform: Vec<_> = found.iter().map(|(_, parts)| parts.clone()).collect();
    let none = Vec::new;
    assert_eq!(
        platform,
        [vec![CpuCache], none(), none(), vec![Interconnect], none(), vec![CpuPrefetcher], none()]
    );
}

#[test]
fn without_the_counters_no_part_of_the_device_is_blamed() {
    let mut blind = pmem();
    blind.small_writes.random_ewr = Reading::NotMeasurable("no counters".into());
    blind.reads.buffer_hits = Reading::NotMeasurable("no counters".into());
    blind.rewritten = Reading::NotMeasurable("no counters".into());
    let causes = classify(&blind, &dram(), Thresholds::default());
    for (place, classes) in [(2, ""), (3, "C1, C2, C3, C4"), (4, ""), (6, "")] {
        assert_eq!(causes[place].classes_text(), classes, "{:?}", causes[place]);
        assert_eq!(causes[place].unexplained.as_deref(), Some("no counters"));
    }
    // What the counters contradict is not said either.
    let mut contrary = pmem();
    contrary.reads.buffer_hits = Reading::Measured([0.6, 0.6]);
    assert_eq!(classify(&contrary, &dram(), Thresholds::default())[4].components, []);
}

#[test]
fn the_papers_figures_give_its_recommendations() {
    use crate::idiosyncrasies::{Impact, recommend};
    let grades = |findings: &Findings| -> Vec<Impact> {
        recommend(findings).into_iter().map(|advice| advice.impact).collect()
    };
    use Impact::*;
    // Table 4 for C4 grades all as high. By the factors alone writers beyond the best number cost
    // 1.44 and stores without write-backs 2.94.
    assert_eq!(grades(&pmem()), [High, Low, High, High, Moderate, High, High]);
    // Table 4 for C1: high, none, moderate, moderate, low, moderate, high. DRAM's I4 is 3.03 where it is most.
    assert_eq!(grades(&dram()), [High, None, High, High, Low, Moderate, High]);
}

#[test]
fn a_profile_and_its_page_keep_causes_and_recommendations() {
    use crate::idiosyncrasies::{Impact, effects, recommend, recommendations};
    use crate::probe::{html, table};
    use terrace_memory::profile::{NodeProfile, Profile, ProfiledMachine};
    let mut found = pmem();
    found.remote = Reading::NotMeasurable("no memory of another socket".into());
    let advice = recommend(&found);
    let machine = ProfiledMachine {
        name: "Gugnani".into(),
        is_modelled: false,
        processor: None,
        threads: 28,
        cache_bytes: 38 << 20,
        nodes: vec!["pmem".into()],
    };
    let mut profile = Profile::new(machine);
    let mut node = NodeProfile::new("pmem");
    node.effects = effects(&found, &classify(&found, &dram(), Thresholds::default()));
    node.recommendations = recommendations(&advice);
    let kept = node.recommendations.points().to_vec();
    profile.nodes.push(node);
    let names: Vec<&str> = kept.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["R1", "R2", "R3", "R4", "R5", "R6", "R7"]);
    for (one, advice) in kept.iter().zip(&advice).filter(|(one, _)| one.name != "R4") {
        assert_eq!(one.impact, Some(advice.impact), "{one:?}");
        assert_eq!(one.applies, Some(advice.impact > Impact::None), "{one:?}");
        assert_eq!(one.because, advice.because);
    }
    let far = (kept[3].applies, kept[3].impact, kept[3].because.as_str());
    assert_eq!(far, (None, None, "no memory of another socket"));
    let (page, told) = (html(&profile), table(&profile));
    for one in &kept {
        let row = format!("<tr><td>{}</td><td>{}</td>", one.name, one.words);
        assert!(page.contains(&row), "{row}: {page}");
        assert!(told.contains(&one.words) && told.contains(&one.because), "{told}");
    }
    for row in [
        "<td>not known</td><td>not known</td><td>no memory of another socket</td>",
        "<td>yes</td><td>high</td>",
        "<td>C1, C2*, C3, C4*</td><td>the processor's prefetchers; the memory's prefetcher</td>",
    ] {
        assert!(page.contains(row), "{row}: {page}");
    }
    // Nobody asked for the tests: there is nothing of them.
    profile.nodes = vec![NodeProfile::new("pmem")];
    assert!(!html(&profile).contains("<table") && !table(&profile).contains("what follows"));
}
