//! Guarantees of conversations with a planted signal.

use headstart_core::Probability;
use headstart_trace::format::conversation::{self, Conversation, Role};
use headstart_trace::synth::Length;
use headstart_trace::synth::planted::{Attainable, PlantedConfig};

fn planted(conversations: u64, seed: u64, strength: f64) -> PlantedConfig {
    PlantedConfig {
        conversations,
        seed,
        strength,
        // No test here reads answers, and outcomes do not depend on them.
        answer: Length::fixed(1),
        ..PlantedConfig::default()
    }
}

fn generate(planted: &PlantedConfig) -> Vec<Conversation> {
    planted.generate().expect("valid").collect()
}

fn bytes(planted: &PlantedConfig) -> Vec<u8> {
    let mut out = Vec::new();
    for conversation in planted.generate().expect("valid") {
        conversation::write(&mut out, &conversation).expect("memory takes it");
    }
    out
}

/// Returns probability and outcome of every user turn whose outcome is known.
fn turns(conversations: &[Conversation]) -> Vec<(f64, bool)> {
    let of_one = |conversation: &Conversation| {
        let truth = conversation.truth.clone().into_iter();
        let labelled = truth.zip(conversation.labels());
        let known = labelled.filter_map(|(p, label)| Some((p.value(), label?)));
        known.collect::<Vec<_>>()
    };
    conversations.iter().flat_map(of_one).collect()
}

fn share(turns: &[(f64, bool)]) -> f64 {
    turns.iter().filter(|(_, label)| *label).count() as f64 / turns.len() as f64
}

/// FNV-1a, 64 bits.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[test]
fn equal_seeds_give_equal_bytes_and_others_do_not() {
    let one = bytes(&planted(50, 7, 1.0));
    assert_eq!(one, bytes(&planted(50, 7, 1.0)));
    assert_ne!(one, bytes(&planted(50, 8, 1.0)));
    // More conversations leave the first ones as they were.
    assert_eq!(one, bytes(&planted(60, 7, 1.0))[..one.len()]);
}

/// Benchmarks name conversations by their seed, so a seed's bytes must not change.
#[test]
fn the_bytes_are_pinned() {
    let all = PlantedConfig { conversations: 500, system_prompts: 3, ..PlantedConfig::default() };
    let got = fingerprint(&bytes(&all));
    assert_eq!(got, 0x9d68_157a_c710_d4ef, "the generator has changed");
}

#[test]
fn what_is_written_is_read_back() {
    let all = PlantedConfig { system_prompts: 2, max_turns: 3, ..planted(100, 3, 1.0) };
    let read = conversation::read("t", &bytes(&all)[..], None).expect("our own");
    assert_eq!(read, generate(&all));
}

#[test]
fn the_share_that_goes_on_is_the_one_asked_for() {
    for (base, strength) in [(0.55, 1.0), (0.35, 1.0), (0.08, 4.0), (0.8, 0.0)] {
        let all = PlantedConfig { base, max_turns: 60, ..planted(6000, 11, strength) };
        let turns = turns(&generate(&all));
        let got = share(&turns);
        // Turns of a conversation are alike, so the mean wanders more than its turns' number says.
        let tolerance = 8.0 * (base * (1.0 - base) / turns.len() as f64).sqrt();
        assert!((got - base).abs() < tolerance, "{base} {strength}: {got}");
    }
}

#[test]
fn outcomes_come_true_as_often_as_the_truth_says() {
    let turns = turns(&generate(&planted(8000, 12, 1.0)));
    for bin in 0..10 {
        let low = f64::from(bin) / 10.0;
        let of_bin = turns.iter().filter(|(p, _)| (low..low + 0.1).contains(p));
        let of_bin: Vec<_> = of_bin.copied().collect();
        if of_bin.len() < 100 {
            continue;
        }
        let count = of_bin.len() as f64;
        let expected = of_bin.iter().map(|(p, _)| p).sum::<f64>() / count;
        let tolerance = 4.0 * (expected * (1.0 - expected) / count).sqrt();
        let got = share(&of_bin);
        assert!((got - expected).abs() < tolerance, "{expected}: {got}");
    }
}

#[test]
fn without_strength_nothing_is_told() {
    let all = generate(&planted(300, 13, 0.0));
    let mut attainable = Attainable::default();
    for (p, label) in turns(&all) {
        assert!((p - 0.55).abs() < 1e-6, "{p}");
        attainable.add(Probability::new(p).expect("a number"), label);
    }
    assert_eq!(attainable.best_mcc(), 0.0);
}

/// The table of the module's documentation.
#[test]
fn strength_fixes_what_can_be_attained() {
    let table = [(0.25, 0.22), (0.5, 0.41), (1.0, 0.64), (2.0, 0.74), (4.0, 0.74)];
    for (strength, expected) in table {
        let mut attainable = Attainable::default();
        for (p, label) in turns(&generate(&planted(10_000, 14, strength))) {
            attainable.add(Probability::new(p).expect("a number"), label);
        }
        let got = attainable.best_mcc();
        assert!((got - expected).abs() < 0.02, "{strength}: {got}");
    }
}

#[test]
fn a_conversation_has_as_many_turns_as_its_outcomes_said() {
    let all = PlantedConfig { max_turns: 4, system_prompts: 2, ..planted(2000, 15, 1.0) };
    let conversations = generate(&all);
    for conversation in &conversations {
        let roles: Vec<Role> = conversation.turns.iter().map(|turn| turn.role).collect();
        let mut expected = vec![Role::System];
        for _ in &conversation.truth {
            expected.extend([Role::User, Role::Assistant]);
        }
        assert_eq!(roles, expected);
        assert!(conversation.truth.len() <= 4);
        assert!(!conversation.is_truncated || conversation.truth.len() == 4);
        let prompts = conversation.turns.iter().all(|turn| !turn.text.is_empty());
        assert!(prompts, "{conversation:?}");
    }
    // Some are cut, and some end at the longest length by themselves.
    let longest = conversations.iter().filter(|c| c.truth.len() == 4);
    let (cut, ended): (Vec<_>, Vec<_>) = longest.partition(|c| c.is_truncated);
    assert!(cut.len() > 50 && ended.len() > 50);
    let openings = conversations.iter().map(|c| &c.turns[0].text);
    let openings: std::collections::BTreeSet<_> = openings.collect();
    assert_eq!(openings.len(), 2);
}

/// The subject of a conversation alone predicts nothing.
#[test]
fn the_subject_alone_tells_nothing() {
    let conversations = generate(&planted(20_000, 16, 4.0));
    // The first turns only, as those are drawn independently of one another.
    let first = |c: &Conversation| turns(std::slice::from_ref(c)).first().copied();
    let all: Vec<_> = conversations.iter().filter_map(first).collect();
    for topic in ["sourdough bread", "recursion", "time travel", "index funds"] {
        let is_about = |c: &&Conversation| c.turns[1].text.to_lowercase().contains(topic);
        let about = conversations.iter().filter(is_about);
        let about: Vec<_> = about.filter_map(first).collect();
        assert!(about.len() > 100, "{topic}");
        let (got, expected) = (share(&about), share(&all));
        let tolerance = 4.0 * (0.25 / about.len() as f64).sqrt();
        assert!((got - expected).abs() < tolerance, "{topic}: {got}");
    }
}

#[test]
fn lengths_follow_the_means_asked_for() {
    let mut all = PlantedConfig { conversations: 500, seed: 17, ..PlantedConfig::default() };
    all.prompt.mean = 80.0;
    all.answer.mean = 300.0;
    let conversations = generate(&all);
    let mean = |role: Role| {
        let texts = conversations.iter().flat_map(|c| &c.turns);
        let texts = texts.filter(|turn| turn.role == role);
        let words: Vec<usize> = texts.map(|turn| turn.text.split_whitespace().count()).collect();
        words.iter().sum::<usize>() as f64 / words.len() as f64
    };
    let (prompt, answer) = (mean(Role::User), mean(Role::Assistant));
    assert!((68.0..88.0).contains(&prompt), "{prompt}");
    assert!((290.0..325.0).contains(&answer), "{answer}");
}

#[test]
fn impossible_parameters_are_named() {
    let check = |planted: PlantedConfig, part: &str| {
        let error = planted.generate().expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    };
    check(planted(1, 1, -1.0), "strength -1");
    check(planted(1, 1, f64::NAN), "strength NaN");
    let with_base = |base| PlantedConfig { base, ..PlantedConfig::default() };
    check(with_base(0.0), "base 0: expected a share");
    let mut long = PlantedConfig::default();
    long.answer.sigma = 9.0;
    check(long, "sigma from 0 to 5");
}
