//! Logs that no gateway writes or can read, keys and records that no gateway made, replicas that
//! are too large: nothing is believed without reason, nothing ends, everything heals.

use headstart_index_sync::shared::GatewayRole;
use headstart_router::PrefixIndex;
use headstart_router::index::Update;

use crate::faults::{R0, member, owner, removed, stored, tell, tokens};
use crate::gateway::{Common, Gateway, hasty};
use crate::proxy::{Proxy, Way};
use crate::service::{Memory, Service, eventually};

/// Looks at something that must not happen, while what could bring it about is under way.
const LOOKS: usize = 2_000;

/// The key of the one replica's lease, log or base.
fn key(service: &Service, what: &str) -> String {
    let mut client = service.client();
    let mut ask = redis::cmd("KEYS");
    let found: Vec<String> = ask.arg(format!("*:{what}")).query(&mut client).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().unwrap()
}

/// Tells the server something that gateways never say.
fn say(service: &Service, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    let _: redis::Value = command.query(&mut service.client()).expect("it is done");
}

fn trusted(gateway: &Gateway, seed: u32) -> usize {
    gateway.overlap(R0, &tokens(seed, 4)).1
}

fn start(common: &mut Common) -> (Gateway, Gateway) {
    common.timing = hasty();
    let a = owner(common, &common.url);
    let b = member(common, &common.url, true);
    tell(&a, common, &[stored(1, 4)]);
    b.follows(&a);
    assert_eq!(trusted(&b, 1), 8);
    (a, b)
}

/// One owner and one reader, who learns what the other hears.
fn works(common: &Common, a: &Gateway, b: &Gateway) {
    let find = || {
        let is_owner = |gateway: &&Gateway| gateway.report(R0).role == GatewayRole::Owning;
        let owner = [a, b].into_iter().find(is_owner)?;
        let reader = if std::ptr::eq(owner, a) { b } else { a };
        let is_equal = owner.report(R0).position == reader.report(R0).position;
        (owner.report(R0).unsent == 0 && is_equal).then_some((owner, reader))
    };
    // An event is lost if its gateway does not know yet that it is no longer the owner.
    eventually("a reader of what was said", || {
        let Some((owner, reader)) = find() else {
            return false;
        };
        let is_known = trusted(reader, 9) == 8;
        if !is_known {
            tell(owner, common, &[stored(9, 4)]);
        }
        is_known
    });
}

#[test]
fn who_cannot_read_does_not_believe_what_it_read() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let mut common = Common::new(service.url(), 1);
    common.timing = hasty();
    let proxy = Proxy::to(service.port());
    let a = owner(&common, &common.url);
    let b = member(&common, &proxy.url(), false);
    tell(&a, &common, &[stored(1, 4), stored(2, 4)]);
    b.follows(&a);
    let errors = b.index.shared_stats().errors;
    proxy.set(Way::ReadersBlocked);
    tell(&a, &common, &[removed(2, 0)]);
    eventually("doubt", || trusted(&b, 1) == 0 && trusted(&b, 2) == 0);
    assert!(b.is(GatewayRole::Following), "the server is there");
    assert!(b.index.shared_stats().errors > errors, "it is told");
    proxy.set(Way::Open);
    b.follows(&a);
    assert_eq!((trusted(&b, 1), trusted(&b, 2)), (8, 0));
    assert_eq!(b.residents(), a.residents());
}

#[test]
fn a_log_that_nobody_writes_is_not_believed() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let mut common = Common::new(service.url(), 1);
    common.timing = hasty();
    let proxy = Proxy::to(service.port());
    let a = owner(&common, &proxy.url());
    // Neither of these can hear the engine.
    let b = member(&common, &common.url, false);
    tell(&a, &common, &[stored(1, 4)]);
    b.follows(&a);
    assert_eq!(trusted(&b, 1), 8);
    proxy.set(Way::Blocked);
    eventually("doubt", || trusted(&b, 1) == 0);
    let c = member(&common, &common.url, false);
    for _ in 0..LOOKS {
        assert_eq!((trusted(&b, 1), trusted(&c, 1)), (0, 0));
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    let d = owner(&common, &common.url);
    c.follows(&d);
    assert_eq!(c.overlap(R0, &tokens(1, 4)), (8, 0), "it may be there");
}

#[test]
fn keys_that_are_something_else_are_made_anew() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    for what in ["lease", "log"] {
        let mut common = Common::new(service.url(), 1);
        let (a, b) = start(&mut common);
        say(&service, &["SET", &key(&service, what), "no such thing"]);
        works(&common, &a, &b);
        assert_eq!(trusted(&b, 1), 0, "{what}: nobody knows whether it is there");
        say(&service, &["FLUSHALL"]);
    }
}

#[test]
fn a_lease_that_never_ends_is_none() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let mut common = Common::new(service.url(), 1);
    let (a, b) = start(&mut common);
    say(&service, &["SET", &key(&service, "lease"), "dead 1"]);
    works(&common, &a, &b);
}

/// A record that is later than any owner's, as none is.
fn check_foreign(id: &str) {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let mut common = Common::new(service.url(), 1);
    let (a, b) = start(&mut common);
    say(&service, &["XADD", &key(&service, "log"), id, "k", "?"]);
    eventually("doubt", || trusted(&b, 1) == 0);
    // Neither is anything lost without a word.
    tell(&a, &common, &[removed(1, 0)]);
    works(&common, &a, &b);
}

#[test]
fn a_record_in_the_way_ends_the_term() {
    check_foreign("99999999999999-1");
}

#[test]
fn no_record_is_the_last_one() {
    check_foreign("99999999999999-18446744073709551615");
    check_foreign("18446744073709551615-18446744073709551615");
}

#[test]
fn a_log_that_goes_back_in_time_is_read_anew() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let mut common = Common::new(service.url(), 1);
    let (a, b) = start(&mut common);
    let log = key(&service, "log");
    say(&service, &["XADD", &log, "99999999999999-0", "k", "taken"]);
    eventually("a reader far ahead", || {
        let read = b.report(R0).position;
        read.is_some_and(|read| read.term == 99_999_999_999_999)
    });
    say(&service, &["DEL", &log, &key(&service, "lease")]);
    works(&common, &a, &b);
}

#[test]
fn a_base_that_is_damaged_or_too_long_is_none() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let mut common = Common::new(service.url(), 1);
    common.timing.base_bytes = 1 << 16;
    let a = owner(&common, &common.url);
    let read = || a.report(R0).position.expect("it owns").number;
    // The log begins behind the one before the last.
    for round in 1..=3 {
        let seeds = 33 * (round - 1)..33 * round;
        seeds.for_each(|seed| tell(&a, &common, &[stored(seed as u32, 4)]));
        eventually("a base", || a.index.shared_stats().bases == round);
    }
    tell(&a, &common, &[stored(99, 4)]);
    let base = key(&service, "base");
    let mut get = redis::cmd("GET");
    let position: String = get.arg(&base).query(&mut service.client()).unwrap();
    assert!(!position.ends_with(&format!("-{}", read())));
    let parts = format!("{base}:{position}");
    let check = |what: &str| {
        let c = member(&common, &common.url, false);
        c.follows(&a);
        assert_eq!(c.index.shared_stats().holes, 1, "{what}");
        assert_eq!(trusted(&c, 0), 0, "{what}: it was in the base alone");
        assert_eq!(trusted(&c, 99), 8, "{what}: it is in the log");
        c.local.check();
    };
    say(&service, &["LSET", &parts, "-1", "12345678 no events"]);
    check("damaged");
    let long = "x".repeat(1 << 17);
    say(&service, &["LSET", &parts, "-1", &long]);
    check("too long");
}

#[test]
fn a_replica_too_large_for_a_base_is_told_of() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let mut common = Common::new(service.url(), 1);
    common.timing.base_handles = 100;
    let a = owner(&common, &common.url);
    for seed in 0..40 {
        tell(&a, &common, &[stored(seed, 4)]);
    }
    eventually("none", || a.index.shared_stats().too_large > 0);
    assert_eq!(a.index.shared_stats().bases, 0);
}

#[test]
fn leases_are_renewed_between_two_bases() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    const REPLICAS: u32 = 6;
    let mut common = Common::new(service.url(), REPLICAS);
    let bases = common.timing.rebase_entries;
    common.timing.rebase_entries = usize::MAX;
    let a = owner(&common, &common.url);
    for replica in common.replicas() {
        for seed in 0..2 * bases as u32 {
            let events = [stored(seed, 4)];
            a.update(replica, Update::Events(&events), common.now());
        }
    }
    eventually("all is written", || common.replicas().all(|replica| a.report(replica).unsent == 0));
    a.index.leave();
    say(&service, &["CONFIG", "SET", "slowlog-max-len", "100000"]);
    say(&service, &["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    // All logs are long for who comes now.
    common.timing.rebase_entries = bases;
    let b = owner(&common, &common.url);
    eventually("a base of each", || b.index.shared_stats().bases == u64::from(REPLICAS));
    let slow: Vec<redis::Value> =
        redis::cmd("SLOWLOG").arg(&["GET", "100000"]).query(&mut service.client()).unwrap();
    // What begins a renewal, and what begins a base; the latest comes first.
    let words = slow.iter().rev().filter_map(|entry| {
        let is = |word: &str| spells(entry, word);
        let is_base = is("DEL").then_some('b');
        is("XTRIM").then_some('r').or(is_base)
    });
    let order: String = words.collect();
    assert_eq!(order.matches('b').count(), REPLICAS as usize, "{order}");
    assert!(!order.contains("bb"), "{order}");
}

/// Whether one of the words of a command is this.
fn spells(value: &redis::Value, word: &str) -> bool {
    match value {
        redis::Value::Array(values) => values.iter().any(|value| spells(value, word)),
        redis::Value::BulkString(bytes) => bytes == word.as_bytes(),
        _ => false,
    }
}

#[test]
fn a_server_that_is_full_is_waited_for() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let mut common = Common::new(service.url(), 1);
    common.timing = hasty();
    say(&service, &["CONFIG", "SET", "maxmemory", "1"]);
    let a = member(&common, &common.url, true);
    a.becomes(GatewayRole::Alone);
    tell(&a, &common, &[stored(1, 4)]);
    assert_eq!(trusted(&a, 1), 8, "it listens for itself");
    say(&service, &["CONFIG", "SET", "maxmemory", "0"]);
    a.becomes(GatewayRole::Owning);
    let b = member(&common, &common.url, true);
    b.follows(&a);
    // It fills up: both go on alone, and what was heard from others is in doubt.
    tell(&a, &common, &[stored(2, 4)]);
    b.follows(&a);
    assert_eq!(trusted(&b, 2), 8);
    say(&service, &["CONFIG", "SET", "maxmemory", "1"]);
    b.becomes(GatewayRole::Alone);
    assert_eq!(trusted(&b, 2), 0);
    assert_eq!(trusted(&a, 2), 8, "it heard so itself");
}
