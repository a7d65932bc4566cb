//! The smallest sweep, whose figures must add up.

use clap::Parser;
use headstart_selective::{Divergence, Guard, GuardOptions};

use super::arm::FullComputeComparison;
use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    bench: ImportanceBench,
}

/// Returns a bench of needle-small, one question, at these ratios, on a disk without delay.
fn bench(variants: &str, ratios: &str) -> ImportanceBench {
    let arguments = format!(
        "bench --model needle-small --prefix 512 --questions 1 --warm-up 3 --documents 1 \
         --chunk 16 --mb-per-s 100000 --latency-ms 0 --variant {variants} --ratio {ratios}"
    );
    let cli = Cli::try_parse_from(arguments.split_whitespace());
    cli.expect("arguments").bench
}

/// Runs the benchmark and returns the tokens of a document and the measured rows.
fn rows(variants: &str, ratios: &str) -> (usize, Vec<ImportanceRow>) {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = ImportanceBench { dir: Some(folder.path().to_owned()), ..bench(variants, ratios) };
    check(&bench).expect("they can be run");
    let workload = workload::load(&bench, Dtype::F32).expect("a workload");
    let mut rows = Vec::new();
    let tell = |row| {
        rows.push(row);
        Ok(())
    };
    measure(&bench, &workload, Dtype::F32, tell).expect("it is measured");
    let left = std::fs::read_dir(folder.path()).expect("the folder").count();
    assert_eq!(left, 0, "all is deleted");
    (workload.tokens(), rows)
}

#[test]
fn bytes_and_answers_add_up_and_no_row_inherits() {
    let (tokens, all) = rows("recompute,units,full,impress,chunks", "0.1,0.4");
    let names: Vec<_> = all.iter().map(|row| row.variant.name()).collect();
    let turn = ["full", "impress", "chunks"];
    let expected = [&["recompute", "units"][..], &turn, &turn].concat();
    assert_eq!(names, expected);
    for row in &all {
        let name = row.variant.name();
        assert_eq!((row.answers.len(), row.known, row.right), (1, 1, 1), "{name}");
        assert!(row.full.is_some(), "all are compared with the full load");
    }
    let [recompute, units, full, first, few, again, second, many] = &all[..] else {
        unreachable!("eight rows")
    };
    let beside = |row: &ImportanceRow| row.full == Some((again.ttft(), again.io()));
    assert!(beside(second) && !beside(first), "each has its own");
    assert_eq!((recompute.disk_bytes(), recompute.compared.compared), (0, 0));
    for whole in [units, full, again] {
        assert!(whole.disk_bytes() >= whole.whole_bytes());
        assert!(whole.loaded_share() >= 1.0);
        assert_eq!((whole.packs, whole.compared.compared), (0, 0), "nothing is left out");
    }
    assert_eq!((units.is_partly(), full.is_partly()), (false, true));
    assert_eq!(full.loaded_bytes(), full.whole_bytes());
    for part in [first, few, second, many] {
        assert!(part.disk_bytes() >= part.loaded_bytes(), "pages and headers");
        assert!(part.loaded_bytes() < part.whole_bytes());
        assert!(part.packs > 0);
        assert_eq!((part.compared.compared, part.compared.infinite), (1, 0));
    }
    for (chunks, tokens) in [(few, first), (many, second)] {
        assert!(chunks.tally.chunks <= tokens.tally.chunks);
        assert!(chunks.tally.missed >= 0.0 && tokens.tally.missed == 0.0);
    }
    assert!(first.tally.selected_tokens < second.tally.selected_tokens);
    assert!(second.tally.selected_tokens <= second.tally.layers * tokens as u64);
    let (_, alone) = rows("impress", "0.4");
    assert_eq!(alone[0].packs, second.packs);
    assert_eq!(alone[0].tally, second.tally);
    assert_eq!(alone[0].full, None);
}

#[test]
fn json_says_how_it_was_measured_and_its_shares_add_up() {
    let (tokens, mut all) = rows("impress,units", "0.4");
    let [units, impress] = &mut all[..] else { unreachable!("two rows") };
    // As if some had been on their way already, and some prompts had not ended so.
    impress.tally.parts[3] = impress.tally.parts[2];
    (impress.tally.failed, impress.tally.late) = (1, 2);
    impress.tally.left = 4;
    let bench = bench("impress,units", "0.4");
    let of_units = report::json(&bench, units, tokens);
    assert_eq!(of_units["chunk"], 64);
    assert!(of_units["ratio"].is_null() && of_units["spared"].is_null());
    let told = report::json(&bench, impress, tokens);
    let shares = ["device_hits", "host_hits", "disk_reads", "shared"];
    let shares = shares.map(|key| told[key].as_f64().expect("a share"));
    let sum: f64 = shares.iter().sum();
    assert!((sum - 1.0).abs() < 1e-9 && shares[3] > 0.4, "{shares:?}");
    for (name, count) in [("fell_back", 7), ("chunk", 16), ("documents", 1), ("warm_up", 3)] {
        assert_eq!(told[name], count, "{name}");
    }
    assert_eq!(told["spared"], 0.02);
}

#[test]
fn the_median_of_an_even_number_lies_between_two() {
    let median = |millis: &[u64]| sweep::median(millis.iter().copied().map(Duration::from_millis));
    assert_eq!(median(&[]), Duration::ZERO);
    assert_eq!(median(&[7]), Duration::from_millis(7));
    assert_eq!(median(&[9, 1, 4]), Duration::from_millis(4));
    assert_eq!(median(&[9, 1]), Duration::from_millis(5));
    assert_eq!(median(&[9, 1, 4, 3]), Duration::from_micros(3_500));
}

#[test]
fn infinite_divergences_are_counted_beside_the_mean() {
    let mut guard = Guard::new(GuardOptions::default());
    let mut sum = FullComputeComparison::default();
    let questions =
        [(0.5, true), (f32::INFINITY, false), (0.0, true), (1.5, false), (f32::INFINITY, false)];
    for (kl, top1_agrees) in questions {
        let before = guard.counts();
        guard.compared(&[], Divergence { kl, top1_agrees });
        sum.add(&FullComputeComparison::of(&before, &guard.counts()));
    }
    assert_eq!((sum.compared, sum.agreed, sum.infinite), (5, 2, 2));
    assert_eq!((sum.kl_mean(), sum.kl_max), (2.0 / 3.0, 1.5));
    let counts = guard.counts();
    let none = FullComputeComparison::of(&counts, &counts);
    assert_eq!((none.compared, none.infinite), (0, 0));
}
