use super::*;
use headstart_cache::policy::{Setting, by_name};
use headstart_core::Rng;

const POLICIES: [&str; 4] = ["lru", "lfu", "importance", "importance:half-life=9.7"];

/// A part as one would explain it.
#[derive(Clone, Debug)]
struct Known {
    name: PartName,
    level: usize,
    /// Its uses: the number of each among all uses, and the share that mattered.
    uses: Vec<(u64, f64)>,
}

/// The cache as lists that are searched from end to end.
struct Model {
    policy: &'static str,
    capacities: Vec<usize>,
    parts: Vec<Known>,
    holds: Vec<PartName>,
    num_uses: u64,
}

impl Model {
    /// Returns the part's worth and its last use; the lowest goes first.
    fn worth(&self, part: &Known) -> (f64, u64) {
        let share = |(at, share): &(u64, f64)| match self.policy {
            "lru" => 0.0,
            "lfu" => 1.0,
            "importance" => *share,
            _ => share * (*at as f64 / 9.7).exp2(),
        };
        let last = part.uses.last().expect("a part comes in by a use");
        (part.uses.iter().map(share).sum(), last.0)
    }

    /// Makes room in a level, if that can be, but not by `in_use`.
    fn make_room(&mut self, level: usize, in_use: &[PartName], gone: &mut Vec<PartName>) -> bool {
        let here = |part: &&Known| part.level == level;
        if self.parts.iter().filter(here).count() < self.capacities[level] {
            return true;
        }
        let may_go = |part: &&Known| {
            here(part) && !in_use.contains(&part.name) && !self.holds.contains(&part.name)
        };
        let candidates = self.parts.iter().filter(may_go);
        let least = candidates.min_by(|one, other| {
            let [one, other] = [one, other].map(|part| self.worth(part));
            one.0.total_cmp(&other.0).then(one.1.cmp(&other.1))
        });
        let Some(victim) = least.map(|part| part.name) else {
            return false;
        };
        let mut below = level + 1..self.capacities.len();
        let below = below.find(|&below| self.make_room(below, in_use, gone));
        let at = self.at(victim).expect("it is there");
        match below {
            Some(below) => self.parts[at].level = below,
            None => {
                self.parts.remove(at);
                gone.push(victim);
            }
        }
        true
    }

    fn at(&self, name: PartName) -> Option<usize> {
        self.parts.iter().position(|part| part.name == name)
    }

    fn used(&mut self, parts: &[(PartName, f32)]) -> Vec<PartName> {
        let known = |(name, _): &(PartName, f32)| self.at(*name).map(|_| *name);
        let mut in_use: Vec<_> = parts.iter().filter_map(known).collect();
        let mut gone = Vec::new();
        for &(name, share) in parts {
            let before = self.at(name).map(|at| self.parts.remove(at));
            // Without its place in the list it leaves room where it was.
            let most = before.as_ref().map_or(self.capacities.len(), |part| part.level);
            let room = (0..most).find(|&level| self.make_room(level, &in_use, &mut gone));
            let level = room.or(before.as_ref().map(|part| part.level));
            let Some(level) = level else {
                gone.push(name);
                continue;
            };
            self.num_uses += 1;
            in_use.push(name);
            let mut uses = before.map_or(Vec::new(), |part| part.uses);
            uses.push((self.num_uses, f64::from(share)));
            self.parts.push(Known { name, level, uses });
        }
        gone.retain(|name| self.at(*name).is_none() && !self.holds.contains(name));
        gone.sort();
        gone
    }
}

const TIERS: [Tier; 3] = [Tier::Device, Tier::Host, Tier::Disk];

fn compare(policy: &'static str, seed: u64) -> PartCounts {
    let mut rng = Rng::new(seed);
    let levels: Vec<_> =
        TIERS[..1 + rng.below(3)].iter().map(|&tier| (tier, rng.below(6))).collect();
    let mut cache = PartCache::new(&levels, |capacity| {
        let setting = Setting { capacity, block_tokens: 16 };
        by_name(policy, setting).expect("a known policy")
    });
    let mut model = Model {
        policy,
        capacities: levels.iter().map(|(_, capacity)| *capacity).collect(),
        parts: Vec::new(),
        holds: Vec::new(),
        num_uses: 0,
    };
    let name = |rng: &mut Rng| PartName {
        record: BlockHash::from_u64(rng.below(6) as u64),
        part: rng.below(4) as u16,
    };
    for step in 0..200 {
        let place = format!("{policy}, seed {seed}, step {step}");
        match rng.below(10) {
            0..=5 => {
                let mut parts: Vec<(PartName, f32)> = Vec::new();
                for _ in 0..1 + rng.below(5) {
                    let part = name(&mut rng);
                    if parts.iter().all(|(name, _)| *name != part) {
                        parts.push((part, rng.next_f64() as f32));
                    }
                }
                let released = cache.used(&parts, Nanos(step));
                assert_eq!(released, model.used(&parts), "{place}");
            }
            6 if model.holds.len() < 5 => {
                let part = name(&mut rng);
                cache.hold(part);
                model.holds.push(part);
            }
            7 | 8 if !model.holds.is_empty() => {
                let at = rng.below(model.holds.len());
                let part = model.holds.swap_remove(at);
                let is_needed = model.at(part).is_some() || model.holds.contains(&part);
                assert_eq!(cache.let_go(part), (!is_needed).then_some(part), "{place}");
            }
            _ if rng.below(3) == 0 => {
                let record = BlockHash::from_u64(rng.below(6) as u64);
                let mut gone = Vec::new();
                model.parts.retain(|part| {
                    let is_gone = part.name.record == record;
                    gone.extend(
                        (is_gone && !model.holds.contains(&part.name)).then_some(part.name),
                    );
                    !is_gone
                });
                gone.sort();
                assert_eq!(cache.forget(record), gone, "{place}");
            }
            _ => {
                let part = name(&mut rng);
                let is_held = model.holds.contains(&part);
                let known = model.at(part).map(|at| model.parts.remove(at));
                let gone = known.filter(|_| !is_held).map(|known| known.name);
                assert_eq!(cache.forget_part(part), gone, "{place}");
            }
        }
        cache.check();
        let found: BTreeMap<_, _> =
            cache.names.keys().map(|&name| (name, cache.find(name))).collect();
        let expected = model.parts.iter().map(|part| (part.name, Some(TIERS[part.level])));
        assert_eq!(found, expected.collect(), "{place}");
    }
    cache.counts()
}

#[test]
fn keeps_what_the_lists_keep() {
    for policy in POLICIES {
        let (mut hits, mut evictions, mut not_kept) = (0, 0, 0);
        for seed in 0..400 {
            let counts = compare(policy, seed);
            hits += counts.levels.iter().map(|level| level.hits).sum::<u64>();
            evictions += counts.levels.iter().map(|level| level.evictions).sum::<u64>();
            not_kept += counts.not_kept;
        }
        let is_much = hits.min(evictions).min(not_kept) > 5_000;
        assert!(is_much, "{policy}: {hits} {evictions} {not_kept}");
    }
}

fn part(number: u64) -> PartName {
    PartName { record: BlockHash::from_u64(number), part: 1 }
}

fn lru(levels: &[(Tier, usize)]) -> PartCache {
    PartCache::new(levels, |slots| Box::new(headstart_cache::policy::Lru::new(slots)))
}

#[test]
fn victims_move_down_and_uses_move_up() {
    let mut cache = lru(&[(Tier::Device, 1), (Tier::Host, 1)]);
    assert_eq!(cache.used(&[(part(1), 1.0)], Nanos(1)), []);
    assert_eq!(cache.used(&[(part(2), 1.0)], Nanos(2)), []);
    assert_eq!(cache.find(part(1)), Some(Tier::Host));
    assert_eq!(cache.used(&[(part(1), 1.0)], Nanos(3)), [], "they change places");
    assert_eq!(cache.find(part(2)), Some(Tier::Host));
    assert_eq!(cache.used(&[(part(3), 1.0)], Nanos(4)), [part(2)]);
    let counts = cache.counts();
    assert_eq!((counts.misses, counts.not_kept), (3, 0));
    let hits: Vec<_> = counts.levels.iter().map(|level| level.hits).collect();
    assert_eq!(hits, [0, 1]);
    let evictions: Vec<_> = counts.levels.iter().map(|level| level.evictions).collect();
    assert_eq!(evictions, [3, 1]);
}

#[test]
fn what_cannot_be_kept_is_released_once_nobody_holds_it() {
    let mut none = lru(&[(Tier::Device, 0)]);
    assert_eq!(none.used(&[(part(1), 1.0)], Nanos(0)), [part(1)]);
    let mut cache = lru(&[(Tier::Device, 1)]);
    cache.hold(part(1));
    cache.hold(part(2));
    assert_eq!(cache.used(&[(part(1), 1.0)], Nanos(1)), []);
    assert_eq!(cache.used(&[(part(2), 1.0)], Nanos(2)), [], "it is held");
    assert_eq!(cache.find(part(2)), None, "1 is held as well");
    assert_eq!(cache.let_go(part(2)), Some(part(2)));
    assert_eq!(cache.forget(part(1).record), [], "held");
    assert_eq!(cache.let_go(part(1)), Some(part(1)));
    cache.check();
}
