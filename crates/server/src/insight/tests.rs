use headstart_core::block::{Namespace, RouteHasher, RouteIdentity};
use headstart_core::{Rng, Tier, TokenId};
use headstart_router::{Candidate, Prompt, PromptKeys, ReservationId};

use super::*;

const SIZE: u32 = 16;

/// An `Insight` whose batches are so long, and the requests under way.
struct Bench {
    insight: Arc<Insight>,
    metrics: Metrics,
    under_way: Vec<Observation>,
}

impl Bench {
    fn new(batch_ops: usize) -> Self {
        let metrics = Metrics::new();
        let mut insight = Insight::new(5, metrics.with_insight());
        insight.batch_ops = batch_ops;
        Self { insight: Arc::new(insight), metrics, under_way: Vec::new() }
    }

    /// All that can be asked, but for what goes by the wall clock.
    fn told(&self, now: Nanos) -> String {
        let records = self.insight.recent(1_000).into_iter().map(|record| {
            let mut record = RequestRecord::clone(&record);
            record.at_unix_s = 0.0;
            record
        });
        let records: Vec<_> = records.collect();
        self.insight.refresh(&self.metrics, now);
        let ghosts = self.insight.ghosts(now);
        let metrics = self.metrics.render();
        let metrics = metrics.lines().filter(|line| line.contains("prompt_tokens"));
        let metrics: Vec<_> = metrics.collect();
        let snapshot = self.insight.snapshot();
        format!("{records:#?}\n{snapshot:#?}\n{ghosts:#?}\n{metrics:#?}")
    }

    fn arrive(&mut self, tokens: &[TokenId], salt: Option<&str>, chosen: usize, now: Nanos) {
        let namespace = Namespace { adapter: None, salt };
        let hashers = [hasher()];
        let keys = PromptKeys::new(Prompt { tokens, namespace, ..Prompt::default() }, &hashers);
        let candidate = |replica: u32| Candidate {
            replica: ReplicaId(replica),
            overlap_tokens: replica as usize * 32 % (tokens.len() + 1),
            prefill_tokens: 0,
            score: 1.0,
            ttft_s: 0.25,
        };
        let decision = Decision {
            replica: ReplicaId(chosen as u32),
            overlap_tokens: 0,
            tier_tokens: TierTokens::default(),
            prompt_tokens: tokens.len(),
            candidates: (0..3).map(candidate).collect(),
            reservation: ReservationId(0),
        };
        let request = RouteRequest {
            tokens: Some(tokens),
            keys: Some(&keys),
            namespace,
            now,
            ..RouteRequest::default()
        };
        let capacity_blocks = (chosen == 1).then_some(50);
        self.under_way.extend(self.insight.arrive(&decision, &request, capacity_blocks));
    }

    fn finish(&mut self, at: usize, id: &str, found: Option<usize>, now: Nanos) {
        let mut observation = self.under_way.swap_remove(at);
        if let Some(found) = found {
            observation.serve_somewhere(found);
        }
        let answered = AnswerFacts {
            id: Some(id),
            request_id: None,
            model: ["m", "n"][id.len() % 2],
            ttft_s: Some(0.125),
        };
        observation.finish(&answered, None, now);
    }
}

fn hasher() -> RouteHasher {
    RouteHasher::new(&RouteIdentity { model: "m", block_size: SIZE })
}

/// Whatever is said in whatever order, it comes to the same whether each thing is looked at by
/// itself, some together, or all at the end.
#[test]
fn batches_come_to_what_one_after_the_other_does() {
    let mut rng = Rng::new(11);
    let texts: Vec<Vec<TokenId>> = (0..12)
        .map(|_| {
            let length = rng.below(200);
            (0..length).map(|_| rng.below(9_000) as TokenId).collect()
        })
        .collect();
    let mut benches = [1, 7, batch::OPS, usize::MAX].map(Bench::new);
    for step in 0..3_000u64 {
        let now = Nanos(step * 20_000_000);
        let draw = rng.next_u64() as usize;
        let mut tokens = texts[draw % 12].clone();
        tokens.extend(&texts[draw / 12 % 12][..texts[draw / 12 % 12].len() / 3]);
        let salt = [None, Some("s")][draw / 200 % 2];
        let chosen = draw / 1_000 % 3;
        let replica = ReplicaId(chosen as u32);
        let what = draw / 5_000 % 20;
        for bench in &mut benches {
            let at = draw / 100_000 % bench.under_way.len().max(1);
            match what {
                0..6 => bench.arrive(&tokens, salt, chosen, now),
                6..9 if !bench.under_way.is_empty() => {
                    bench.under_way[at].computed(now);
                }
                9..13 if !bench.under_way.is_empty() => {
                    let found = (!draw.is_multiple_of(3)).then_some(draw / 7 % (tokens.len() + 1));
                    bench.finish(at, &format!("r{step}"), found, now);
                }
                13 if !bench.under_way.is_empty() => {
                    drop(bench.under_way.swap_remove(at));
                }
                14..18 => {
                    let namespace = Namespace { adapter: None, salt };
                    let keys = hasher().chain(namespace, &tokens).into_iter();
                    let changes = keys.enumerate().map(|(block, key)| match block % 5 {
                        4 => BlockChange::Removed(key, Tier::Device),
                        _ => BlockChange::Stored(key, Tier::Device),
                    });
                    let changes: Vec<_> = changes.collect();
                    bench.insight.changed(replica, &changes, now);
                }
                18 if draw.is_multiple_of(5) => bench.insight.cleared(replica, now),
                18 if draw % 5 == 1 => bench.insight.set_models(replica, &[format!("{draw}")]),
                _ => {}
            }
        }
        if step % 1_000 == 999 {
            let told = benches.each_ref().map(|bench| bench.told(now));
            assert!(told.iter().all(|one| *one == told[0]), "{step}");
        }
    }
}
