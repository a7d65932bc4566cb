//! One connection to the server, and every command that is sent over it.
//!
//! ```text
//! headstart:index:v1:MODEL:secret                        what all gateways' secrets must match
//! headstart:index:v1:MODEL:IDENTITY:{REPLICA}:lease      GATEWAY TERM        who writes
//! headstart:index:v1:MODEL:IDENTITY:{REPLICA}:log        a stream of records
//! headstart:index:v1:MODEL:IDENTITY:{REPLICA}:base       POSITION            what comes before
//! headstart:index:v1:MODEL:IDENTITY:{REPLICA}:base:POSITION    list: how many, then the parts
//! ```
//!
//! Conditions between two of them are checked and acted on in one script: a gateway writes only
//! while the lease is its own in that very moment. All waits are bounded, and any error ends the
//! connection, since it is unknown which answers are under way. All keys expire, so that a fleet
//! that is gone leaves nothing behind.
//!
//! It does not know what records mean. One server, no cluster. Source: the Redis command
//! reference; `XTRIM … MINID` came with 6.2.

use std::collections::HashMap;
use std::time::Duration;

use redis::{Client, Connection, RedisError, RedisResult, Value};

use super::config::Timing;
use super::record::{EntryFields, Position};

/// Entries that one read of one log returns at most.
const READ_ENTRIES: usize = 128;

/// The same for a read of many logs, all together: some megabytes, as an entry is one step's.
const READ_ENTRIES_OF_ALL: usize = 1024;

/// Entries of each log in any case, or it takes a question for each.
const READ_ENTRIES_MIN: usize = 8;

/// Time for which a replaced base may still be read.
const GRACE: Duration = Duration::from_secs(60);

/// Bytes of the number that a base begins with, at most.
const NUMBER_BYTES: usize = 20;

/// Parts of a base that go in one command.
const PARTS: usize = 16;

/// Leases that end within four times as long as they last are held, others are damaged: one that
/// never ends, or that began before the server's clock was set back.
const HOLDERS: &str = "
local held = {}
for at, key in ipairs(KEYS) do
  local left = redis.call('PTTL', key)
  local holder = left > 0 and left <= 4 * ARGV[1] and redis.pcall('GET', key)
  held[at] = type(holder) == 'string' and holder
end
return held";

/// Takes the lease if it is free, damaged or ours, begins a term and says so in the log. What is
/// no lease, no log, no base goes, and so does a log whose last term no number follows exactly.
const ACQUIRE: &str = "
for at, kind in ipairs({'string', 'stream', 'string'}) do
  local found = redis.call('TYPE', KEYS[at]).ok
  if found ~= kind and found ~= 'none' then redis.call('DEL', KEYS[at]) end
end
local holder = redis.call('GET', KEYS[1])
local left = redis.call('PTTL', KEYS[1])
local is_held = holder and left > 0 and left <= 4 * ARGV[2]
if is_held and string.sub(holder, 1, #ARGV[1] + 1) ~= ARGV[1] .. ' ' then return false end
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
if last and tonumber(string.match(last[1], '^%d+')) > 2^52 then
  redis.call('DEL', KEYS[2])
  last = nil
end
local now = redis.call('TIME')
local term = now[1] * 1000 + math.floor(now[2] / 1000)
local before = '0-0'
if last then
  before = last[1]
  term = math.max(term, tonumber(string.match(before, '^%d+')) + 1)
end
local name = string.format('%.0f', term)
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. name, 'PX', ARGV[2])
redis.call('XADD', KEYS[2], name .. '-0', 'k', 'taken', 't', ARGV[4], 'p', before)
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {name, redis.call('XLEN', KEYS[2])}";

/// Prolongs a lease that is ours, and the life of all that belongs to it.
const RENEW: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
local base = redis.call('GET', KEYS[3])
if base then
  redis.call('PEXPIRE', KEYS[3], ARGV[3])
  redis.call('PEXPIRE', KEYS[3] .. ':' .. base, ARGV[3])
end
return 1";

/// Adds an entry under our lease. An entry that is there already was written before its answer got
/// lost: no other gateway writes in our term. If a later entry stands in its way, the log is no
/// longer ours.
const APPEND: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local added = redis.pcall('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], ARGV[3],
  'k', ARGV[4], 't', ARGV[5], 'p', ARGV[6])
if type(added) == 'table' and added.err then
  if not string.find(added.err, 'equal or smaller', 1, true) then return added end
  if redis.call('XRANGE', KEYS[2], ARGV[3], ARGV[3])[1] then return 1 end
  redis.call('DEL', KEYS[1])
  return 0
end
return 1";

/// Makes a list that was written the base, under our lease. What stands in the log behind the one
/// before stays, for readers who are a little late.
const REBASE: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local old = redis.call('GET', KEYS[3])
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
redis.call('PEXPIRE', KEYS[3] .. ':' .. ARGV[2], ARGV[3])
if old and old ~= ARGV[2] then
  redis.call('PEXPIRE', KEYS[3] .. ':' .. old, ARGV[4])
  redis.call('XTRIM', KEYS[2], 'MINID', old)
end
return 1";

/// Gives a lease back that is ours.
const RELEASE: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])";

/// The keys of one replica.
#[derive(Clone, Debug)]
pub(super) struct ReplicaKeys {
    lease: String,
    log: String,
    base: String,
}

impl ReplicaKeys {
    /// `space` is what all gateways of a fleet agree upon.
    pub(super) fn new(space: &str, replica: &str) -> Self {
        let key = |what| format!("{space}:{{{replica}}}:{what}");
        Self { lease: key("lease"), log: key("log"), base: key("base") }
    }

    fn base_at(&self, position: Position) -> String {
        format!("{}:{position}", self.base)
    }
}

/// A lease that we took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplicaLease {
    pub(super) term: u64,
    /// As it stands in the server.
    value: String,
}

/// Gateway that holds a lease, and its term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseOwner {
    pub(super) gateway: String,
    pub(super) term: u64,
}

impl LeaseOwner {
    fn read(value: &str) -> Option<Self> {
        let (gateway, term) = value.split_once(' ')?;
        Some(Self { gateway: gateway.to_owned(), term: term.parse().ok()? })
    }
}

/// Whether the lease was still ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseCheck {
    Yes,
    No,
}

/// An entry to add.
#[derive(Clone, Debug)]
pub(super) struct UnsentEntry {
    pub(super) position: Position,
    pub(super) kind: &'static str,
    pub(super) at: u64,
    pub(super) payload: std::sync::Arc<[u8]>,
}

/// Entries of a log: each its id and fields.
pub(super) type Entries = Vec<(String, EntryFields)>;

pub(super) struct ServerLink {
    connection: Connection,
    timing: Timing,
    scripts: [String; 6],
}

/// In the order of [`ServerLink::scripts`].
#[derive(Clone, Copy)]
enum ServerScript {
    Holders,
    Acquire,
    Renew,
    Append,
    Rebase,
    Release,
}

impl ServerLink {
    pub(super) fn open(client: &Client, timing: Timing) -> RedisResult<Self> {
        let mut connection = client.get_connection_with_timeout(timing.reply)?;
        // A server that hangs must not hold the thread for longer than a lease lasts.
        connection.set_read_timeout(Some(timing.reply))?;
        connection.set_write_timeout(Some(timing.reply))?;
        let mut scripts: [String; 6] = Default::default();
        let texts = [HOLDERS, ACQUIRE, RENEW, APPEND, REBASE, RELEASE];
        for (name, text) in scripts.iter_mut().zip(texts) {
            // Per connection: a restarted server has no scripts, and its error ends the old
            // connection.
            *name = redis::cmd("SCRIPT").arg("LOAD").arg(text).query(&mut connection)?;
        }
        Ok(Self { connection, timing, scripts })
    }

    /// Sets `key` to `wanted` unless it is set, keeps it alive, and returns its value.
    pub(super) fn agree(&mut self, key: &str, wanted: &str) -> RedisResult<String> {
        let keep = millis(self.timing.keep);
        let mut pipe = redis::pipe();
        // Nothing is there to be trimmed; a server that is too old does not know the word.
        let probe = format!("{key}:probe");
        pipe.cmd("XTRIM").arg(probe).arg("MINID").arg(0).ignore();
        let set = pipe.cmd("SET").arg(key).arg(wanted).arg("NX");
        set.arg("PX").arg(keep).ignore();
        // `SET NX` leaves an existing key's end as it was.
        pipe.cmd("PEXPIRE").arg(key).arg(keep).ignore();
        pipe.cmd("GET").arg(key);
        let (found,): (String,) = pipe.query(&mut self.connection)?;
        Ok(found)
    }

    /// Returns the holder of each lease, this gateway included; `None` where it is free.
    pub(super) fn holders(&mut self, keys: &[ReplicaKeys]) -> RedisResult<Vec<Option<LeaseOwner>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut command = redis::cmd("EVALSHA");
        let script = &self.scripts[ServerScript::Holders as usize];
        command.arg(script).arg(keys.len());
        keys.iter().for_each(|keys| {
            command.arg(&keys.lease);
        });
        command.arg(millis(self.timing.lease));
        let values: Vec<Option<String>> = command.query(&mut self.connection)?;
        let holder = |value: Option<String>| value.as_deref().and_then(LeaseOwner::read);
        Ok(values.into_iter().map(holder).collect())
    }

    /// Takes the lease, unless another gateway was faster. Returns it and the number of entries in
    /// the log.
    pub(super) fn acquire(
        &mut self,
        keys: &ReplicaKeys,
        gateway: &str,
        at: u64,
    ) -> RedisResult<Option<(ReplicaLease, usize)>> {
        let mut command = self.script(ServerScript::Acquire, keys);
        command.arg(gateway).arg(millis(self.timing.lease));
        command.arg(millis(self.timing.keep)).arg(at);
        let taken: Option<(String, usize)> = command.query(&mut self.connection)?;
        Ok(taken.and_then(|(term, entries)| {
            let lease =
                ReplicaLease { value: format!("{gateway} {term}"), term: term.parse().ok()? };
            Some((lease, entries))
        }))
    }

    pub(super) fn renew(
        &mut self,
        leases: &[(ReplicaKeys, ReplicaLease)],
    ) -> RedisResult<Vec<LeaseCheck>> {
        // One round trip for all leases, however many replicas there are.
        let mut pipe = redis::pipe();
        for (keys, lease) in leases {
            let mut command = self.script(ServerScript::Renew, keys);
            command.arg(&lease.value).arg(millis(self.timing.lease));
            command.arg(millis(self.timing.keep));
            pipe.add_command(command);
        }
        self.held(&pipe, leases.len())
    }

    pub(super) fn append(
        &mut self,
        entries: &[(ReplicaKeys, ReplicaLease, Vec<UnsentEntry>)],
    ) -> RedisResult<Vec<LeaseCheck>> {
        let mut pipe = redis::pipe();
        let mut number = 0;
        for (keys, lease, entries) in entries {
            for entry in entries {
                let mut command = self.script(ServerScript::Append, keys);
                command.arg(&lease.value).arg(self.timing.log_entries);
                command.arg(entry.position.to_string()).arg(entry.kind);
                command.arg(entry.at).arg(&entry.payload[..]);
                pipe.add_command(command);
                number += 1;
            }
        }
        self.held(&pipe, number)
    }

    pub(super) fn release(&mut self, keys: &ReplicaKeys, lease: &ReplicaLease) -> RedisResult<()> {
        let mut command = self.script(ServerScript::Release, keys);
        command.arg(&lease.value);
        command.query(&mut self.connection)
    }

    /// The position of the log's last entry.
    pub(super) fn last(&mut self, keys: &ReplicaKeys) -> RedisResult<Position> {
        let mut command = redis::cmd("XREVRANGE");
        command.arg(&keys.log).arg("+").arg("-").arg("COUNT").arg(1);
        let last: Entries = command.query(&mut self.connection)?;
        let id = last.first().and_then(|(id, _)| id.parse().ok());
        Ok(id.unwrap_or_default())
    }

    /// Entries behind a position, up to and with another.
    pub(super) fn range(
        &mut self,
        keys: &ReplicaKeys,
        after: Position,
        upto: Position,
    ) -> RedisResult<Entries> {
        let mut command = redis::cmd("XRANGE");
        command.arg(&keys.log).arg(format!("({after}"));
        command.arg(upto.to_string());
        command.arg("COUNT").arg(READ_ENTRIES);
        command.query(&mut self.connection)
    }

    /// New entries behind these positions; waits a little for the first one, if it may. The
    /// answer names logs by their place in the question.
    pub(super) fn read(
        &mut self,
        logs: &[(ReplicaKeys, Position)],
        may_wait: bool,
    ) -> RedisResult<Vec<(usize, Entries)>> {
        let mut command = redis::cmd("XREAD");
        // Fewer of each log where there are many, so that one answer stays within some megabytes.
        let count = READ_ENTRIES_OF_ALL / logs.len().max(1);
        let count = count.clamp(READ_ENTRIES_MIN, READ_ENTRIES);
        command.arg("COUNT").arg(count);
        if may_wait {
            command.arg("BLOCK").arg(millis(self.timing.wait));
        }
        command.arg("STREAMS");
        logs.iter().for_each(|(keys, _)| {
            command.arg(&keys.log);
        });
        logs.iter().for_each(|(_, position)| {
            command.arg(position.to_string());
        });
        // An empty answer comes only after the wait, and then takes as long as any other.
        let patience = self.timing.reply + self.timing.wait;
        self.connection.set_read_timeout(Some(patience))?;
        let read: Option<Vec<(String, Entries)>> = command.query(&mut self.connection)?;
        self.connection.set_read_timeout(Some(self.timing.reply))?;
        let read = read.unwrap_or_default();
        let names = logs.iter().enumerate();
        // The server names logs by key and leaves out those without news.
        let names: HashMap<_, _> = names.map(|(at, (keys, _))| (&keys.log, at)).collect();
        let place = |(log, entries)| Some((*names.get(&log)?, entries));
        Ok(read.into_iter().filter_map(place).collect())
    }

    /// Reads the base and its position; `None` if it is missing, incomplete or too large.
    pub(super) fn base(
        &mut self,
        keys: &ReplicaKeys,
    ) -> RedisResult<Option<(Position, Vec<Vec<u8>>)>> {
        let mut get = redis::cmd("GET");
        let found: Option<String> = get.arg(&keys.base).query(&mut self.connection)?;
        let Some(position) = found.and_then(|text| text.parse().ok()) else {
            return Ok(None);
        };
        let key = keys.base_at(position);
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut bytes = 0;
        loop {
            // In pieces: each must arrive within the time for one answer.
            let mut range = redis::cmd("LRANGE");
            range.arg(&key).arg(parts.len());
            range.arg(parts.len() + PARTS - 1);
            let more: Vec<Vec<u8>> = range.query(&mut self.connection)?;
            if more.is_empty() {
                break;
            }
            bytes += more.iter().map(Vec::len).sum::<usize>();
            // Any client of the server may have written a base of any size.
            if bytes > self.timing.base_bytes + NUMBER_BYTES {
                return Ok(None);
            }
            parts.extend(more);
        }
        let count = parts.first().and_then(|text| str::from_utf8(text).ok());
        // A writer that died, or an end of life between two pieces, leaves fewer parts than
        // announced.
        let is_whole = count.and_then(|count| count.parse().ok()) == Some(parts.len());
        Ok(is_whole.then(|| (position, parts.split_off(1))))
    }

    /// Writes a base and puts it in the place of all that led to it.
    pub(super) fn rebase(
        &mut self,
        keys: &ReplicaKeys,
        lease: &ReplicaLease,
        position: Position,
        parts: &[Vec<u8>],
    ) -> RedisResult<LeaseCheck> {
        let key = keys.base_at(position);
        let mut pipe = redis::pipe();
        // Parts of an earlier attempt at the same position would come first.
        pipe.cmd("DEL").arg(&key).ignore();
        let count = (parts.len() + 1).to_string();
        pipe.cmd("RPUSH").arg(&key).arg(count).ignore();
        // Not the base yet: if this gateway dies now, the parts expire.
        pipe.cmd("PEXPIRE").arg(&key).arg(millis(GRACE)).ignore();
        pipe.query::<()>(&mut self.connection)?;
        for parts in parts.chunks(PARTS) {
            let mut push = redis::cmd("RPUSH");
            push.arg(&key).arg(parts);
            push.query::<Value>(&mut self.connection)?;
        }
        // The base changes last and in one step, so a reader finds the old one or the whole new
        // one.
        let mut command = self.script(ServerScript::Rebase, keys);
        command.arg(&lease.value).arg(position.to_string());
        command.arg(millis(self.timing.keep)).arg(millis(GRACE));
        let held: i64 = command.query(&mut self.connection)?;
        Ok(held_by(held))
    }

    fn script(&self, script: ServerScript, keys: &ReplicaKeys) -> redis::Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.scripts[script as usize]).arg(3);
        command.arg(&keys.lease).arg(&keys.log).arg(&keys.base);
        command
    }

    fn held(&mut self, pipe: &redis::Pipeline, number: usize) -> RedisResult<Vec<LeaseCheck>> {
        if number == 0 {
            return Ok(Vec::new());
        }
        let held: Vec<i64> = pipe.query(&mut self.connection)?;
        Ok(held.into_iter().map(held_by).collect())
    }
}

fn held_by(answer: i64) -> LeaseCheck {
    match answer {
        1 => LeaseCheck::Yes,
        _ => LeaseCheck::No,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Errors of a server that cannot serve now but may later: it is loading or full, cannot save, or
/// has just lost its master.
const LATER: [&str; 9] = [
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "max number of clients",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    "READONLY",
];

/// Whether an error says that the server is not there, or not yet, and not that it is the wrong
/// one.
pub(super) fn is_outage(error: &RedisError) -> bool {
    let text = error.to_string();
    error.is_io_error() || error.is_timeout() || LATER.iter().any(|word| text.contains(word))
}

/// An error in words: what the system says of a late answer says something else.
pub(super) fn reason(error: &RedisError) -> String {
    if error.is_timeout() { "no answer in time".to_owned() } else { error.to_string() }
}
