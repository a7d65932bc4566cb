//! Behaviour of each kind of stream.

use std::collections::{HashMap, HashSet};

use headstart_core::{FinishKind, ToolClass};
use headstart_trace::synth::{Gap, Labels, Length, Opening, Stream};

use crate::measure::{
    Reuse, by_session, conversations, conversations_mut, generate, is_repeat, near, preset,
    seconds, shared,
};

#[test]
fn a_follow_up_begins_with_the_prompt_before_it() {
    let mut workload = preset("atc25-lognormal");
    for kind in &mut conversations_mut(&mut workload).types {
        (kind.rewrite, kind.repeat) = (0.0, 0.0);
    }
    workload.requests = Some(10_000);
    let requests: Vec<_> = generate(&workload).collect();
    let mut follow_ups = 0;
    for session in by_session(&requests) {
        for (index, pair) in session.windows(2).enumerate() {
            let (before, now) = (pair[0], pair[1]);
            let full = before.input_tokens.expect("known") / 16;
            assert_eq!(shared(&before.blocks, &now.blocks), full as usize);
            assert_eq!((before.turn, now.turn), (index as u16 + 1, index as u16 + 2));
            assert!(now.input_tokens > before.input_tokens);
            follow_ups += 1;
        }
    }
    assert!(follow_ups > 3_000, "{follow_ups}");
}

#[test]
fn a_rewritten_turn_keeps_its_opening() {
    let mut workload = preset("chat");
    let config = conversations_mut(&mut workload);
    config.opening.prompt = Length::fixed(160);
    (config.types[0].rewrite, config.types[0].repeat) = (0.5, 0.0);
    workload.requests = Some(10_000);
    let requests: Vec<_> = generate(&workload).collect();
    let (mut rewritten, mut follow_ups) = (0u32, 0u32);
    for session in by_session(&requests) {
        for pair in session.windows(2) {
            let full = pair[0].input_tokens.expect("known") as usize / 16;
            let kept = shared(&pair[0].blocks, &pair[1].blocks);
            assert!((10..=full).contains(&kept), "{kept} of {full}");
            rewritten += u32::from(kept < full);
            follow_ups += 1;
        }
    }
    // A cut inside the partial last block changes no full one.
    near("rewritten", f64::from(rewritten) / f64::from(follow_ups), 0.48, 0.05);
}

#[test]
fn a_request_sent_again_is_the_same_request() {
    let mut workload = preset("atc25-exponential");
    workload.requests = Some(20_000);
    let requests: Vec<_> = generate(&workload).collect();
    let mut repeats = 0;
    for session in by_session(&requests) {
        for pair in session.windows(2).filter(|pair| is_repeat(pair)) {
            assert_eq!(pair[0].input_tokens, pair[1].input_tokens);
            assert_eq!(pair[0].turn, pair[1].turn);
            repeats += 1;
        }
    }
    near("repeats", f64::from(repeats) / 20_000.0, 0.05, 0.01);
}

#[test]
fn forks_begin_off_a_prefix_of_a_running_session() {
    let mut workload = preset("agents");
    let Stream::Agents(config) = &mut workload.streams[0] else {
        panic!("no agents");
    };
    config.opening = Opening::prompts(1, 0.0, Length::fixed(1_600));
    workload.requests = Some(12_000);
    let generator = generate(&workload);
    assert_eq!(generator.info().types, ["unknown", "agent", "tool", "fork"]);
    let (mut seen, mut sessions) = (HashSet::new(), HashSet::new());
    let (mut counts, mut retries, mut forks) = ([0u32; 4], 0, 0);
    for request in generator {
        counts[usize::from(request.request_type)] += 1;
        let is_first = sessions.insert(request.session.expect("all have one"));
        let blocks = request.blocks.iter();
        let known = blocks.take_while(|id| seen.contains(id)).count();
        if is_first && request.request_type == 3 {
            assert!(known >= 100, "a fork has at least its opening: {known}");
            forks += 1;
            retries += u32::from(known > 100);
        } else if is_first && forks > 0 {
            assert_eq!(known, 100, "a new session has nothing but its opening");
        }
        seen.extend(request.blocks.iter());
    }
    let [_, agent, tool, fork] = counts;
    assert!(tool > 4 * agent && agent > 100 && fork > 4 * forks, "{counts:?}");
    near("retries", f64::from(retries) / f64::from(forks), 0.3, 0.08);
}

#[test]
fn bursts_are_dense_and_never_come_back() {
    let mut workload = preset("api");
    workload.requests = Some(20_000);
    let requests: Vec<_> = generate(&workload).collect();
    let reuse = Reuse::of(&requests);
    near("within 10 s", reuse.within(10.0), 1.0, 0.001);
    let longest = reuse.times.iter().copied().fold(0.0, f64::max);
    assert!(longest < 20.0, "{longest} s");
    assert!(by_session(&requests).iter().all(|session| session.len() == 1));
}

#[test]
fn users_share_system_prompts_and_come_back_to_their_own() {
    let mut workload = preset("shared-prompts");
    workload.requests = Some(20_000);
    let requests: Vec<_> = generate(&workload).collect();
    let mut popularity: HashMap<u64, u32> = HashMap::new();
    for session in by_session(&requests) {
        let first = session[0].blocks.iter().next().expect("a prompt");
        *popularity.entry(first).or_default() += 1;
    }
    let all: u32 = popularity.values().sum();
    let top = f64::from(popularity.values().copied().max().unwrap_or(0)) / f64::from(all);
    assert_eq!(popularity.len(), 50);
    // Zipf over 50 gives the first 22 %; 2,000 users drew their prompt once each.
    near("most popular", top, 0.22, 0.04);
}

#[test]
fn empirical_gaps_are_those_given_and_labels_true_by_default() {
    let mut workload = preset("chat");
    assert_eq!(conversations(&workload).labels, Labels::True);
    workload.set_gap(&Gap::Empirical(vec![5.0, 50.0]));
    workload.requests = Some(5_000);
    let requests: Vec<_> = generate(&workload).collect();
    let mut counts = [0u32; 2];
    for session in by_session(&requests) {
        for pair in session.windows(2) {
            // Arrivals are cut to milliseconds.
            let gap = seconds(pair[1]) - seconds(pair[0]);
            let index = [5.0, 50.0].iter().position(|&given| (gap - given).abs() < 0.002);
            counts[index.expect("one of the two")] += 1;
        }
    }
    let short = f64::from(counts[0]) / f64::from(counts[0] + counts[1]);
    // Some of the long ones fall behind the end.
    near("short gaps", short, 0.5, 0.05);
}

#[test]
fn each_tool_has_pauses_of_its_own() {
    let mut workload = preset("agents-tools");
    workload.requests = Some(20_000);
    let requests: Vec<_> = generate(&workload).collect();
    let mut pauses: HashMap<ToolClass, Vec<f64>> = HashMap::new();
    for session in by_session(&requests) {
        for pair in session.windows(2).filter(|pair| pair[0].tool != ToolClass::default()) {
            assert_eq!(pair[0].finish, FinishKind::ToolCalls);
            let pause_s = pair[1].arrival.since(pair[0].arrival).as_secs_f64();
            pauses.entry(pair[0].tool).or_default().push(pause_s);
        }
    }
    assert_eq!(pauses.len(), 6);
    let median_s = |name: &str| {
        let mut pauses = pauses[&ToolClass::of_names([name])].clone();
        pauses.sort_by(f64::total_cmp);
        pauses[pauses.len() / 2]
    };
    near("read_file", median_s("read_file"), 0.37, 0.05);
    near("run_tests", median_s("run_tests"), 40.4, 6.0);
    assert!(median_s("ask_user") > 80.0, "it waits for a person");
    let plain = preset("agents");
    assert!(generate(&plain).take(1_000).all(|request| request.tool == ToolClass::default()));
}
