//! Interpretation of the numbers in sentences, which claim no more than the numbers show.
//!
//! Sentences name only sizes that were replayed, without interpolation. A curve that is flat, has
//! too few sizes or does not bend gets no knee.

use headstart_cache::policy::OFFLINE_NAMES;
use headstart_core::figures::{counted, percent_to_tenths, thousands};
use headstart_sim::knee::RISE_MIN;

use super::{Curve, ReplayReport, ReplayRow, YARDSTICK};

/// Most steps between sizes that are reported one by one, without a knee.
const STEPS_TOLD_MAX: usize = 3;

/// Bytes that a step is divided by where a model says what a block takes; smaller steps by MB.
const GB: f64 = 1e9;
const MB: f64 = 1e6;

/// A smaller difference of hit rates is not spoken of.
const WORTH_TELLING: f64 = 0.001;

/// Sentences, one a line.
pub fn words(report: &ReplayReport) -> Vec<String> {
    let policies = report.policies();
    let serving = policies.into_iter().filter(|policy| !is_bound(policy));
    let curves: Vec<_> = serving.map(|policy| report.curve(policy)).collect();
    let bends = |curve| Curve::knee(curve).map(|knee| (curve, knee));
    let knees: Vec<_> = curves.iter().filter_map(bends).collect();
    let mut words = match (knees.split_first(), curves.first()) {
        (Some(((curve, knee), others)), _) => {
            let mut words = vec![at_knee(report, curve, *knee)];
            words.extend(briefly(others));
            words
        }
        (None, Some(first)) => steps(report, first),
        (None, None) => Vec::new(),
    };
    words.extend(most_to_win(report));
    if !knees.is_empty() {
        words.push(
            "(Knee: Kneedle, Satopää et al. 2011, over the logarithm of the capacity; it is one \
             of the sizes replayed, and other sizes may move it.)"
                .to_owned(),
        );
    }
    words
}

fn is_bound(policy: &str) -> bool {
    OFFLINE_NAMES.contains(&policy)
}

/// Knees in one sentence; `None` when there are none.
fn briefly(knees: &[(&Curve<'_>, usize)]) -> Option<String> {
    let knee = |(curve, knee): &(&Curve<'_>, usize)| {
        let row = curve.rows[*knee];
        let (blocks, rate) = (counted(row.blocks, "block"), percent_to_tenths(row.block_rate()));
        format!("{} {blocks} ({rate})", curve.policy)
    };
    let told: Vec<_> = knees.iter().map(knee).collect();
    (!told.is_empty()).then(|| format!("Other knees: {}.", told.join(", ")))
}

/// Describes the knee of the curve, the gain of the next size, and the yardstick beside it.
fn at_knee(report: &ReplayReport, curve: &Curve<'_>, knee: usize) -> String {
    let row = curve.rows[knee];
    let mut text = format!(
        "{}: the knee is at {} ({} of blocks hit).",
        curve.policy,
        counted(row.blocks, "block"),
        percent_to_tenths(row.block_rate())
    );
    if let Some(next) = curve.rows.get(knee + 1) {
        let to = counted(next.blocks, "block");
        text += &format!(" The next size, {to}, adds {}.", gain(report, row, next));
    }
    text + &beside_yardstick(report, row)
}

/// Describes how many more blocks the yardstick hits and how much less room it needs, if that is
/// much.
fn beside_yardstick(report: &ReplayReport, row: &ReplayRow) -> String {
    let Some(best) = report.yardstick(row) else {
        return String::new();
    };
    let mut told = Vec::new();
    let more = best.block_rate() - row.block_rate();
    if more >= WORTH_TELLING {
        told.push(format!("hits {} more at that size", points(more)));
    }
    let yardstick = report.curve(YARDSTICK);
    let mut rows = yardstick.rows.iter();
    let enough = rows.find(|other| other.block_rate() >= row.block_rate());
    if let Some(enough) = enough.filter(|enough| enough.blocks < row.blocks) {
        told.push(format!("hits as much with {}", counted(enough.blocks, "block")));
    }
    if told.is_empty() { String::new() } else { format!(" Belady {}.", told.join(", and ")) }
}

/// Describes the gain of each step, if there are few sizes.
fn steps(report: &ReplayReport, curve: &Curve<'_>) -> Vec<String> {
    let (Some(first), Some(last)) = (curve.rows.first(), curve.rows.last()) else {
        return Vec::new();
    };
    let is_flat = last.block_rate() - first.block_rate() < RISE_MIN;
    if is_flat || curve.rows.len() > STEPS_TOLD_MAX + 1 {
        return Vec::new();
    }
    let step = |pair: &[&ReplayRow]| {
        let (from, to) = (thousands(pair[0].blocks), counted(pair[1].blocks, "block"));
        let gain = gain(report, pair[0], pair[1]);
        format!("{}: from {from} to {to} adds {gain}.", curve.policy)
    };
    curve.rows.windows(2).map(step).collect()
}

/// Describes the hits that `next` adds to `row`, in total and per power of ten of GB or MB. Without
/// a known block size, the unit is blocks. That power never exceeds the step, so nothing is
/// promised beyond it.
fn gain(report: &ReplayReport, row: &ReplayRow, next: &ReplayRow) -> String {
    let rise = next.block_rate() - row.block_rate();
    if rise < WORTH_TELLING {
        return "nothing material".to_owned();
    }
    let blocks = (next.blocks - row.blocks) as f64;
    let (size, unit) = match report.block_bytes() {
        Some(bytes) if blocks * bytes as f64 >= GB => (blocks * bytes as f64 / GB, "GB"),
        Some(bytes) => (blocks * bytes as f64 / MB, "MB"),
        None => (blocks, "blocks"),
    };
    let lot = 10_f64.powf(size.log10().floor()).max(1.0);
    let lots = size / lot;
    let lot = match lot as u64 {
        1 => unit.trim_end_matches('s').to_owned(),
        lot => format!("{} {unit}", thousands(lot)),
    };
    let hits = |row: &ReplayRow| row.outcome.all().tokens.hits as f64;
    let saved = (hits(next) - hits(row)) / report.trace.seconds;
    let mut each = points(rise / lots);
    if report.trace.seconds > 0.0 {
        each +=
            &format!(" and {} tokens of prefill saved per second of trace", short(saved / lots));
    }
    format!("{}: on average {each} for each {lot}", points(rise))
}

/// The size at which the yardstick is farthest above the best policy that can serve.
fn most_to_win(report: &ReplayReport) -> Option<String> {
    let yardstick = report.curve(YARDSTICK);
    let serving = |row: &&ReplayRow| !is_bound(&row.policy);
    let gaps = yardstick.rows.iter().filter_map(|best| {
        let rows = report.rows.iter().filter(serving);
        let rows = rows.filter(|row| row.blocks == best.blocks);
        let row = rows.max_by_key(|row| row.outcome.all().blocks.hits)?;
        Some((best.block_rate() - row.block_rate(), *best, row))
    });
    let (gap, best, row) = gaps.max_by(|one, two| one.0.total_cmp(&two.0))?;
    (gap >= RISE_MIN).then(|| {
        format!(
            "The largest gap to Belady is at {}: {} hits {} of blocks, Belady {}.",
            counted(row.blocks, "block"),
            row.policy,
            percent_to_tenths(row.block_rate()),
            percent_to_tenths(best.block_rate())
        )
    })
}

fn points(rate: f64) -> String {
    format!("{} points", short(rate * 100.0))
}

/// Three digits that mean something, no more.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 999.5 && value > 0.0 => thousands(value.round() as u64),
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 0.995 || size == 0.0 => format!("{value:.1}"),
        size if size >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use headstart_analysis::kv_bytes::KvBytes;

    use super::super::testing;
    use super::*;

    const LRU: (&str, &[(u64, u64)]) =
        ("lru", &[(5, 100), (10, 200), (20, 400), (40, 410), (80, 420)]);

    const BELADY: (&str, &[(u64, u64)]) =
        ("belady", &[(5, 350), (10, 400), (20, 410), (40, 420), (80, 420)]);

    #[test]
    fn the_knee_the_next_size_and_the_yardstick_are_told() {
        let report = testing::report(&[LRU, BELADY]);
        let words = words(&report);
        assert_eq!(
            words[0],
            "lru: the knee is at 20 blocks (40.0 % of blocks hit). The next size, 40 blocks, \
             adds 1.0 points: on average 0.50 points and 0.80 tokens of prefill saved per second \
             of trace for each 10 blocks. Belady hits 1.0 points more at that size, and hits as \
             much with 10 blocks."
        );
        assert_eq!(
            words[1],
            "The largest gap to Belady is at 5 blocks: lru hits 10.0 % of blocks, Belady 35.0 %."
        );
        assert!(words[2].contains("Kneedle"));
        assert_eq!(words.len(), 3);
    }

    #[test]
    fn the_first_policy_is_told_in_full_and_the_others_in_a_line() {
        let twins = [LRU, ("fifo", LRU.1), ("lfu", LRU.1)];
        let words = words(&testing::report(&twins));
        assert!(words[0].starts_with("lru: the knee is at 20"), "{words:?}");
        let others = "Other knees: fifo 20 blocks (40.0 %), lfu 20 blocks (40.0 %).";
        assert_eq!(words[1], others);
        assert_eq!(words.len(), 3);
    }

    #[test]
    fn with_a_model_a_step_is_divided_into_gigabytes() {
        let mut report = testing::report(&[LRU]);
        report.kv = Some(KvBytes { per_token: 6_250_000, shape: String::new() });
        report.trace.seconds = 0.0;
        // 20 blocks of 16 tokens are 2 GB, and the trace's duration is unknown.
        let words = words(&report);
        let gain = "adds 1.0 points: on average 0.50 points for each GB.";
        assert!(words[0].ends_with(gain), "{}", words[0]);
    }

    #[test]
    fn a_step_is_divided_by_no_more_than_itself() {
        let check = |to: u64, part: &str| {
            let mut report = testing::report(&[("lru", &[(5, 100), (to, 300)])]);
            report.trace.distinct_blocks = 1_000_000;
            let words = words(&report);
            assert!(words[0].contains(part), "{words:?}");
        };
        check(7, "adds 20.0 points: on average 10.0 points and 16.0 tokens");
        check(7, "for each block.");
        check(25, "adds 20.0 points: on average 10.0 points");
        check(25, "for each 10 blocks.");
        check(400_005, "on average 5.0 points and 8.0 tokens");
        check(400_005, "for each 100,000 blocks.");
    }

    #[test]
    fn few_sizes_are_told_step_by_step_and_flat_curves_not_at_all() {
        let check = |cells: &[(u64, u64)], expected: usize| {
            let words = words(&testing::report(&[("lru", cells)]));
            assert_eq!(words.len(), expected, "{words:?}");
        };
        check(&[(5, 100)], 0);
        check(&[(5, 100), (10, 200)], 1);
        check(&[(5, 100), (10, 200), (20, 300), (40, 400)], 3);
        check(&[(5, 100), (10, 105)], 0);
        // A straight line has no knee, and too many steps.
        check(&[(5, 100), (10, 200), (20, 300), (40, 400), (80, 500)], 0);
        check(&[(5, 100), (10, 100), (20, 101), (40, 101), (80, 102)], 0);
        assert!(words(&testing::report(&[])).is_empty());
    }
}
