//! Two replicas above one folder that hear of each other's packs late: what they come to.

use std::collections::BTreeMap;
use std::time::Duration;

use headstart_core::Rng;

use super::*;

const UNIT_TOKENS: usize = 4;
const LAYERS: usize = 2;

/// What a replica hears of the folder, in the order in which it came to be.
enum News {
    Found(FoundPack),
    Lost(BlockHash),
    Packed(TransferId, TransferResult),
}

struct Replica {
    packing: Packing,
    news: VecDeque<News>,
    /// Handed over, and not written yet.
    writing: Option<(TransferId, Pack)>,
    /// What a prompt that runs may read.
    reading: Vec<BlockHash>,
}

struct Folder {
    packs: BTreeMap<BlockHash, FoundPack>,
    replicas: Vec<Replica>,
    now: Nanos,
    made: usize,
    /// Of these, those that replace another replica's.
    taken_over: usize,
}

fn chain(branch: u64, units: std::ops::Range<u64>) -> Vec<BlockHash> {
    units
        .map(|unit| BlockHash::from_u64(100 * branch + unit))
        .collect()
}

fn options(most_units: usize) -> PackingOptions {
    PackingOptions {
        nodes: NodeOptions {
            unit_tokens: UNIT_TOKENS,
            interval: Duration::from_secs(1),
            least_uses: 2,
            ..NodeOptions::default()
        },
        most_units,
    }
}

impl Folder {
    fn new(num_replicas: usize, most_units: usize) -> Self {
        let replica = |_| Replica {
            packing: Packing::new(Some(options(most_units)), LAYERS),
            news: VecDeque::new(),
            writing: None,
            reading: Vec::new(),
        };
        Self {
            packs: BTreeMap::new(),
            replicas: (0..num_replicas).map(replica).collect(),
            now: Nanos(1),
            made: 0,
            taken_over: 0,
        }
    }

    fn tell_others(&mut self, number: usize, news: impl Fn() -> News) {
        let others = self.replicas.iter_mut().enumerate();
        for (_, other) in others.filter(|(other, _)| *other != number) {
            other.news.push_back(news());
        }
    }

    /// A prompt of a replica goes through these units and selects these tokens of them.
    fn use_tokens(&mut self, number: usize, units: &[BlockHash], tokens: &[u32]) {
        let packing = &mut self.replicas[number].packing;
        let kept = vec![tokens.to_vec(); LAYERS];
        let origin = (IdentityDigest([1; 16]), TenantTag(0));
        let views = (LAYERS as u16..2 * LAYERS as u16).flat_map(|part| {
            let views = packing.packs.find(units, part).into_iter();
            views.map(|view| view.name).collect::<Vec<_>>()
        });
        let names: Vec<_> = views.collect();
        packing.used((units, 0), origin, &kept, names);
    }

    fn tend(&mut self, number: usize) {
        let now = self.now;
        let replica = &mut self.replicas[number];
        let reading = replica.reading.clone();
        let names = replica.packing.take_dropped(|name| reading.contains(&name));
        for name in names {
            self.packs.remove(&name);
            self.tell_others(number, || News::Lost(name));
        }
        let mut transfers = Vec::new();
        let replica = &mut self.replicas[number];
        replica.packing.tend(now, &mut transfers);
        for transfer in transfers {
            let Transfer::Pack { id, pack, .. } = transfer else {
                panic!("nothing else is moved");
            };
            assert!(replica.writing.replace((id, pack)).is_none(), "one at once");
        }
        replica.packing.packs.check();
    }

    fn write(&mut self, number: usize, is_well: bool) {
        let Some((id, pack)) = self.replicas[number].writing.take() else {
            return;
        };
        let result = match is_well {
            true => TransferResult::Done,
            false => TransferResult::Failed,
        };
        if is_well {
            let pack = FoundPack {
                name: pack.name,
                units: pack.units,
                part: pack.part,
                order: pack.order,
            };
            self.made += 1;
            let packs = &self.replicas[number].packing.packs;
            let rivals = packs.rivals(&pack.units, pack.part);
            let is_others = |rival: &Rival<'_>| rival.is_read && rival.maker == Maker::Another;
            self.taken_over += usize::from(rivals.iter().any(is_others));
            self.packs.insert(pack.name, pack.clone());
            self.tell_others(number, || News::Found(pack.clone()));
        }
        let news = &mut self.replicas[number].news;
        news.push_back(News::Packed(id, result));
    }

    fn hear(&mut self, number: usize) {
        let now = self.now;
        let Replica { packing, news, .. } = &mut self.replicas[number];
        match news.pop_front() {
            Some(News::Found(pack)) => packing.found(pack, now),
            Some(News::Lost(name)) => _ = packing.lost(name),
            Some(News::Packed(id, result)) => packing.packed(id, result),
            None => {}
        }
        packing.packs.check();
    }

    /// All is written and heard, in a random order.
    fn settle(&mut self, rng: &mut Rng) {
        for _ in 0..400 {
            let number = rng.below(self.replicas.len());
            match rng.below(3) {
                0 => self.tend(number),
                1 => self.write(number, true),
                _ => self.hear(number),
            }
        }
        for replica in &self.replicas {
            assert!(replica.news.is_empty() && replica.writing.is_none());
        }
    }

    /// Each replica reads what is there, and nothing is there twice.
    fn check_settled(&self, context: &str) {
        for replica in &self.replicas {
            let names = |pack: &FoundPack| -> Vec<_> {
                let rivals = replica.packing.packs.rivals(&pack.units, pack.part);
                let rivals = rivals.iter();
                rivals
                    .map(|rival| (rival.pack.name, rival.is_read))
                    .collect()
            };
            for (name, pack) in &self.packs {
                assert_eq!(names(pack), [(*name, true)], "{context}");
            }
            let known = replica.packing.packs.len().0;
            assert_eq!(known, self.packs.len(), "{context}: nothing else");
        }
    }

    /// How often each unit of a chain is in a pack, by part.
    fn times(&self, units: &[BlockHash]) -> Vec<usize> {
        let parts = LAYERS as u16..2 * LAYERS as u16;
        let places = parts.flat_map(|part| units.iter().map(move |unit| (part, unit)));
        let times = places.map(|(part, unit)| {
            let packs = self.packs.values();
            let is_in = |pack: &&FoundPack| pack.part == part && pack.units.contains(unit);
            packs.filter(is_in).count()
        });
        times.collect()
    }
}

/// Tokens that one replica's prompts select, and hardly another's: some of each unit.
fn hot(rng: &mut Rng, units: usize) -> Vec<u32> {
    let tokens = (0..units).flat_map(|unit| {
        let at = (unit * UNIT_TOKENS) as u32;
        let [one, other] = [0; 2].map(|_| rng.below(UNIT_TOKENS) as u32);
        let is_other = rng.below(3) == 0;
        [Some(at + one), is_other.then_some(at + other)]
    });
    let mut hot: Vec<u32> = tokens.flatten().collect();
    hot.sort_unstable();
    hot.dedup();
    hot
}

/// Prompts, writes that fail, news and prompts that read come in any order; then all come in turn.
fn run(seed: u64, chains: &[Vec<BlockHash>]) -> (Folder, usize) {
    let mut rng = Rng::new(seed);
    let mut folder = Folder::new(2, 1_000);
    let profile: Vec<Vec<Vec<u32>>> = (0..2)
        .map(|_| {
            chains
                .iter()
                .map(|units| hot(&mut rng, units.len()))
                .collect()
        })
        .collect();
    for _ in 0..400 {
        folder.now = folder.now + Duration::from_millis(100);
        let (number, at) = (rng.below(2), rng.below(chains.len()));
        match rng.below(7) {
            0 => folder.use_tokens(number, &chains[at], &profile[number][at]),
            1 => {
                // Another question: tokens that come and go.
                let tokens = hot(&mut rng, chains[at].len());
                folder.use_tokens(number, &chains[at], &tokens);
            }
            2 => folder.tend(number),
            3 => folder.write(number, rng.below(5) > 0),
            4 => {
                let packs = &folder.replicas[number].packing.packs;
                let found = packs.find(&chains[at], LAYERS as u16 + rng.below(LAYERS) as u16);
                let names = found.iter().map(|view| view.name).collect();
                folder.replicas[number].reading = names;
            }
            _ => folder.hear(number),
        }
    }
    folder.replicas.iter_mut().for_each(|it| it.reading.clear());
    let mut before = 0;
    for round in 0..100 {
        folder.now = folder.now + Duration::from_secs(2);
        for (number, profile) in profile.iter().enumerate() {
            for (units, tokens) in chains.iter().zip(profile) {
                (0..2).for_each(|_| folder.use_tokens(number, units, tokens));
            }
        }
        folder.settle(&mut rng);
        if round == 50 {
            before = folder.taken_over;
        }
    }
    folder.check_settled(&format!("seed {seed}"));
    let late = folder.taken_over - before;
    (folder, late)
}

#[test]
fn of_two_replicas_packs_one_stays_and_both_read_it() {
    let chains = [chain(0, 0..6), [chain(0, 0..3), chain(1, 3..5)].concat()];
    let (mut made, mut taken_over) = (0, 0);
    for seed in 0..100 {
        let (folder, late) = run(seed, &chains);
        assert_eq!(late, 0, "seed {seed}: they replace each other's in turn");
        for units in &chains {
            let times = folder.times(units);
            let is_once = times.iter().all(|times| *times == 1);
            assert!(is_once, "seed {seed}: {times:?}");
        }
        made += folder.made;
        taken_over += folder.taken_over;
    }
    let is_enough = made > 1_000 && taken_over > 50;
    assert!(is_enough, "{made} made, {taken_over} over another's");
}

/// One replica knows of a branch that the other has never seen.
#[test]
fn they_come_to_an_end_where_they_see_other_branches() {
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let mut folder = Folder::new(2, 1_000);
        let (trunk, branch) = (chain(0, 0..6), [chain(0, 0..3), chain(1, 3..5)].concat());
        let hot = [6, 6, 5].map(|units| hot(&mut rng, units));
        let mut made = 0;
        for round in 0..40 {
            folder.now = folder.now + Duration::from_secs(2);
            for _ in 0..2 {
                folder.use_tokens(0, &trunk, &hot[0]);
                folder.use_tokens(1, &trunk, &hot[1]);
                folder.use_tokens(1, &branch, &hot[2]);
            }
            folder.settle(&mut rng);
            if round == 20 {
                made = folder.made;
            }
        }
        folder.check_settled(&format!("seed {seed}"));
        assert_eq!(folder.made, made, "seed {seed}");
        assert!(folder.times(&trunk).iter().all(|times| *times == 1));
    }
}

/// What a replica made itself follows what its prompts want, however the names fall.
#[test]
fn a_newer_pack_replaces_an_older_one_of_the_same_replica() {
    let units = chain(0, 0..6);
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let mut folder = Folder::new(2, 1_000);
        for tokens in [[1, 5, 9], [2, 6, 10], [3, 7, 11]] {
            for _ in 0..30 {
                folder.now = folder.now + Duration::from_secs(2);
                (0..9).for_each(|_| folder.use_tokens(0, &units, &tokens));
                folder.settle(&mut rng);
            }
            folder.check_settled(&format!("seed {seed}"));
            assert_eq!(folder.packs.len(), LAYERS);
            for pack in folder.packs.values() {
                let has = |token| pack.order.contains(token);
                assert!(tokens.iter().all(has), "{:?}", pack.order);
            }
        }
    }
}

#[test]
fn what_a_prompt_reads_stays_until_it_has_its_token() {
    let mut packing = Packing::new(Some(options(100)), 1);
    let pack = |units: Vec<BlockHash>| {
        let order = vec![0, 1];
        let name = Pack::name_of(&units, 1, &order);
        FoundPack {
            name,
            units,
            part: 1,
            order,
        }
    };
    let wrong = FoundPack {
        name: BlockHash::from_u64(9),
        ..pack(chain(0, 0..2))
    };
    packing.found(wrong, Nanos(1));
    let name = BlockHash::from_u64(9);
    assert_eq!(packing.take_dropped(|it| it == name), []);
    assert_eq!(packing.take_dropped(|_| false), [name]);
    assert_eq!(packing.take_dropped(|_| false), [], "once");
}

/// Who has less than half of the room takes from others what it lacks, and nothing more.
#[test]
fn who_has_half_of_the_room_makes_room_for_itself() {
    let mut folder = Folder::new(2, 12);
    let mut rng = Rng::new(1);
    folder.settle(&mut rng);
    folder.now = folder.now + FROM_BEFORE;
    for round in 0..40 {
        folder.now = folder.now + Duration::from_secs(2);
        let units = chain(round % 2 + 1, 0..2);
        (0..3).for_each(|_| folder.use_tokens(0, &units, &[1, 2]));
        folder.settle(&mut rng);
    }
    let theirs = folder.packs.clone();
    assert_eq!(theirs.len(), 4, "two nodes of two layers");
    for round in 0..40 {
        folder.now = folder.now + Duration::from_secs(2);
        let units = chain(round % 4 + 10, 0..2);
        (0..3).for_each(|_| folder.use_tokens(1, &units, &[1, 2]));
        folder.settle(&mut rng);
        folder.check_settled("settled");
    }
    // Three of six places are the other's as long as both want more.
    let kept = theirs
        .keys()
        .filter(|name| folder.packs.contains_key(*name));
    assert!(kept.count() >= 3, "{:?}", folder.packs.len());
}
