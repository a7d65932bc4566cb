//! The live attribution against the truth.

use std::time::Duration;

use headstart_insight::Bucket;
use headstart_insight::loss::AttributorConfig;
use headstart_sim::explained::verdicts::Verdicts;
use headstart_sim::explained::world::{World, WorldConfig};

fn check(name: &str, config: WorldConfig, rare: f64, right: f64) {
    let verdicts = World::new(config).run();
    let found = verdicts.right();
    assert!(
        found >= right,
        "{name}: {found:.4} right\n{}",
        table(&verdicts)
    );
    for bucket in Bucket::ALL {
        let share = verdicts.share(bucket);
        assert!(
            share >= rare,
            "{name}: {bucket} {share:.4}\n{}",
            table(&verdicts)
        );
    }
}

/// Rows are what tokens were, columns what was said.
fn table(verdicts: &Verdicts) -> String {
    let mut text = format!("{} requests, {:?}\n", verdicts.requests, verdicts.memory);
    for truth in Bucket::ALL {
        let row = verdicts.tokens[truth as usize];
        let share = verdicts.share(truth) * 100.0;
        text += &format!("{:>14} {share:5.2} % ", truth.name());
        for count in row {
            text += &format!("{count:>9}");
        }
        text += "\n";
    }
    text
}

#[test]
fn the_attribution_is_right_for_99_of_100_tokens() {
    for seed in [1, 2] {
        let config = WorldConfig {
            seed,
            sessions: 1_000,
            ..WorldConfig::default()
        };
        check(&format!("seed {seed}"), config, 0.005, 0.99);
    }
}

/// Where nothing is late, lost or reset, what is left are the borders of known contents.
#[test]
fn with_nothing_lost_nearly_all_is_right() {
    let config = WorldConfig {
        sessions: 500,
        event_delay: Duration::from_micros(1),
        lost_events: 0.0,
        resets: Duration::from_secs(1_000_000),
        ..WorldConfig::default()
    };
    check("nothing lost", config, 0.0, 0.996);
}

/// A memory of a tenth of the blocks forgets, says so, and still sums to the prompts.
#[test]
fn a_small_memory_forgets_and_says_so() {
    let config = WorldConfig {
        sessions: 300,
        memory: AttributorConfig {
            blocks: 1 << 11,
            anchors: 1 << 12,
            secret: 3,
        },
        ..WorldConfig::default()
    };
    let verdicts = World::new(config).run();
    let memory = verdicts.memory;
    assert!(
        memory.forgotten_blocks > 0 && memory.forgotten_anchors > 0,
        "{memory:?}"
    );
    assert!(verdicts.right() > 0.7, "{}", table(&verdicts));
}
