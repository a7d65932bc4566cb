//! The presets after the ATC'25 characterization: figures within a stated tolerance, and labels
//! and behaviour that come apart as they should.

use std::collections::HashMap;
use std::time::Duration;

use headstart_core::TraceRequest;
use headstart_trace::synth::{PRESETS, SynthWorkload};

use crate::measure::{
    Reuse, by_session, conversations, conversations_mut, ended, generate, median, near, num_turns,
    preset, seconds, thinned,
};

#[test]
fn consumer_traffic_has_the_figures_of_the_study() {
    check_consumer("atc25-exponential", 420.0 * std::f64::consts::LN_2);
    check_consumer("atc25-lognormal", 124.0);
}

fn check_consumer(name: &str, gap_median_s: f64) {
    for seed in [1, 2] {
        let workload = thinned(name, seed);
        let requests: Vec<_> = generate(&workload).collect();
        let sessions = ended(&requests);
        let singles = sessions.iter().filter(|s| num_turns(s) == 1).count();
        let single = singles as f64 / sessions.len() as f64;
        near("single-turn conversations", single, 0.54, 0.02);
        let mut turns: Vec<f64> = sessions.iter().map(|s| num_turns(s) as f64).collect();
        assert_eq!(median(&mut turns), 1.0);
        let p90 = turns[turns.len() * 9 / 10];
        assert!((5.0..=6.0).contains(&p90), "90 % have {p90} turns");
        check_classes(&workload, &requests, gap_median_s);
    }
    check_window(&generate(&preset(name)).collect::<Vec<_>>());
}

/// The study's traces are windows of two hours, and so are these figures. Prompts are those of
/// conversations that began in the first quarter: the end of the run cuts later ones short.
fn check_window(requests: &[TraceRequest]) {
    let tokens = |is_single: bool| {
        let mut sessions = by_session(requests);
        sessions.retain(|s| (num_turns(s) == 1) == is_single && seconds(s[0]) < 1_800.0);
        let tokens = sessions.iter().flatten().filter_map(|request| request.input_tokens);
        let tokens: Vec<f64> = tokens.map(f64::from).collect();
        tokens.iter().sum::<f64>() / tokens.len() as f64
    };
    near("tokens, single", tokens(true), 973.0, 100.0);
    near("tokens, several turns", tokens(false), 5_953.0, 700.0);
    let reuse = Reuse::of(requests);
    near("ideal hit rate", reuse.ideal(), 0.62, 0.03);
    near("reuses in 10 minutes", reuse.within(600.0), 0.80, 0.15);
}

/// Checks that each class continues as often and as late as its parameters say; classes differ.
fn check_classes(workload: &SynthWorkload, requests: &[TraceRequest], gap_median_s: f64) {
    #[derive(Default)]
    struct Class {
        turns: u32,
        went_on: u32,
        gaps: Vec<f64>,
    }
    let mut classes: HashMap<(usize, usize), Class> = HashMap::new();
    for session in ended(requests) {
        for (index, request) in session.iter().enumerate() {
            let turn = usize::from(request.turn).min(6);
            let class = classes.entry((request.request_type.into(), turn));
            let class = class.or_default();
            let next = session.get(index + 1);
            class.gaps.extend(next.map(|next| seconds(next) - seconds(request)));
            if next.is_none_or(|next| next.blocks != request.blocks) {
                class.turns += 1;
                class.went_on += u32::from(next.is_some());
            }
        }
    }
    let types = &conversations(workload).types;
    let mut medians = HashMap::new();
    for (&(kind, turn), class) in &mut classes {
        let step = types[kind - 1].steps[turn - 1];
        if class.gaps.len() < 400 {
            continue;
        }
        let what = format!("{} turn {turn}", types[kind - 1].name);
        let p_next = f64::from(class.went_on) / f64::from(class.turns);
        // Five standard errors, at most: of a share, and of the median of either law.
        near(&what, p_next, step.p_next, 2.5 / f64::from(class.turns).sqrt());
        let expected = gap_median_s * step.gap_scale;
        let tolerance = 8.0 * expected / (class.gaps.len() as f64).sqrt();
        let got = median(&mut class.gaps);
        near(&what, got, expected, tolerance);
        medians.insert((kind, turn), got);
    }
    let (slow, fast) = (medians[&(4, 1)], medians[&(2, 1)]);
    assert!(slow > 3.5 * fast, "files wait {slow} s, searches {fast} s");
    assert!(medians[&(1, 1)] > 1.6 * medians[&(1, 6)]);
}

#[test]
fn log_normal_gaps_are_the_published_ones_over_all_classes() {
    let requests: Vec<_> = generate(&thinned("atc25-lognormal", 4)).collect();
    let sessions = ended(&requests);
    let pairs = sessions.iter().flat_map(|session| session.windows(2));
    let gaps = pairs.map(|pair| seconds(pair[1]) - seconds(pair[0]));
    let logs: Vec<f64> = gaps.map(|gap| gap.max(1e-3).ln()).collect();
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let squares = logs.iter().map(|log| (log - mean) * (log - mean));
    let sigma = (squares.sum::<f64>() / logs.len() as f64).sqrt();
    near("mu", mean, 4.82, 0.1);
    // Classes that differ add to the spread inside each.
    near("sigma", sigma, 1.25, 0.1);
}

#[test]
fn business_traffic_has_the_figures_of_the_study() {
    let requests: Vec<_> = generate(&preset("atc25-api")).collect();
    let reuse = Reuse::of(&requests);
    near("ideal hit rate", reuse.ideal(), 0.54, 0.03);
    near("reuses in 10 s", reuse.within(10.0), 0.80, 0.05);
    let of_single = reuse.hits_of_single as f64 / reuse.hits as f64;
    near("hits of single-turn requests", of_single, 0.97, 0.015);
}

#[test]
fn a_default_run_after_the_study_has_about_50_000_requests() {
    for preset in PRESETS.iter().filter(|preset| preset.name.starts_with("atc25")) {
        let count = generate(&preset.workload()).count();
        assert!((45_000..60_000).contains(&count), "{}: {count}", preset.name);
    }
}

#[test]
fn lying_labels_change_nothing_but_labels() {
    let truth: Vec<_> = generate(&preset("atc25-exponential")).collect();
    let bare =
        |request: &TraceRequest| TraceRequest { request_type: 0, turn: 0, ..request.clone() };
    let half = preset("atc25-exponential").duration.expect("it has one") / 2;
    for name in ["atc25-wrong-labels", "atc25-swapped-labels"] {
        let lying: Vec<_> = generate(&preset(name)).collect();
        assert!(truth.iter().map(bare).eq(lying.iter().map(bare)), "{name}");
        let same = |(a, b): &(&TraceRequest, &TraceRequest)| {
            (a.request_type, a.turn) == (b.request_type, b.turn)
        };
        let both = || truth.iter().zip(&lying);
        let is_early =
            |pair: &(&TraceRequest, &TraceRequest)| Duration::from_nanos(pair.0.arrival.0) < half;
        let early = both().filter(is_early);
        let late = both().filter(|pair| !is_early(pair));
        let share = |same: usize, of: usize| same as f64 / of as f64;
        let kept_late = share(late.clone().filter(same).count(), late.count());
        let kept_early = share(early.clone().filter(same).count(), early.count());
        let expected = if name == "atc25-wrong-labels" { 0.12 } else { 1.0 };
        near(name, kept_early, expected, 0.1);
        assert!(kept_late < 0.25, "{name}: {kept_late}");
    }
}

#[test]
fn random_labels_say_nothing_of_what_follows() {
    let requests: Vec<_> = generate(&thinned("atc25-wrong-labels", 1)).collect();
    let mut by_label: HashMap<(u16, u16), (u32, u32)> = HashMap::new();
    for session in ended(&requests) {
        for (index, request) in session.iter().enumerate() {
            let label = (request.request_type, request.turn.min(4));
            let counts = by_label.entry(label).or_default();
            counts.0 += 1;
            counts.1 += u32::from(index + 1 < session.len());
        }
    }
    let all = by_label.values().fold((0, 0), |sum, c| (sum.0 + c.0, sum.1 + c.1));
    let mean = f64::from(all.1) / f64::from(all.0);
    for (label, (count, next)) in by_label {
        let error = 4.5 * (0.25 / f64::from(count)).sqrt();
        near(&format!("{label:?}"), f64::from(next) / f64::from(count), mean, error);
    }
}

#[test]
fn drift_moves_behaviour_between_classes() {
    let mut workload = thinned("atc25-drift", 1);
    conversations_mut(&mut workload).changes_at = vec![0.5];
    let change_s = workload.nominal_duration().as_secs_f64() / 2.0;
    let requests: Vec<_> = generate(&workload).collect();
    // (went on, requests) of text's first turn, before the change and after.
    let mut counts = [(0u32, 0u32); 2];
    for session in ended(&requests).iter().filter(|session| session[0].request_type == 1) {
        let period = &mut counts[usize::from(seconds(session[0]) >= change_s)];
        period.0 += u32::from(num_turns(session) > 1);
        period.1 += 1;
    }
    let p = counts.map(|(next, count)| f64::from(next) / f64::from(count));
    near("before", p[0], 0.45, 0.03);
    let steps = conversations(&workload).types.iter().flat_map(|kind| &kind.steps);
    let others: Vec<f64> = steps.skip(1).map(|step| step.p_next).collect();
    let is_another = others.iter().any(|other| (other - p[1]).abs() < 0.03);
    assert!(is_another && (p[0] - p[1]).abs() > 0.04, "{p:?}");
}
