use super::*;
use headstart_core::Rng;
use std::slice;

const UNIT_TOKENS: usize = 4;

fn options() -> NodeOptions {
    NodeOptions {
        unit_tokens: UNIT_TOKENS,
        interval: Duration::from_nanos(10),
        least_uses: 1,
        ..NodeOptions::default()
    }
}

/// Units of a tree: a unit's name says which path leads to it.
fn path(steps: &[u64]) -> Vec<BlockHash> {
    let name = |name: &mut u64, step: &u64| {
        *name = *name * 5 + step;
        Some(BlockHash::from_u64(*name))
    };
    steps.iter().scan(1, name).collect()
}

/// A tracked unit as one would explain it: a path, and what is known of its end.
#[derive(Clone)]
struct Known {
    path: Vec<BlockHash>,
    is_end: bool,
    last_use: usize,
    uses: u32,
    packing: Option<(usize, usize)>,
    /// By layer and token: times selected, and whether packed.
    counts: BTreeMap<(usize, usize), (u8, bool)>,
}

/// All tracked units in a list.
struct Model {
    options: NodeOptions,
    units: Vec<Known>,
    num_requests: usize,
    num_packings: usize,
    next_look: u64,
}

impl Model {
    fn at(&self, path: &[BlockHash]) -> Option<usize> {
        self.units.iter().position(|unit| unit.path == path)
    }

    fn children(&self, path: &[BlockHash]) -> Vec<&Known> {
        let is_child =
            |unit: &&Known| unit.path.len() == path.len() + 1 && unit.path.starts_with(path);
        self.units.iter().filter(is_child).collect()
    }

    fn used(&mut self, units: &[BlockHash]) {
        self.num_requests += 1;
        for end in 1..=units.len() {
            let path = &units[..end];
            if self.at(path).is_none() {
                if self.units.len() == self.options.most_units && !self.forget() {
                    return;
                }
                self.units.push(Known {
                    path: path.to_vec(),
                    is_end: false,
                    last_use: 0,
                    uses: 0,
                    packing: None,
                    counts: BTreeMap::new(),
                });
            }
            let at = self.at(path).expect("it is tracked");
            self.units[at].last_use = self.num_requests;
            self.units[at].uses += 1;
        }
        if let Some(at) = self.at(units) {
            self.units[at].is_end |= !self.children(units).is_empty();
        }
    }

    fn forget(&mut self) -> bool {
        let leaves = self.units.iter().filter(|unit| self.children(&unit.path).is_empty());
        let coldest = leaves.min_by_key(|unit| unit.last_use).expect("it is full");
        if coldest.last_use == self.num_requests {
            return false;
        }
        let path = coldest.path.clone();
        self.units.retain(|unit| unit.path != path);
        let parent = &path[..path.len() - 1];
        if let Some(at) = self.at(parent) {
            self.units[at].is_end &= !self.children(parent).is_empty();
        }
        true
    }

    fn selected(&mut self, units: &[BlockHash], layer: usize, tokens: &[u32]) {
        for token in tokens {
            let unit = *token as usize / UNIT_TOKENS;
            let Some(at) = self.at(&units[..=unit]) else {
                continue;
            };
            let counts = &mut self.units[at].counts;
            let place = (layer, *token as usize % UNIT_TOKENS);
            if counts.get(&place).is_some_and(|(count, _)| *count == 127) {
                let of_layer = counts.iter_mut().filter(|((one, _), _)| *one == layer);
                of_layer.for_each(|(_, (count, _))| *count /= 2);
            }
            counts.entry(place).or_default().0 += 1;
        }
    }

    /// Paths to the ends of all units of a node, node by node.
    fn runs(&self) -> Vec<Vec<usize>> {
        let parts_behind = |unit: &Known| unit.is_end || self.children(&unit.path).len() != 1;
        let mut runs = Vec::new();
        for (first, unit) in self.units.iter().enumerate() {
            let parent = self.at(&unit.path[..unit.path.len() - 1]);
            if parent.is_some_and(|parent| !parts_behind(&self.units[parent])) {
                continue;
            }
            let mut run = vec![first];
            while !parts_behind(&self.units[run[run.len() - 1]]) {
                let last = &self.units[run[run.len() - 1]];
                let next = self.children(&last.path)[0].path.clone();
                run.extend(self.at(&next));
            }
            let pieces = run.chunks(self.options.most_pack_units);
            runs.extend(pieces.map(<[usize]>::to_vec));
        }
        runs
    }

    /// Jobs in any order.
    fn due(&mut self, now: u64) -> Vec<Job> {
        if now < self.next_look {
            return Vec::new();
        }
        self.next_look = now + 10;
        let mut jobs = Vec::new();
        for run in self.runs() {
            let uses = self.units[run[0]].uses;
            if run.len() < 2 || uses < self.options.least_uses {
                continue;
            }
            let packings = run.iter().filter_map(|at| self.units[*at].packing);
            let packings: Vec<_> = packings.collect();
            let straddles = packings
                .iter()
                .any(|packing| packings.iter().filter(|one| *one == packing).count() < packing.1);
            let mut layers = Vec::new();
            for layer in 0..3 {
                let mut tokens = Vec::new();
                for (place, at) in run.iter().enumerate() {
                    for (&(of, token), &(count, is_packed)) in &self.units[*at].counts {
                        if of == layer && count > 0 {
                            let token = (place * UNIT_TOKENS + token) as u32;
                            tokens.push((127 - count, token, is_packed));
                        }
                    }
                }
                tokens.sort();
                let most = self.options.most_share * (run.len() * UNIT_TOKENS) as f64;
                tokens.truncate(most.floor() as usize);
                let num_new = tokens.iter().filter(|token| !token.2).count() as f64;
                let is_changed = num_new >= self.options.least_change * tokens.len() as f64;
                if !tokens.is_empty() && (straddles || is_changed) {
                    layers.push((layer, tokens.iter().map(|token| token.1).collect()));
                }
            }
            run.iter().for_each(|at| self.units[*at].uses = 0);
            if layers.is_empty() {
                continue;
            }
            let names = run.iter().map(|at| *self.units[*at].path.last().expect("not empty"));
            let job = Job { units: names.collect(), layers };
            self.pack(&run, &job);
            jobs.push(job);
        }
        jobs
    }

    fn pack(&mut self, run: &[usize], job: &Job) {
        self.num_packings += 1;
        for (place, at) in run.iter().enumerate() {
            let unit = &mut self.units[*at];
            unit.packing = Some((self.num_packings, run.len()));
            for ((layer, token), (count, is_packed)) in &mut unit.counts {
                let Some((_, order)) = job.layers.iter().find(|(one, _)| one == layer) else {
                    continue;
                };
                *count /= 2;
                *is_packed = order.contains(&((place * UNIT_TOKENS + token) as u32));
            }
        }
    }

    fn unpacked(&mut self, units: &[BlockHash], layer: usize) {
        for unit in &mut self.units {
            if units.contains(unit.path.last().expect("not empty")) {
                let counts = unit.counts.iter_mut().filter(|((one, _), _)| *one == layer);
                counts.for_each(|(_, (_, is_packed))| *is_packed = false);
            }
        }
    }
}

fn compare(seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let options = NodeOptions {
        most_units: 5 + rng.below(30),
        least_uses: 1 + rng.below(3) as u32,
        most_share: [0.1, 0.5, 1.0][rng.below(3)],
        least_change: [0.0, 0.3, 0.8][rng.below(3)],
        most_pack_units: 2 + rng.below(6),
        ..options()
    };
    let mut nodes = Nodes::new(options);
    let mut model =
        Model { options, units: Vec::new(), num_requests: 0, num_packings: 0, next_look: 0 };
    let mut num_jobs = 0;
    for now in 0..200 {
        // Most go straight on.
        let steps = (0..1 + rng.below(9)).map(|_| rng.below(8).saturating_sub(5) as u64);
        let units = path(&steps.collect::<Vec<_>>());
        nodes.used(&units);
        model.used(&units);
        for _ in 0..rng.below(3) {
            let layer = rng.below(3);
            let density = 1 + rng.below(6);
            let mut tokens: Vec<u32> = (0..(units.len() * UNIT_TOKENS) as u32).collect();
            tokens.retain(|_| rng.below(density) == 0);
            // Some of them so often that counts are full.
            for _ in 0..[1, 90][usize::from(rng.below(20) == 0)] {
                nodes.selected(&units, layer, &tokens);
                model.selected(&units, layer, &tokens);
            }
        }
        if rng.below(20) == 0 {
            let layer = rng.below(4);
            nodes.unpacked(&units, layer);
            model.unpacked(&units, layer);
        }
        let (mut jobs, mut expected) = (nodes.due(Nanos(now), usize::MAX), model.due(now));
        num_jobs += jobs.len();
        jobs.sort_by_key(|job| job.units.clone());
        expected.sort_by_key(|job| job.units.clone());
        assert_eq!(jobs, expected, "seed {seed}, step {now}, {options:?}");
        nodes.check();
        assert_eq!(nodes.num_units(), model.units.len(), "seed {seed}");
    }
    num_jobs
}

#[test]
fn packs_what_the_list_of_all_units_says() {
    let num_jobs: usize = (0..300).map(compare).sum();
    assert!(num_jobs > 5_000, "only {num_jobs} jobs");
}

fn select_all(nodes: &mut Nodes, units: &[BlockHash]) {
    let tokens: Vec<u32> = (0..(units.len() * UNIT_TOKENS) as u32).collect();
    nodes.selected(units, 0, &tokens);
}

fn nodes_due(nodes: &mut Nodes, now: u64) -> Vec<Vec<BlockHash>> {
    let jobs = nodes.due(Nanos(now), usize::MAX);
    let mut units: Vec<_> = jobs.into_iter().map(|job| job.units).collect();
    units.sort();
    units
}

#[test]
fn a_node_ends_where_prompts_part() {
    let mut nodes = Nodes::new(options());
    let (one, other) = (path(&[0, 0, 0, 0]), path(&[0, 0, 1, 1]));
    nodes.used(&one);
    select_all(&mut nodes, &one);
    assert_eq!(nodes_due(&mut nodes, 0), slice::from_ref(&one));
    nodes.used(&other);
    select_all(&mut nodes, &other);
    // One node has become two: the shared part is packed again now, the rest when it is used.
    let shared = one[..2].to_vec();
    assert_eq!(nodes_due(&mut nodes, 10), [shared.clone(), other[2..].to_vec()]);
    nodes.used(&one);
    select_all(&mut nodes, &one);
    assert_eq!(nodes_due(&mut nodes, 20), [one[2..].to_vec()]);
    nodes.used(&one);
    assert!(nodes_due(&mut nodes, 30).is_empty(), "nothing changed");
    nodes.unpacked(&shared, 0);
    nodes.used(&one);
    assert_eq!(nodes_due(&mut nodes, 40), [shared]);
}

#[test]
fn a_node_ends_where_a_prompt_left_it() {
    let mut nodes = Nodes::new(options());
    let units = path(&[0, 0, 0, 0, 0]);
    nodes.used(&units[..3]);
    nodes.used(&units);
    select_all(&mut nodes, &units);
    assert_eq!(nodes_due(&mut nodes, 0), slice::from_ref(&units), "it only grew");
    nodes.used(&units[..3]);
    nodes.used(&units);
    select_all(&mut nodes, &units);
    assert_eq!(nodes_due(&mut nodes, 10), [units[..3].to_vec(), units[3..].to_vec()]);
}

#[test]
fn those_used_most_come_first_and_the_rest_is_due_at_once() {
    let mut nodes = Nodes::new(options());
    for (step, uses) in [(1, 2), (2, 5), (3, 3)] {
        let units = path(&[step, 0]);
        (0..uses).for_each(|_| nodes.used(&units));
        select_all(&mut nodes, &units);
    }
    let mut first = |now| {
        let jobs = nodes.due(Nanos(now), 1);
        jobs.first().map(|job| job.units[0])
    };
    for step in [2, 3, 1] {
        assert_eq!(first(0), Some(path(&[step])[0]));
    }
    assert_eq!(first(0), None);
}

#[test]
fn what_is_selected_most_often_leads_and_a_pack_holds_a_share() {
    let mut nodes = Nodes::new(options());
    let units = path(&[0, 0]);
    nodes.used(&units);
    for tokens in [&[0, 5, 6, 7][..], &[0, 3, 6], &[0, 3, 6, 7], &[6]] {
        nodes.selected(&units, 2, tokens);
    }
    let jobs = nodes.due(Nanos(0), 9);
    assert_eq!(jobs[0].layers, [(2, vec![6, 0, 3, 7])]);
}
