//! `--upstream`: which engines stand behind a gateway.
//!
//! Each is checked by itself, and against the others: an engine that is named twice, or an event
//! port that two would share, is refused with both names. It does not know whether anybody is
//! there.

use std::ops::RangeInclusive;

use crate::exit::usage;
use anyhow::{Result, bail};
use headstart_server::UpstreamConfig;

/// Syntax of an upstream.
const UPSTREAM_FORM: &str =
    "URL[,kv=tcp://HOST:PORT][,replay=tcp://HOST:PORT][,tokenizer=DIR][,data-parallel-size=N]";

/// Most data-parallel ranks of one engine: each is a replica to choose from. Far more than any
/// engine of one address has.
const DATA_PARALLEL_SIZE_MAX: u32 = 1024;

/// The upstreams that these texts name.
pub(super) fn parse(specs: &[String]) -> Result<Vec<UpstreamConfig>> {
    let configs: Result<Vec<UpstreamConfig>> = specs.iter().map(|spec| upstream(spec)).collect();
    let configs = configs?;
    // The number of upstreams is small, so all pairs are compared.
    for (at, one) in configs.iter().enumerate() {
        for (before, other) in configs[..at].iter().enumerate() {
            if let Some(clash) = clash(other, one) {
                bail!(usage(format!(
                    "--upstream {} and --upstream {}: {clash}",
                    specs[before], specs[at]
                )));
            }
        }
    }
    Ok(configs)
}

/// Why two upstreams cannot both be meant.
fn clash(one: &UpstreamConfig, other: &UpstreamConfig) -> Option<String> {
    let address = address(&one.url);
    if address == self::address(&other.url) {
        return Some(format!(
            "both are the engine at {address}, whose load and cache would count twice; leave one \
             out (its data-parallel ranks are named by data-parallel-size=N)"
        ));
    }
    let others = endpoints(other);
    // A `kv` port of one engine may collide with the `replay` port of another, so all pairs count.
    let mut pairs = endpoints(one).into_iter().flat_map(|one| {
        let others = others.iter().cloned();
        others.map(move |other| (one.clone(), other))
    });
    let (one, other) = pairs.find(|(one, other)| one.overlaps(other))?;
    Some(format!(
        "{one} and {other} overlap, but each engine, and each data-parallel rank of it, publishes \
         on ports of its own; correct the one that is wrong, or set the engines' ports further \
         apart, here and there"
    ))
}

/// An engine's address in one spelling.
fn address(url: &str) -> String {
    let url = url.to_ascii_lowercase();
    // Clients may give the address with or without the API's version.
    let url = url.trim_end_matches('/').trim_end_matches("/v1");
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    // The last colon may be inside an IPv6 address in brackets.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => (host, port),
        _ => (authority, "80"),
    };
    format!("http://{}:{port}{path}", same_host(host))
}

/// The usual two names of this machine are one.
fn same_host(host: &str) -> String {
    match host.to_ascii_lowercase().as_str() {
        "localhost" | "[::1]" => "127.0.0.1".to_owned(),
        other => other.to_owned(),
    }
}

/// The neighbouring ports on which the ranks of an engine publish or replay.
#[derive(Clone, Debug)]
struct Endpoint {
    option: &'static str,
    address: String,
    host: String,
    ports: RangeInclusive<u32>,
}

impl Endpoint {
    fn overlaps(&self, other: &Self) -> bool {
        let is_apart =
            self.ports.end() < other.ports.start() || other.ports.end() < self.ports.start();
        self.host == other.host && !is_apart
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.option, self.address)?;
        let (first, last) = (self.ports.start(), self.ports.end());
        if first == last { Ok(()) } else { write!(f, " (its ranks' ports {first} to {last})") }
    }
}

/// Returns the addresses of an engine's event publisher and replay socket, as far as given.
fn endpoints(config: &UpstreamConfig) -> Vec<Endpoint> {
    let given = [("kv", config.kv_events.as_deref()), ("replay", config.kv_replay.as_deref())];
    let endpoint = |(option, address): (&'static str, Option<&str>)| {
        let (host, port) = address?.strip_prefix("tcp://")?.rsplit_once(':')?;
        // The last rank may lead beyond port 65535, so ports are `u32`.
        let first: u32 = port.parse().ok()?;
        Some(Endpoint {
            option,
            address: address?.to_owned(),
            host: same_host(host),
            // Rank r has the first port plus r.
            ports: first..=first + config.data_parallel_size.max(1) - 1,
        })
    };
    given.into_iter().filter_map(endpoint).collect()
}

fn upstream(spec: &str) -> Result<UpstreamConfig> {
    let wrong = |what: &str| -> anyhow::Error {
        usage(format!("--upstream {spec}: {what}; the form is {UPSTREAM_FORM}"))
    };
    let mut parts = spec.split(',');
    let url = parts.next().filter(|url| !url.is_empty());
    let mut config = UpstreamConfig {
        url: url.ok_or_else(|| wrong("the URL is missing"))?.to_owned(),
        kv_events: None,
        kv_replay: None,
        data_parallel_size: 1,
        tokenizer: None,
    };
    let mut given: Vec<(&str, &str)> = Vec::new();
    for part in parts {
        let name = match part.split_once('=') {
            Some(("kv", address)) => {
                config.kv_events = Some(tcp(address, &wrong)?);
                "kv"
            }
            Some(("replay", address)) => {
                config.kv_replay = Some(tcp(address, &wrong)?);
                "replay"
            }
            Some(("tokenizer", folder)) => {
                config.tokenizer = Some(folder.into());
                "tokenizer"
            }
            Some(("data-parallel-size" | "dp", ranks)) => {
                config.data_parallel_size = data_parallel_size(ranks, &wrong)?;
                "data-parallel-size"
            }
            _ => return Err(wrong(&format!("`{part}` is not understood"))),
        };
        if let Some((_, before)) = given.iter().find(|(known, _)| *known == name) {
            return Err(wrong(&format!(
                "`{before}` and `{part}` set the same option twice; leave one out, or name the \
                 second engine with a second --upstream"
            )));
        }
        given.push((name, part));
    }
    // Events name blocks by tokens, so the gateway must tokenize prompts to look them up.
    if config.kv_events.is_some() && config.tokenizer.is_none() {
        return Err(wrong("kv= needs tokenizer=, or prompts cannot be matched with the events"));
    }
    // Replay fills gaps in the sequence of events, so it is useless without them.
    if config.kv_replay.is_some() && config.kv_events.is_none() {
        return Err(wrong("replay= needs kv="));
    }
    // The ranks of one engine can overlap with themselves as well.
    if let [kv, replay] = &endpoints(&config)[..]
        && kv.overlaps(replay)
    {
        return Err(wrong(&format!(
            "{kv} and {replay} overlap; set them further apart, here and there"
        )));
    }
    Ok(config)
}

fn data_parallel_size(ranks: &str, wrong: &impl Fn(&str) -> anyhow::Error) -> Result<u32> {
    match ranks.parse() {
        Ok(ranks @ 1..=DATA_PARALLEL_SIZE_MAX) => Ok(ranks),
        _ => Err(wrong(&format!(
            "data-parallel-size is a number from 1 to {DATA_PARALLEL_SIZE_MAX}, not `{ranks}`"
        ))),
    }
}

fn tcp(address: &str, wrong: &impl Fn(&str) -> anyhow::Error) -> Result<String> {
    let rest = address.strip_prefix("tcp://").and_then(|rest| rest.rsplit_once(':'));
    match rest {
        // Engines bind to `*` or to port 0, and users copy that address from the engine's command.
        Some(("*", _)) | Some((_, "0")) => Err(wrong(&format!(
            "`{address}` is where an engine binds, not where it is reached; give its host and the \
             port that it publishes on"
        ))),
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Ok(address.to_owned())
        }
        _ => Err(wrong(&format!("`{address}` is not tcp://HOST:PORT with a port up to 65535"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: &str, expected: Result<(&str, Option<&str>), &str>) {
        match (upstream(spec), expected) {
            (Ok(got), Ok((url, events))) => {
                assert_eq!((got.url.as_str(), got.kv_events.as_deref()), (url, events));
            }
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (got, expected) => panic!("{spec}: {got:?} against {expected:?}"),
        }
    }

    #[test]
    fn upstream_specifications_are_checked() {
        check("http://h:1", Ok(("http://h:1", None)));
        check("http://h:1,kv=tcp://h:2,tokenizer=d", Ok(("http://h:1", Some("tcp://h:2"))));
        check("http://h:1,kv=tcp://h:2", Err("needs tokenizer="));
        check("http://h:1,replay=tcp://h:2", Err("needs kv="));
        check("http://h:1,kv=h:2,tokenizer=d", Err("not tcp://"));
        check("http://h:1,what=1", Err("`what=1`"));
        check("http://h:1,data-parallel-size=0", Err("from 1 to 1024"));
        check("http://h:1,dp=1025", Err("from 1 to 1024"));
        let ports = |kv, replay, ranks| {
            format!("http://h:1,kv=tcp://h:{kv},replay=tcp://h:{replay},tokenizer=d,dp={ranks}")
        };
        check(&ports(10, 14, 4), Ok(("http://h:1", Some("tcp://h:10"))));
        check(&ports(10, 13, 4), Err("overlap"));
        check(&ports(10, 7, 4), Err("overlap"));
        check(&ports(10, 10, 1), Err("overlap"));
        check("", Err("URL is missing"));
    }

    #[test]
    fn ranks_are_counted_under_either_name() {
        let ranks = |spec| upstream(spec).expect("is understood").data_parallel_size;
        assert_eq!(ranks("http://h:1"), 1);
        assert_eq!(ranks("http://h:1,data-parallel-size=8"), 8);
        assert_eq!(ranks("http://h:1,dp=2"), 2);
    }

    /// Parses several at once; `Err` is parts of the message.
    fn check_all(specs: &[&str], expected: Result<usize, &[&str]>) {
        let owned: Vec<String> = specs.iter().map(|&spec| spec.to_owned()).collect();
        match (parse(&owned), expected) {
            (Ok(got), Ok(count)) => assert_eq!(got.len(), count),
            (Err(error), Err(parts)) => {
                let text = error.to_string();
                let named = specs.iter().chain(parts);
                named.for_each(|part| assert!(text.contains(part), "{part}: {text}"));
            }
            (got, expected) => panic!("{specs:?}: {got:?} against {expected:?}"),
        }
    }

    /// Issue 5: all of these were taken.
    #[test]
    fn an_option_is_given_once() {
        let twice = "`kv=tcp://h:2` and `kv=tcp://h:3` set the same option twice";
        check("http://h:1,kv=tcp://h:2,kv=tcp://h:3,tokenizer=d", Err(twice));
        check("http://h:1,tokenizer=d,tokenizer=d", Err("twice"));
        check("http://h:1,dp=2,data-parallel-size=2", Err("twice"));
        check("http://h:1,kv=tcp://*:5557,tokenizer=d", Err("binds"));
        check("http://h:1,kv=tcp://h:0,tokenizer=d", Err("binds"));
    }

    #[test]
    fn an_engine_is_named_once() {
        let twice = |one, other| check_all(&[one, other], Err(&["the engine at", "leave one out"]));
        twice("http://h:1", "http://h:1");
        twice("http://h:1", "http://H:1/v1/");
        twice("http://h", "http://h:80,tokenizer=d");
        twice("http://localhost:1", "http://127.0.0.1:1");
        check_all(&["http://h:1", "http://h:2", "http://g:1"], Ok(3));
        check_all(&["http://h:1/a", "http://h:1/b"], Ok(2));
    }

    #[test]
    fn no_two_engines_publish_on_one_port() {
        let shared = |one: &str, other: &str, is_shared: bool| {
            let one = format!("http://h:1,tokenizer=d,{one}");
            let other = format!("http://h:2,tokenizer=d,{other}");
            let expected = if is_shared { Err(&["overlap", "correct the one"][..]) } else { Ok(2) };
            check_all(&[&one, &other], expected);
            check_all(&[&other, &one], expected);
        };
        shared("kv=tcp://h:10", "kv=tcp://h:11", false);
        shared("kv=tcp://h:10", "kv=tcp://h:10", true);
        shared("kv=tcp://h:10", "kv=tcp://g:10", false);
        shared("kv=tcp://localhost:10", "kv=tcp://127.0.0.1:10", true);
        shared("kv=tcp://h:10,dp=4", "kv=tcp://h:14,dp=4", false);
        shared("kv=tcp://h:10,dp=4", "kv=tcp://h:13", true);
        shared("kv=tcp://h:10,replay=tcp://h:20", "kv=tcp://h:20", true);
        shared("kv=tcp://h:10,replay=tcp://h:20,dp=4", "kv=tcp://h:30,replay=tcp://h:23", true);
        shared("kv=tcp://h:10,replay=tcp://h:20,dp=4", "kv=tcp://h:30,replay=tcp://h:24", false);
    }

    /// Against laying out every port.
    #[test]
    fn ports_overlap_where_one_is_in_both() {
        for (first, ranks, second, others) in (0..2_000).map(|seed: u32| {
            let draw = |shift: u32| (seed.wrapping_mul(2_654_435_761) >> shift) % 12;
            (draw(3), draw(9) % 5 + 1, draw(15), draw(21) % 5 + 1)
        }) {
            let endpoint = |port, ranks| Endpoint {
                option: "kv",
                address: String::new(),
                host: "h".to_owned(),
                ports: port..=port + ranks - 1,
            };
            let is_shared =
                (first..first + ranks).any(|port| (second..second + others).contains(&port));
            let (one, other) = (endpoint(first, ranks), endpoint(second, others));
            assert_eq!(one.overlaps(&other), is_shared, "{one:?} {other:?}");
        }
    }
}
