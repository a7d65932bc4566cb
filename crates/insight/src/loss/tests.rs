use super::*;
use headstart_core::block::{Namespace, RouteHasher, RouteIdentity};
use headstart_core::{Rng, TokenId};

const SIZE: u32 = 16;
const NOW: Nanos = Nanos(1_000_000_000);

fn hasher() -> RouteHasher {
    RouteHasher::new(&RouteIdentity { model: "m", block_size: SIZE })
}

fn tokens(seed: u64, len: usize) -> Vec<TokenId> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.below(100_000) as TokenId).collect()
}

/// An attributor with the fleet around it.
struct Bench {
    attributor: Attributor,
    hasher: RouteHasher,
}

impl Bench {
    fn new() -> Self {
        let config = AttributorConfig { blocks: 1 << 12, tokens: 1 << 17, secret: 9 };
        Self { attributor: Attributor::new(&config), hasher: hasher() }
    }

    fn keys(&self, salt: Option<&str>, tokens: &[TokenId]) -> Vec<RouteKey> {
        let adapter = None;
        self.hasher.chain(Namespace { adapter, salt }, tokens)
    }

    fn arrive(
        &mut self,
        salt: Option<&str>,
        tokens: &[TokenId],
        replica: u32,
        overlaps: [u32; 2],
    ) -> Pending {
        let keys = self.keys(salt, tokens);
        let [first, second] = overlaps;
        let arrival = ArrivingRequest {
            replica: ReplicaId(replica),
            prompt_tokens: tokens.len() as u32,
            block_size: SIZE,
            keys: &keys,
            tokens: Some(tokens),
            namespace: salt.map_or(0, |salt| salt.len() as u64),
            overlaps: &[(ReplicaId(0), first), (ReplicaId(1), second)],
        };
        self.attributor.arrive(&arrival, NOW)
    }

    fn finish(&mut self, pending: Pending, served: u32) -> Vec<(Bucket, u32)> {
        let served = ServedTokens::by_device(served);
        let outcome = self.attributor.finish(pending, &served, NOW);
        outcome.split.iter().collect()
    }

    /// Computed on `replica`, whose events say so.
    fn store(&mut self, tokens: &[TokenId], replica: u32) {
        let pending = self.arrive(None, tokens, replica, [0, 0]);
        self.finish(pending, 0);
        for key in self.keys(None, tokens) {
            let replica = ReplicaId(replica);
            self.attributor.stored(replica, key, Tier::Device, NOW);
        }
    }
}

#[test]
fn what_is_new_was_never_seen_and_the_last_block_is_floor() {
    let mut bench = Bench::new();
    for (len, floor) in [(0, 0), (1, 1), (16, 16), (17, 1), (40, 8), (48, 16)] {
        let prompt = tokens(len, len as usize);
        let pending = bench.arrive(None, &prompt, 0, [0, 0]);
        let found = bench.finish(pending, 0);
        let new = len as u32 - floor;
        let expected = [(Bucket::BlockFloor, floor), (Bucket::NeverSeen, new)];
        let expected: Vec<_> = expected.into_iter().filter(|part| part.1 > 0).collect();
        assert_eq!(found, expected, "{len}");
    }
}

#[test]
fn what_is_served_comes_first_and_then_what_is_in_the_way() {
    let mut bench = Bench::new();
    let prompt = tokens(1, 100);
    bench.store(&prompt, 0);
    let pending = bench.arrive(None, &prompt, 0, [96, 0]);
    let served = ServedTokens { tiers: [32, 16, 0, 0], load_failed: 16 };
    let outcome = bench.attributor.finish(pending, &served, NOW);
    let expected = [
        (Bucket::Device, 32),
        (Bucket::Host, 16),
        (Bucket::LoadFailed, 16),
        (Bucket::BlockFloor, 4),
        (Bucket::IndexWrong, 32),
    ];
    assert_eq!(outcome.split.iter().collect::<Vec<_>>(), expected);
}

#[test]
fn a_prefix_that_is_being_computed_is_in_flight_wherever() {
    let mut bench = Bench::new();
    let prompt = tokens(2, 65);
    let mut first = bench.arrive(None, &prompt, 0, [0, 0]);
    for replica in [0, 1] {
        // The index assumes that the chosen one holds it.
        let second = bench.arrive(None, &prompt, replica, [64, 0]);
        let found = bench.finish(second, 0);
        assert_eq!(found, [(Bucket::BlockFloor, 1), (Bucket::InFlight, 64)]);
    }
    bench.attributor.computed(&mut first, NOW);
    let third = bench.arrive(None, &prompt, 0, [64, 0]);
    let found = bench.finish(third, 0);
    assert_eq!(found, [(Bucket::BlockFloor, 1), (Bucket::IndexWrong, 64)]);
}

#[test]
fn what_is_given_up_is_computed_no_more() {
    let mut bench = Bench::new();
    let prompt = tokens(3, 65);
    let first = bench.arrive(None, &prompt, 0, [0, 0]);
    let twin = bench.arrive(None, &prompt, 1, [0, 0]);
    bench.attributor.abandon(&first);
    let third = bench.arrive(None, &prompt, 0, [0, 0]);
    assert_eq!(bench.finish(third, 0)[1], (Bucket::InFlight, 64));
    bench.attributor.abandon(&twin);
    let other = tokens(4, 65);
    for salt in [None, None, Some("s"), None] {
        // However often it is retried: it was never computed, so it was never seen.
        let first = bench.arrive(salt, &other, 0, [0, 0]);
        bench.attributor.abandon(&first);
    }
    // Not even where the index believed that it was to come.
    let hopeful = bench.arrive(None, &other, 0, [64, 0]);
    bench.attributor.abandon(&hopeful);
    let again = bench.arrive(None, &other, 0, [0, 0]);
    let found = bench.finish(again, 0);
    assert_eq!(found, [(Bucket::BlockFloor, 1), (Bucket::NeverSeen, 64)]);
}

/// More at once than can be counted, of which some give up: in flight as long as anybody computes.
#[test]
fn many_may_compute_a_block_at_once() {
    let mut bench = Bench::new();
    let prompt = tokens(10, 65);
    let crowd: Vec<_> = (0..300).map(|_| bench.arrive(None, &prompt, 0, [0, 0])).collect();
    let is_computed = |bench: &mut Bench| {
        let twin = bench.arrive(None, &prompt, 1, [0, 0]);
        let found = twin.runs().any(|(_, bucket)| bucket == Bucket::InFlight);
        bench.attributor.abandon(&twin);
        found
    };
    let (last, others) = crowd.split_first().expect("there are some");
    for one in others {
        assert!(is_computed(&mut bench));
        bench.attributor.abandon(one);
    }
    assert!(is_computed(&mut bench));
    bench.attributor.abandon(last);
    assert!(!is_computed(&mut bench));
}

#[test]
fn what_ended_a_block_is_told_apart() {
    let prompt = tokens(5, 65);
    let check = |end: &dyn Fn(&mut Bench), chosen: u32, overlaps: [u32; 2], bucket: Bucket| {
        let mut bench = Bench::new();
        bench.store(&prompt, 0);
        end(&mut bench);
        let pending = bench.arrive(None, &prompt, chosen, overlaps);
        let found = bench.finish(pending, 0);
        let mut expected = vec![(Bucket::BlockFloor, 1), (bucket, 64)];
        expected.sort();
        assert_eq!(found, expected);
    };
    let remove = |bench: &mut Bench| {
        for key in bench.keys(None, &tokens(5, 65)) {
            bench.attributor.removed(ReplicaId(0), key, Tier::Device);
        }
    };
    let clear = |bench: &mut Bench| bench.attributor.cleared(ReplicaId(0));
    check(&|_| {}, 0, [64, 0], Bucket::IndexWrong);
    check(&|_| {}, 1, [64, 0], Bucket::HeldElsewhere);
    // The index was asked about its holder, and does not know it: its removal was not heard of.
    check(&|_| {}, 1, [0, 0], Bucket::Evicted);
    check(&|_| {}, 0, [0, 0], Bucket::Evicted);
    check(&remove, 1, [0, 0], Bucket::Evicted);
    check(&clear, 1, [0, 0], Bucket::Reset);
    check(&clear, 0, [0, 0], Bucket::Reset);
    let removed_before = |bench: &mut Bench| {
        remove(bench);
        clear(bench);
    };
    check(&removed_before, 0, [0, 0], Bucket::Evicted);
    let stored_since = |bench: &mut Bench| {
        clear(bench);
        bench.store(&tokens(5, 65), 0);
    };
    check(&stored_since, 1, [0, 0], Bucket::Evicted);
    check(&stored_since, 1, [64, 0], Bucket::HeldElsewhere);
    let clear_other = |bench: &mut Bench| bench.attributor.cleared(ReplicaId(1));
    check(&clear_other, 1, [64, 0], Bucket::HeldElsewhere);
}

#[test]
fn an_eviction_says_how_long_ago_and_how_much_came_since() {
    let mut bench = Bench::new();
    let prompt = tokens(6, 65);
    bench.store(&prompt, 0);
    bench.store(&tokens(7, 160), 0);
    for key in bench.keys(None, &prompt) {
        bench.attributor.removed(ReplicaId(0), key, Tier::Device);
    }
    let keys = bench.keys(None, &prompt);
    let arrival = ArrivingRequest {
        replica: ReplicaId(0),
        prompt_tokens: 65,
        block_size: SIZE,
        keys: &keys,
        tokens: None,
        namespace: 0,
        overlaps: &[],
    };
    let later = Nanos(NOW.0 + 7_000_000_000);
    let pending = bench.attributor.arrive(&arrival, later);
    let outcome = bench.attributor.finish(pending, &ServedTokens::default(), later);
    let evicted = outcome.evicted.expect("it was evicted");
    assert_eq!(evicted.age.as_secs(), 7);
    assert!((10..=13).contains(&evicted.blocks_since), "{evicted:?}");
}

#[test]
fn another_salt_is_a_namespace_and_another_front_a_divergence() {
    let mut bench = Bench::new();
    let prompt = tokens(8, 641);
    bench.store(&prompt, 0);
    let salted = bench.arrive(Some("s"), &prompt, 0, [0, 0]);
    let found = bench.finish(salted, 0);
    assert_eq!(found, [(Bucket::BlockFloor, 1), (Bucket::Namespace, 640)]);
    let mut shifted = tokens(9, 33);
    shifted.extend(&prompt);
    let pending = bench.arrive(None, &shifted, 0, [0, 0]);
    let split: Vec<_> = bench.finish(pending, 0);
    let diverged = split.iter().find(|part| part.0 == Bucket::Diverged);
    let diverged = diverged.expect("known contents").1;
    assert!((620..=655).contains(&diverged), "{split:?}");
}

/// Blocks that another model computed for the same tokens are not hits, nor held elsewhere.
#[test]
fn blocks_of_different_models_are_different_blocks() {
    let mut bench = Bench::new();
    bench.attributor.set_model(ReplicaId(0), 7);
    bench.attributor.set_model(ReplicaId(1), 8);
    let prompt = tokens(11, 65);
    bench.store(&prompt, 0);
    for (replica, bucket) in [(1, Bucket::Namespace), (0, Bucket::Evicted)] {
        let pending = bench.arrive(None, &prompt, replica, [0, 0]);
        let found = bench.finish(pending, 0);
        assert_eq!(found, [(Bucket::BlockFloor, 1), (bucket, 64)], "{replica}");
    }
}

/// A known text that ends in the middle of a block is known up to its end, however short the rest.
#[test]
fn the_border_of_what_is_known_may_stand_anywhere_in_a_block() {
    for rest in [1, 5, 9, 15] {
        let mut bench = Bench::new();
        let known = tokens(20, 320 + rest);
        bench.store(&[&known[..], &tokens(21, 320)].concat(), 0);
        let prompt = [&known[..], &tokens(22, 320)].concat();
        let pending = bench.arrive(None, &prompt, 0, [320, 0]);
        let split = bench.finish(pending, 320);
        let diverged = split.iter().find(|part| part.0 == Bucket::Diverged);
        let diverged = diverged.map_or(0, |part| part.1);
        // A border is off by half a spread, on either side.
        assert!(diverged.abs_diff(rest as u32) <= 8, "{rest}: {split:?}");
        assert!(rest < 9 || diverged > 0, "{rest}: {split:?}");
    }
}

/// Whatever is said, in whatever order, however contradictory: the buckets are the prompt.
#[test]
fn buckets_sum_to_the_prompt_whatever_is_said() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let config = AttributorConfig { blocks: 64, tokens: 512, secret: seed };
        let mut attributor = Attributor::new(&config);
        let texts: Vec<_> = (0..6).map(|seed| tokens(seed, 300)).collect();
        let mut pending: Vec<Pending> = Vec::new();
        for step in 0..400 {
            let now = Nanos(step * 1_000_000);
            let any = |rng: &mut Rng| match rng.below(4) {
                0 => 0,
                1 => u32::MAX,
                _ => rng.below(500) as u32,
            };
            let replica = ReplicaId([0, 1, 2, u32::MAX][rng.below(4)]);
            match rng.below(5) {
                0 | 1 => {
                    let cut = rng.below(300);
                    let mut prompt = texts[rng.below(6)][..cut].to_vec();
                    prompt.extend(&texts[rng.below(6)][cut / 2..]);
                    prompt.truncate(rng.below(400));
                    let size = [0, 1, 16, 1_000][rng.below(4)];
                    let keys = match rng.below(3) {
                        0 => vec![RouteKey(rng.next_u64()); rng.below(50)],
                        _ => hasher().chain(Namespace::default(), &prompt),
                    };
                    let overlaps = [(ReplicaId(0), any(&mut rng)), (ReplicaId(7), any(&mut rng))];
                    let arrival = ArrivingRequest {
                        replica,
                        prompt_tokens: match rng.below(8) {
                            0 => rng.below(1_000) as u32,
                            _ => prompt.len() as u32,
                        },
                        block_size: size,
                        keys: &keys,
                        tokens: (rng.below(4) > 0).then_some(&prompt),
                        namespace: rng.below(3) as u64,
                        overlaps: &overlaps[..rng.below(3)],
                    };
                    pending.push(attributor.arrive(&arrival, now));
                }
                2 | 3 if !pending.is_empty() => {
                    let one = pending.swap_remove(rng.below(pending.len()));
                    let prompt = one.prompt_tokens;
                    let mut served = ServedTokens::default();
                    served.tiers = served.tiers.map(|_| any(&mut rng));
                    served.load_failed = any(&mut rng);
                    let outcome = attributor.finish(one, &served, now);
                    assert_eq!(outcome.split.total(), u64::from(prompt), "seed {seed}");
                    assert!((0.0..=1.0).contains(&outcome.certainty), "seed {seed}");
                }
                _ => match rng.below(3) {
                    0 => attributor.cleared(replica),
                    1 => attributor.stored(replica, RouteKey(step), Tier::Host, now),
                    _ => attributor.removed(replica, RouteKey(step / 2), Tier::Host),
                },
            }
        }
    }
}

/// Counters come round after 2³² blocks: a reset that is long past must not come back.
#[test]
fn a_reset_is_forgotten_before_its_counter_comes_round() {
    let mut bench = Bench::new();
    let prompt = tokens(31, 65);
    bench.store(&prompt, 0);
    bench.attributor.cleared(ReplicaId(0));
    for (stored, bucket) in [
        (0, Bucket::Reset),
        (1 << 29, Bucket::Evicted),
        (1 << 30, Bucket::Evicted),
        (1 << 30, Bucket::Evicted),
    ] {
        bench.attributor.replicas[0].advance(stored);
        let pending = bench.arrive(None, &prompt, 0, [0, 0]);
        let found = bench.finish(pending, 0);
        let expected = [(Bucket::BlockFloor, 1), (bucket, 64)];
        assert_eq!(found, expected, "{stored} blocks later");
    }
    assert_eq!(bench.attributor.replicas[0].reset_at, None);
}
