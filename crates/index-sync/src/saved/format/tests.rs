use headstart_core::Rng;

use super::*;

const NONCE: [u8; NONCE_BYTES] = [9; NONCE_BYTES];

fn seal() -> Seal {
    Seal::new("model 0123456789abcdef")
}

fn bytes(saved: &SavedIndex) -> Vec<u8> {
    let mut file = Vec::new();
    saved.write(&mut file, &seal(), NONCE).expect("memory");
    file
}

/// A file with this body and a right tag.
fn with_body(body: &[u8]) -> Vec<u8> {
    let head = bytes(&drawn(0))[..HEAD_BYTES].to_vec();
    let mut body = body.to_vec();
    let tag = seal().close(NONCE, &head, &mut body).expect("is short");
    [&head[..], &body, &tag].concat()
}

/// The body of a file, unsealed.
fn body(saved: &SavedIndex) -> Vec<u8> {
    saved.body().expect("is short")
}

/// An index as no router would have it: every number is drawn.
fn drawn(seed: u64) -> SavedIndex {
    let mut rng = Rng::new(seed);
    let run = |rng: &mut Rng| RunDump {
        block_size: rng.next_u64() as u32,
        keys: (0..rng.below(6)).map(|_| RouteKey(rng.next_u64())).collect(),
    };
    SavedIndex {
        saved_at: rng.next_f64() * 2e9,
        runs: (0..rng.below(5)).map(|_| run(&mut rng)).collect(),
        replicas: (0..rng.below(4)).map(|_| replica(&mut rng)).collect(),
    }
}

fn replica(rng: &mut Rng) -> SavedReplica {
    let text = |rng: &mut Rng| "tcp://höst:5557 ".repeat(rng.below(3));
    SavedReplica {
        endpoint: text(rng),
        models: (0..rng.below(3)).map(|_| text(rng)).collect(),
        held: ReplicaDump {
            replica: ReplicaId(0),
            groups: (0..rng.below(3)).map(|_| group(rng)).collect(),
            places: (0..rng.below(4)).map(|_| place(rng)).collect(),
        },
    }
}

fn group(rng: &mut Rng) -> (CacheGroup, u32) {
    let tokens = rng.next_u64() as u32;
    let attention = [Attention::Full, Attention::Window { tokens }, Attention::State][rng.below(3)];
    let index = rng.next_u64() as u8;
    let group = CacheGroup { index, attention, lookahead: rng.next_u64() as u32 };
    (group, rng.next_u64() as u32)
}

fn place(rng: &mut Rng) -> PlaceDump {
    let mut blocks = Vec::new();
    for _ in 0..rng.below(5) {
        let (run, first) = (rng.below(3) as u32, rng.below(4) as u32);
        // Rows, and some that begin where the last one went on, or twice at one place.
        for offset in first..first + rng.below(4) as u32 {
            let handle = rng.next_u64();
            blocks.push(BlockDump { run, offset, handle });
        }
    }
    PlaceDump {
        group: rng.next_u64() as u8,
        tier: [Tier::Device, Tier::Host, Tier::Disk, Tier::Remote][rng.below(4)],
        doubtful_for: [None, Some(Duration::from_nanos(rng.next_u64() >> 1))][rng.below(2)],
        blocks,
    }
}

#[test]
fn what_is_written_is_read() {
    for seed in 0..2_000 {
        let saved = drawn(seed);
        let read = SavedIndex::read(bytes(&saved), &seal());
        assert_eq!(read.expect("its own"), saved, "seed {seed}");
    }
}

#[test]
fn whatever_is_cut_off_or_changed_is_refused() {
    for seed in 1..6 {
        let file = bytes(&drawn(seed));
        for end in 0..file.len() {
            let cut = SavedIndex::read(file[..end].to_vec(), &seal());
            assert!(cut.is_err(), "seed {seed}: the first {end} bytes");
        }
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut changed = file.clone();
                changed[at] ^= 1 << bit;
                let read = SavedIndex::read(changed, &seal());
                assert!(read.is_err(), "seed {seed}: bit {bit} of byte {at}");
            }
        }
        let longer = [file, vec![0]].concat();
        assert!(SavedIndex::read(longer, &seal()).is_err(), "seed {seed}");
    }
}

#[test]
fn a_refusal_says_why() {
    let file = bytes(&drawn(1));
    let other = Seal::new("model 0123456789abcdee");
    let refused = |file: &[u8], seal: &Seal| {
        let read = SavedIndex::read(file.to_vec(), seal);
        read.expect_err("it is refused").to_string()
    };
    assert!(refused(&file, &other).contains("another secret"));
    let mut next = file.clone();
    next[MAGIC.len()] = VERSION as u8 + 1;
    let version = format!("version {}", VERSION + 1);
    assert!(refused(&next, &seal()).contains(&version));
    assert!(refused(b"# notes\nmore of them", &seal()).contains("no saved index"));
    assert!(refused(b"", &seal()).contains("no saved index"));
    assert!(refused(&file[..file.len() - 1], &seal()).contains("damaged"));
}

/// Such files cannot be made without the secret; they are read with care all the same.
#[test]
fn no_body_is_read_without_care() {
    let mut rng = Rng::new(3);
    let mut accepted = 0;
    for seed in 0..400 {
        let sane = body(&drawn(seed));
        assert_eq!(with_body(&sane)[HEAD_BYTES..].len(), sane.len() + TAG_BYTES);
        for _ in 0..20 {
            let mut changed = sane.clone();
            for _ in 0..=rng.below(3) {
                let at = rng.below(changed.len());
                changed[at] = [0, 1, 0x7f, 0xff, rng.next_u64() as u8][rng.below(5)];
            }
            changed.truncate(sane.len() - rng.below(2) * rng.below(sane.len()));
            accepted += usize::from(SavedIndex::read(with_body(&changed), &seal()).is_ok());
        }
    }
    assert!(accepted > 100, "some changes are of keys only: {accepted}");
    // Four billion runs, replicas, handles: no memory has room for them.
    for count_at in [0, 4] {
        let mut lies = vec![0; 8];
        lies[count_at..count_at + 4].fill(0xff);
        let refused = SavedIndex::read(with_body(&lies), &seal());
        assert!(matches!(refused, Err(FileError::Damaged)));
    }
}

#[test]
fn an_offset_beyond_all_is_damage() {
    let block = |offset, handle| BlockDump { run: 0, offset, handle };
    let blocks = vec![block(u32::MAX - 1, 1), block(u32::MAX, 2)];
    let mut saved = drawn(0);
    saved.replicas = vec![SavedReplica {
        endpoint: "e".to_owned(),
        models: Vec::new(),
        held: ReplicaDump {
            replica: ReplicaId(0),
            groups: Vec::new(),
            places: vec![PlaceDump { group: 0, tier: Tier::Device, doubtful_for: None, blocks }],
        },
    }];
    assert_eq!(SavedIndex::read(bytes(&saved), &seal()).expect("its own"), saved);
    // One more handle in that row would be at no offset.
    let mut changed = body(&saved);
    let count_at = changed.len() - 2 * 8 - 4;
    assert_eq!(changed[count_at..count_at + 4], [2, 0, 0, 0]);
    changed[count_at] = 3;
    changed.extend([0; 8]);
    let refused = SavedIndex::read(with_body(&changed), &seal());
    assert!(matches!(refused, Err(FileError::Damaged)));
}
