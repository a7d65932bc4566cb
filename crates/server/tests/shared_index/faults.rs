//! Gateways that die or are cut off, servers that die and come back, late and slow readers.

use headstart_core::event::StoredBlocks;
use headstart_core::{BlockHash, CacheEvent, ReplicaId, Tier};
use headstart_index_sync::shared::{GatewayRole, SharedIndexError};
use headstart_router::PrefixIndex;
use headstart_router::index::Update;

use crate::gateway::{Common, Gateway, hasty};
use crate::proxy::{Proxy, Way};
use crate::service::{Memory, Service, eventually};

pub(crate) const R0: ReplicaId = ReplicaId(0);
const SIZE: usize = 2;

/// A conversation of `blocks` blocks that no other `seed` shares.
pub(crate) fn tokens(seed: u32, blocks: usize) -> Vec<u32> {
    (0..(blocks * SIZE) as u32).map(|at| 1_000_000 * (seed + 1) + at).collect()
}

fn handle(seed: u32, block: usize) -> BlockHash {
    BlockHash::from_u64((u64::from(seed) << 32) | (block as u64 + 1))
}

/// The engine stores a conversation.
pub(crate) fn stored(seed: u32, blocks: usize) -> CacheEvent {
    CacheEvent::Stored(StoredBlocks {
        blocks: (0..blocks).map(|block| handle(seed, block)).collect(),
        parent: None,
        tokens: tokens(seed, blocks),
        block_size: SIZE as u32,
        extras: Vec::new(),
        tier: Tier::Device,
        group: Default::default(),
        salt: None,
        adapter: None,
    })
}

pub(crate) fn removed(seed: u32, block: usize) -> CacheEvent {
    CacheEvent::Removed { blocks: vec![handle(seed, block)], tier: Tier::Device, group: 0 }
}

pub(crate) fn tell(gateway: &Gateway, common: &Common, events: &[CacheEvent]) {
    gateway.update(R0, Update::Events(events), common.now());
}

/// A gateway that tracks everybody, and listens if it may.
pub(crate) fn member(common: &Common, url: &str, is_candidate: bool) -> Gateway {
    let gateway = common.start_at(url);
    gateway.track_all();
    gateway.run_for_all(is_candidate);
    gateway
}

/// One that listens, after it does.
pub(crate) fn owner(common: &Common, url: &str) -> Gateway {
    let owner = member(common, url, true);
    owner.becomes(GatewayRole::Owning);
    owner
}

#[test]
fn a_removal_reaches_who_does_not_listen() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let common = Common::new(service.url(), 2);
    let a = owner(&common, &common.url);
    let b = member(&common, &common.url, true);
    tell(&a, &common, &[stored(1, 4), removed(1, 3)]);
    b.follows(&a);
    assert_eq!(b.overlap(R0, &tokens(1, 4)), (6, 6));
    assert_eq!(b.overlap(ReplicaId(1), &tokens(1, 4)), (0, 0));
    assert_eq!(b.residents(), a.residents());
    // A follower does not listen to the engine: an event that it gets by mistake is not believed.
    assert_eq!(b.index.listening(R0), None);
    assert!(a.index.listening(R0).is_some());
    tell(&b, &common, &[stored(2, 4)]);
    assert_eq!(b.overlap(R0, &tokens(2, 4)), (0, 0));
}

#[test]
fn what_a_dead_owner_said_is_doubtful_until_another_has_listened() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let mut common = Common::new(service.url(), 1);
    common.timing = hasty();
    let proxy = Proxy::to(service.port());
    let a = owner(&common, &proxy.url());
    let b = member(&common, &common.url, true);
    let c = member(&common, &common.url, false);
    tell(&a, &common, &[stored(1, 4), stored(2, 2)]);
    b.follows(&a);
    let before = b.index.listening(R0);
    proxy.set(Way::Blocked);
    // Meanwhile the engine loses a conversation, and only the gateway that is cut off hears of it.
    tell(&a, &common, &[removed(2, 0), removed(2, 1)]);
    b.becomes(GatewayRole::Owning);
    assert_ne!(b.index.listening(R0), before, "it must listen from the start");
    c.follows(&b);
    for gateway in [&b, &c] {
        assert_eq!(gateway.overlap(R0, &tokens(1, 4)), (8, 0));
        assert_eq!(gateway.overlap(R0, &tokens(2, 2)), (4, 0));
    }
    // The engine's replay.
    tell(&b, &common, &[stored(1, 4), stored(2, 2)]);
    tell(&b, &common, &[removed(2, 0), removed(2, 1)]);
    c.follows(&b);
    for gateway in [&b, &c] {
        assert_eq!(gateway.overlap(R0, &tokens(1, 4)), (8, 8));
        assert_eq!(gateway.overlap(R0, &tokens(2, 2)), (0, 0));
    }
    // The one that was cut off knew what it heard itself, and reads again now.
    a.becomes(GatewayRole::Alone);
    assert_eq!(a.overlap(R0, &tokens(1, 4)), (8, 8));
    assert!(a.index.listening(R0).is_some());
    proxy.set(Way::Open);
    a.follows(&b);
    assert_eq!(a.residents(), b.residents());
}

#[test]
fn an_owner_that_lost_its_lease_cannot_write() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let mut common = Common::new(service.url(), 1);
    // The first looks after its lease once in a while only.
    let others = common.timing;
    common.timing.tick = common.timing.lease / 2;
    let a = owner(&common, &common.url);
    common.timing = others;
    let b = member(&common, &common.url, true);
    tell(&a, &common, &[stored(1, 4)]);
    b.follows(&a);
    let mut client = service.client();
    let leases: Vec<String> = redis::cmd("KEYS").arg("*:lease").query(&mut client).unwrap();
    let gone: usize = redis::cmd("DEL").arg(&leases).query(&mut client).unwrap();
    assert_eq!(gone, 1);
    b.becomes(GatewayRole::Owning);
    assert!(a.is(GatewayRole::Owning), "it does not know yet");
    tell(&a, &common, &[stored(2, 4)]);
    a.follows(&b);
    assert_eq!(a.index.shared_stats().lost_leases, 1);
    for gateway in [&a, &b] {
        assert_eq!(gateway.overlap(R0, &tokens(1, 4)), (8, 0));
    }
    assert_eq!(b.overlap(R0, &tokens(2, 4)), (0, 0), "nobody else hears of it");
    assert_eq!(a.overlap(R0, &tokens(2, 4)), (8, 0), "it heard so itself");
}

#[test]
fn who_goes_in_peace_is_followed_at_once() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    // A lease lasts longer than anybody here waits.
    let common = Common::new(service.url(), 2);
    let a = owner(&common, &common.url);
    let b = member(&common, &common.url, true);
    tell(&a, &common, &[stored(1, 4)]);
    b.follows(&a);
    // One engine is out of reach for it, but not for the other.
    a.index.set_candidate(R0, false);
    eventually("a handover", || b.report(R0).role == GatewayRole::Owning);
    assert_eq!(a.report(ReplicaId(1)).role, GatewayRole::Owning);
    a.follows_one(&b, R0);
    a.index.leave();
    b.becomes(GatewayRole::Owning);
}

/// Redis is killed and comes back, knowing everything or nothing.
fn check_restart(memory: Memory) {
    let Some(mut service) = Service::start(memory) else {
        return;
    };
    let mut common = Common::new(service.url(), 2);
    common.timing = hasty();
    let a = owner(&common, &common.url);
    let b = member(&common, &common.url, true);
    let many: Vec<CacheEvent> = (0..100).map(|seed| stored(seed, 3)).collect();
    for event in many {
        tell(&a, &common, &[event]);
    }
    b.follows(&a);
    service.kill();
    // Nothing that is asked or said waits for it.
    tell(&a, &common, &[stored(200, 3), removed(7, 2)]);
    assert_eq!(a.overlap(R0, &tokens(200, 3)), (6, 6));
    assert_eq!(a.overlap(R0, &tokens(7, 3)), (4, 4));
    b.becomes(GatewayRole::Alone);
    a.becomes(GatewayRole::Alone);
    // Who heard from others is unsure, and listens for itself.
    assert_eq!(b.overlap(R0, &tokens(1, 3)), (6, 0));
    assert!(b.index.listening(R0).is_some());
    tell(&b, &common, &[stored(1, 3)]);
    assert_eq!(b.overlap(R0, &tokens(1, 3)), (6, 6));
    assert_eq!(a.overlap(R0, &tokens(1, 3)), (6, 6), "it has heard all");
    let stats = b.index.shared_stats();
    assert!(!stats.is_connected && stats.errors > 0 && stats.alone == 2);
    service.restart();
    settled(&common, &a, &b);
    // The new owner hears the engine from the start.
    let owner = if a.report(R0).role == GatewayRole::Owning { &a } else { &b };
    tell(owner, &common, &[stored(300, 3), stored(1, 3)]);
    settled(&common, &a, &b);
    for gateway in [&a, &b] {
        assert_eq!(gateway.overlap(R0, &tokens(300, 3)), (6, 6));
        assert_eq!(gateway.overlap(R0, &tokens(1, 3)), (6, 6));
        // Known before: not forgotten, and not believed.
        assert_eq!(gateway.overlap(R0, &tokens(2, 3)), (6, 0));
        gateway.local.check();
    }
    let c = member(&common, &common.url, false);
    c.follows_one(owner, R0);
    assert_eq!(c.overlap(R0, &tokens(300, 3)), (6, 6));
}

/// Waits until each replica has one owner, and the other one follows it.
fn settled(common: &Common, a: &Gateway, b: &Gateway) {
    for replica in common.replicas() {
        eventually("one owner", || {
            let mut reports = [a.report(replica), b.report(replica)];
            reports.sort_by_key(|report| report.role);
            let [reader, owner] = reports;
            (reader.role, owner.role) == (GatewayRole::Following, GatewayRole::Owning)
                && owner.unsent == 0
                && reader.position == owner.position
        });
    }
}

#[test]
fn a_server_that_comes_back_with_everything_is_used_again() {
    check_restart(Memory::Kept);
}

#[test]
fn a_server_that_comes_back_empty_is_used_again() {
    check_restart(Memory::Lost);
}

#[test]
fn a_gateway_that_starts_without_a_server_is_alone_until_it_comes() {
    let Some(mut service) = Service::start(Memory::Lost) else {
        return;
    };
    service.kill();
    let common = Common::new(service.url(), 1);
    let a = member(&common, &common.url, true);
    a.becomes(GatewayRole::Alone);
    tell(&a, &common, &[stored(1, 4)]);
    assert_eq!(a.overlap(R0, &tokens(1, 4)), (8, 8));
    service.restart();
    a.becomes(GatewayRole::Owning);
    assert_eq!(a.overlap(R0, &tokens(1, 4)), (8, 0), "until it is replayed");
}

#[test]
fn who_is_too_slow_reads_the_base_and_misses_nothing() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let mut common = Common::new(service.url(), 1);
    common.timing.reply = hasty().reply;
    let proxy = Proxy::to(service.port());
    let a = owner(&common, &common.url);
    let b = member(&common, &proxy.url(), false);
    tell(&a, &common, &[stored(0, 3)]);
    b.follows(&a);
    let loads = b.index.shared_stats().loads;
    proxy.set(Way::ReadersBlocked);
    for round in 1..=4 {
        let bases = a.index.shared_stats().bases;
        for seed in 0..40 {
            tell(&a, &common, &[stored(100 * round + seed, 3)]);
            tell(&a, &common, &[removed(100 * round + seed, 2)]);
        }
        eventually("another base", || a.index.shared_stats().bases > bases);
    }
    assert_ne!(b.residents(), a.residents(), "it is behind");
    proxy.set(Way::Open);
    b.follows(&a);
    assert_eq!(b.residents(), a.residents());
    let stats = b.index.shared_stats();
    assert_eq!((stats.holes, stats.loads), (0, loads + 1));
    assert_eq!(b.overlap(R0, &tokens(410, 3)), (4, 4));
}

#[test]
fn a_log_whose_beginning_is_gone_is_read_from_where_it_is() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let mut common = Common::new(service.url(), 1);
    // No base is ever written.
    (common.timing.log_entries, common.timing.rebase_entries) = (50, usize::MAX);
    let a = owner(&common, &common.url);
    for seed in 0..500 {
        tell(&a, &common, &[stored(seed, 3)]);
    }
    eventually("all is written", || a.report(R0).unsent == 0);
    let b = member(&common, &common.url, false);
    b.follows(&a);
    let stats = b.index.shared_stats();
    assert_eq!(stats.holes, 1);
    assert!(stats.loads > 1, "it looked for a base again");
    assert_eq!(b.overlap(R0, &tokens(0, 3)), (0, 0));
    assert_eq!(b.overlap(R0, &tokens(499, 3)), (6, 6));
}

#[test]
fn gateways_with_another_secret_are_told_so() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let common = Common::new(service.url(), 1);
    let _first = common.start();
    let refused = common.try_start(&common.url, "m 07e4").err();
    let refused = refused.expect("refused");
    assert!(matches!(refused, SharedIndexError::OtherSecret { .. }), "{refused}");
    assert!(refused.to_string().contains("--index-secret"), "{refused}");
    // Another database is another fleet.
    let elsewhere = service.url().replace("/0", "/1");
    assert!(common.try_start(&elsewhere, "m 07e4").is_ok());
}

#[test]
fn servers_that_refuse_and_addresses_that_are_none_are_errors_at_the_start() {
    let options = ["--requirepass", "open sesame"];
    let Some(service) = Service::start_with(Memory::Lost, &options) else {
        return;
    };
    let common = Common::new(service.url(), 1);
    let start = |url: &str| common.try_start(url, "m 5eed").err();
    let refused = start(&common.url).expect("no password");
    assert!(matches!(refused, SharedIndexError::Refused { .. }), "{refused}");
    let port = service.port();
    let wrong = start(&format!("redis://:guess@127.0.0.1:{port}/0")).expect("wrong password");
    assert!(matches!(wrong, SharedIndexError::Refused { .. }), "{wrong}");
    assert!(!wrong.to_string().contains("guess"), "{wrong}");
    let right = format!("redis://:open%20sesame@127.0.0.1:{port}/0");
    assert!(start(&right).is_none());
    let no_such = start(&right.replace("/0", "/99")).expect("no such database");
    assert!(matches!(no_such, SharedIndexError::Refused { .. }), "{no_such}");
    let none = start("http://127.0.0.1:1").expect("no address");
    assert!(matches!(none, SharedIndexError::Address(_)), "{none}");
}

#[test]
fn the_server_holds_no_tokens_and_nothing_for_ever() {
    // So that what it holds can be read as it lies.
    let options = ["--rdbcompression", "no"];
    let Some(service) = Service::start_with(Memory::Lost, &options) else {
        return;
    };
    let mut common = Common::new(service.url(), 1);
    common.timing.log_entries = 100;
    let a = owner(&common, &common.url);
    for seed in 0..500 {
        let CacheEvent::Stored(stored) = stored(seed, 3) else {
            unreachable!("it is stored");
        };
        let salted = StoredBlocks {
            salt: Some("the-salt-of-a-tenant".into()),
            adapter: Some("the-adapter-of-a-tenant".into()),
            ..stored
        };
        tell(&a, &common, &[CacheEvent::Stored(salted)]);
    }
    eventually("all is written", || a.report(R0).unsent == 0);
    let mut client = service.client();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut client).unwrap();
    assert!(keys.len() >= 3, "{keys:?}");
    for key in &keys {
        let left: i64 = redis::cmd("PTTL").arg(key).query(&mut client).unwrap();
        assert!(left > 0, "{key} expires, in {left} ms");
        let value: Vec<u8> = redis::cmd("DUMP").arg(key).query(&mut client).unwrap();
        for word in ["the-salt", "the-adapter"] {
            let found = value.windows(word.len()).any(|w| w == word.as_bytes());
            assert!(!found, "{key} holds {word}");
        }
    }
    let log = keys.iter().find(|key| key.ends_with(":log")).expect("a log");
    let length: usize = redis::cmd("XLEN").arg(log).query(&mut client).unwrap();
    assert!(length <= 300, "a log of {length} entries");
    // Tokens as the log would spell them: each 1,000,000 × (seed + 1) and some.
    let entries: redis::Value =
        redis::cmd("XRANGE").arg(log).arg(&["-", "+"]).query(&mut client).unwrap();
    let spelled = spelled_numbers(&entries);
    assert!(spelled.len() > 100, "there are numbers: {}", spelled.len());
    let is_token = |number: &u32| (0..500).any(|seed| tokens(seed, 3).contains(number));
    assert!(!spelled.iter().any(is_token));
}

/// All 32-bit numbers of MessagePack in the entries' payloads.
fn spelled_numbers(value: &redis::Value) -> Vec<u32> {
    match value {
        redis::Value::Array(values) => values.iter().flat_map(spelled_numbers).collect(),
        redis::Value::BulkString(bytes) => {
            let spelled = bytes.windows(5).filter(|bytes| bytes[0] == 0xce);
            spelled
                .map(|bytes| u32::from_be_bytes(*bytes[1..].first_chunk().expect("four")))
                .collect()
        }
        _ => Vec::new(),
    }
}
