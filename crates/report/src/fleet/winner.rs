//! The best strategy and its lead, in a few sentences.
//!
//! The lowest TTFT p90 wins, at the highest request rate that all strategies sustained. Where no
//! rate was sustained, the best hit rate wins.

use headstart_sim::fleet::RungOutcome;

use super::{FigureOrigin, FleetReport, StrategyRun};

/// A rate is sustained where no request is refused or fails and the TTFT p90 is at most this,
/// seconds: the objective of [`Slo::default`](headstart_sim::fleet::Slo).
const TTFT_P90_MAX_S: f64 = 2.0;

/// Times within this factor of each other are called equal.
const ALIKE: f64 = 1.05;

/// Differences of hit rates below this are not shown.
const POINTS_MIN: f64 = 0.1;

/// The winner and why. What was measured counts, where anything was.
pub(super) fn sentences(report: &FleetReport) -> Vec<String> {
    let is_measured = |run: &&StrategyRun| run.origin == FigureOrigin::Measured;
    let any_measured = report.runs.iter().any(|run| is_measured(&run));
    let runs: Vec<_> = report.runs.iter().filter(|run| !any_measured || is_measured(run)).collect();
    let mut sentences = match sustained(report, &runs) {
        Some(at) => by_ttft(report, &runs, at),
        None => by_hit_rate(&runs),
    };
    sentences.extend(most_sustained(report, &runs));
    sentences
}

/// Names the strategies that sustain the highest rate, unless all do.
fn most_sustained(report: &FleetReport, runs: &[&StrategyRun]) -> Option<String> {
    let highest = |run: &StrategyRun| {
        let rungs = run.outcome.rungs.iter().skip(report.warm_up());
        let kept = rungs.filter(|rung| is_sustained(rung));
        kept.map(|rung| rung.rate).reduce(f64::max)
    };
    let most = runs.iter().filter_map(|run| highest(run)).reduce(f64::max)?;
    let (able, others): (Vec<&StrategyRun>, Vec<&StrategyRun>) =
        runs.iter().copied().partition(|run| highest(run) == Some(most));
    let names: Vec<_> = able.iter().map(|run| run.label()).collect();
    let verb = if able.len() == 1 { "sustains" } else { "sustain" };
    (!others.is_empty()).then(|| format!("Only {} {verb} {most} requests/s.", listed(&names)))
}

/// The rung of the highest rate that all of them sustained.
fn sustained(report: &FleetReport, runs: &[&StrategyRun]) -> Option<usize> {
    let rungs = runs.iter().map(|run| run.outcome.rungs.len()).min()?;
    let holds = |at: &usize| runs.iter().all(|run| is_sustained(&run.outcome.rungs[*at]));
    let rate = |at: &usize| runs[0].outcome.rungs[*at].rate;
    let kept = (report.warm_up()..rungs).filter(holds);
    kept.max_by(|one, other| rate(one).total_cmp(&rate(other)))
}

fn is_sustained(rung: &RungOutcome) -> bool {
    let is_whole = rung.refused + rung.failed == 0 && rung.answered > 0;
    is_whole && rung.ttft.p90 <= TTFT_P90_MAX_S
}

/// The winner at rung `at`. Where several are alike there, and sustain a higher rate, that decides.
fn by_ttft(report: &FleetReport, runs: &[&StrategyRun], at: usize) -> Vec<String> {
    let sorted = by_p90(runs, at);
    let alike: Vec<_> =
        sorted.iter().copied().filter(|run| p90(run, at) <= p90(sorted[0], at) * ALIKE).collect();
    let higher =
        sustained(report, &alike).filter(|&rung| rate(alike[0], rung) > rate(alike[0], at));
    let (Some(higher), 2..) = (higher, alike.len()) else {
        return compared(&sorted, at);
    };
    // Of those that are alike, the last is not the last of all.
    let mut sentences = first_two(&by_p90(&alike, higher), higher);
    let names: Vec<_> = alike.iter().map(|run| run.label()).collect();
    sentences.push(format!(
        "At {} requests/s, which all strategies sustain, {} differ by at most 5 %.",
        rate(alike[0], at),
        listed(&names)
    ));
    sentences
}

fn p90(run: &StrategyRun, at: usize) -> f64 {
    run.outcome.rungs[at].ttft.p90
}

fn by_p90<'r>(runs: &[&'r StrategyRun], at: usize) -> Vec<&'r StrategyRun> {
    let mut sorted = runs.to_vec();
    sorted.sort_by(|one, other| p90(one, at).total_cmp(&p90(other, at)));
    sorted
}

/// The first of `sorted` against the second and the last.
fn compared(sorted: &[&StrategyRun], at: usize) -> Vec<String> {
    let mut sentences = first_two(sorted, at);
    if let [best, _, .., last] = sorted
        && p90(last, at) > p90(best, at) * ALIKE
    {
        let times = p90(last, at) / p90(best, at).max(f64::MIN_POSITIVE);
        let (last, worst) = (last.label(), seconds(p90(last, at)));
        sentences.push(format!("{last} is last with {worst}, {times:.1} times as much."));
    }
    sentences
}

/// The first of `sorted` against the second.
fn first_two(sorted: &[&StrategyRun], at: usize) -> Vec<String> {
    let Some((best, others)) = sorted.split_first() else {
        return Vec::new();
    };
    let head = format!("At {} requests/s", rate(best, at));
    let (name, shown) = (best.label(), seconds(p90(best, at)));
    let Some(next) = others.first() else {
        return vec![format!("{head}, {name} has a TTFT p90 of {shown}.")];
    };
    let (other, theirs) = (next.label(), seconds(p90(next, at)));
    let mut sentences = Vec::new();
    if p90(next, at) <= p90(best, at) * ALIKE {
        sentences
            .push(format!("{head}, {name} and {other} have about the same TTFT p90: {shown}."));
    } else {
        let less = 100.0 * (1.0 - p90(best, at) / p90(next, at));
        sentences.push(format!(
            "{head}, {name} wins: TTFT p90 {shown}, {less:.0} % less than {other} ({theirs})."
        ));
        sentences.extend(why(best, next, at));
    }
    sentences
}

/// `a, b and c`.
fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [front @ .., last] => format!("{} and {last}", front.join(", ")),
    }
}

/// The hit rate as the reason, where it is one.
fn why(best: &StrategyRun, next: &StrategyRun, at: usize) -> Option<String> {
    let rate = |run: &StrategyRun| run.outcome.rungs[at].hits.rate() * 100.0;
    let more = rate(best) - rate(next);
    (more >= POINTS_MIN).then(|| {
        format!(
            "It recomputes less: its hit rate is {:.1} %, {more:.1} points more than {}.",
            rate(best),
            next.label()
        )
    })
}

fn by_hit_rate(runs: &[&StrategyRun]) -> Vec<String> {
    let rate = |run: &StrategyRun| run.outcome.all.hits.rate() * 100.0;
    let mut sorted = runs.to_vec();
    sorted.sort_by(|one, other| rate(other).total_cmp(&rate(one)));
    let Some((best, others)) = sorted.split_first() else {
        return Vec::new();
    };
    let (name, shown) = (best.label(), rate(best));
    let first = match others.first() {
        None => format!("{name} has a hit rate of {shown:.1} %."),
        Some(next) if shown - rate(next) < POINTS_MIN => {
            let other = next.label();
            format!("{name} and {other} have the same hit rate: {shown:.1} %.")
        }
        Some(next) => {
            let (more, other) = (shown - rate(next), next.label());
            format!(
                "{name} has the best hit rate: {shown:.1} %, {more:.1} points more than {other}."
            )
        }
    };
    let second = if others.is_empty() {
        "It sustained no request rate with a TTFT p90 of at most 2 s."
    } else {
        "At no request rate did all strategies keep the TTFT p90 at 2 s or less."
    };
    vec![first, second.to_owned()]
}

fn rate(run: &StrategyRun, at: usize) -> f64 {
    run.outcome.rungs[at].rate
}

fn seconds(seconds: f64) -> String {
    match seconds {
        short if short < 1.0 => format!("{:.0} ms", short * 1e3),
        long => format!("{long:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use headstart_core::stats::{HitCount, Summary};
    use headstart_sim::fleet::FleetOutcome;

    use super::super::RunParameters;
    use super::*;

    /// Rungs of a rate, a TTFT p90 and a hit rate in percent; ten seconds each.
    fn run(name: &str, rungs: &[(f64, f64, u64)]) -> StrategyRun {
        let rung = |&(rate, p90, percent): &(f64, f64, u64)| RungOutcome {
            rate,
            seconds: 10.0,
            answered: (rate * 10.0) as usize,
            ttft: Summary { p90, ..Summary::default() },
            hits: HitCount { lookups: 1_000, hits: percent * 10 },
            ..RungOutcome::default()
        };
        let rungs: Vec<_> = rungs.iter().map(rung).collect();
        StrategyRun {
            name: name.to_owned(),
            origin: FigureOrigin::Simulated,
            outcome: FleetOutcome {
                all: rungs.last().cloned().unwrap_or_default(),
                rungs,
                ..FleetOutcome::default()
            },
        }
    }

    #[track_caller]
    fn check(runs: Vec<StrategyRun>, expected: &[&str]) {
        let report = FleetReport {
            asked: RunParameters::trace("t".to_owned(), "a trace".to_owned()),
            engine: Vec::new(),
            runs,
        };
        let sentences = sentences(&report);
        assert_eq!(sentences, expected);
        for sentence in sentences {
            let words = sentence.split_whitespace().count();
            assert!(words <= 25, "{words} words: {sentence}");
        }
    }

    #[test]
    fn the_lowest_ttft_at_the_highest_rate_that_all_sustained_wins() {
        check(
            vec![
                run("load", &[(1.0, 0.1, 9), (10.0, 0.5, 40), (20.0, 9.0, 40)]),
                run("random", &[(1.0, 0.1, 9), (10.0, 1.5, 20), (20.0, 9.0, 20)]),
                run("precise", &[(1.0, 0.2, 9), (10.0, 0.3, 70), (20.0, 0.4, 70)]),
            ],
            &[
                "At 10 requests/s, precise wins: TTFT p90 300 ms, 40 % less than load (500 ms).",
                "It recomputes less: its hit rate is 70.0 %, 30.0 points more than load.",
                "random is last with 1.50 s, 5.0 times as much.",
                "Only precise sustains 20 requests/s.",
            ],
        );
    }

    #[test]
    fn where_several_are_alike_a_higher_rate_decides() {
        check(
            vec![
                run("load", &[(1.0, 0.1, 9), (10.0, 1.5, 40), (20.0, 9.0, 40)]),
                run("prefix", &[(1.0, 0.1, 9), (10.0, 0.5, 69), (20.0, 1.2, 69)]),
                run("precise", &[(1.0, 0.1, 9), (10.0, 0.51, 70), (20.0, 0.9, 70)]),
            ],
            &[
                "At 20 requests/s, precise wins: TTFT p90 900 ms, 25 % less than prefix (1.20 s).",
                "It recomputes less: its hit rate is 70.0 %, 1.0 points more than prefix.",
                "At 10 requests/s, which all strategies sustain, prefix and precise differ by at \
                 most 5 %.",
                "Only prefix and precise sustain 20 requests/s.",
            ],
        );
    }

    #[test]
    fn without_a_sustained_rate_the_hit_rate_wins() {
        check(
            vec![run("load", &[(9.0, 3.0, 40)]), run("precise", &[(9.0, 4.0, 70)])],
            &[
                "precise has the best hit rate: 70.0 %, 30.0 points more than load.",
                "At no request rate did all strategies keep the TTFT p90 at 2 s or less.",
            ],
        );
    }

    #[test]
    fn what_is_alike_has_no_winner_and_one_alone_is_not_compared() {
        check(
            vec![run("load", &[(9.0, 1.0, 40)]), run("precise", &[(9.0, 1.02, 41)])],
            &["At 9 requests/s, load and precise have about the same TTFT p90: 1.00 s."],
        );
        check(
            vec![run("load", &[(9.0, 0.5, 40)])],
            &["At 9 requests/s, load has a TTFT p90 of 500 ms."],
        );
    }
}
