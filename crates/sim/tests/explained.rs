//! The live attribution against the truth.

use headstart_insight::Bucket;
use headstart_sim::explained::world::{Verdicts, World, WorldConfig};

/// Buckets of what was served by a lower tier: each is one replica's.
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
    for seed in [1] {
        let config = WorldConfig {
            seed,
            ..WorldConfig::default()
        };
        check(&format!("seed {seed}"), config, 0.01, 0.99);
    }
}
