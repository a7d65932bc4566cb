//! From bytes to events.

use headstart_core::event::{Attention, CacheGroup, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Tier};
use headstart_router::stream::StreamBatch;

use super::cursor::{Cursor, CutOff, Value, ValueHead};
use super::extras::{self, Salt};
use super::fields::{EventField, EventFields, block_hash, list, token, unsigned_32};
use super::lookahead;
use super::{DecodeError, PAYLOAD_BYTES_MAX, SkipReason, SkippedEvent, TYPE_CHARS_MAX};

/// Bytes of the shortest event that can be used, a removal of nothing: `["BlockRemoved", []]`.
const EVENT_BYTES_MIN: usize = 15;

/// Reads one payload. Linear in its size; allocates for elements that are there, never for
/// those that a header merely claims.
///
/// # Errors
/// When nothing of it can be used.
pub fn decode_batch(payload: &[u8]) -> Result<StreamBatch, DecodeError> {
    decode_and_tell(payload, &mut |_| {})
}

/// The same, and calls `skip` with each event that is left out.
///
/// # Errors
/// When nothing of it can be used.
pub fn decode_and_tell(
    payload: &[u8],
    skip: &mut dyn FnMut(SkippedEvent),
) -> Result<StreamBatch, DecodeError> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(DecodeError::TooLarge { bytes: payload.len() });
    }
    let mut cursor = Cursor::new(payload);
    let mut batch = StreamBatch::default();
    match cursor.head()? {
        ValueHead::Array(length @ 2..) => {
            batch.ts = timestamp(cursor.value()?);
            read_events(&mut cursor, &mut batch, skip)?;
            // Older engines send no rank. Newer ones may add elements, which are skipped.
            if length > 2 {
                batch.rank = unsigned_32(cursor.value()?);
                cursor.skip(length - 3)?;
            }
        }
        ValueHead::Map(pairs) => read_named(&mut cursor, pairs, &mut batch, skip)?,
        _ => return Err(DecodeError::NotABatch),
    }
    Ok(batch)
}

/// The first one of a name counts.
fn read_named(
    cursor: &mut Cursor<'_>,
    pairs: usize,
    batch: &mut StreamBatch,
    skip: &mut dyn FnMut(SkippedEvent),
) -> Result<(), DecodeError> {
    // A map has no order: the rank may come before the events.
    let (mut ts, mut rank, mut has_events) = (None, None, false);
    for _ in 0..pairs {
        match cursor.value()? {
            Value::Text(b"events") if !has_events => {
                read_events(cursor, batch, skip)?;
                has_events = true;
            }
            Value::Text(b"ts") => {
                ts.get_or_insert(cursor.value()?);
            }
            Value::Text(b"data_parallel_rank") => {
                rank.get_or_insert(cursor.value()?);
            }
            _ => cursor.skip(1)?,
        }
    }
    batch.ts = ts.and_then(timestamp);
    batch.rank = rank.and_then(unsigned_32);
    has_events.then_some(()).ok_or(DecodeError::NotABatch)
}

fn timestamp(value: Value<'_>) -> Option<f64> {
    value.float().filter(|ts| ts.is_finite())
}

fn read_events(
    cursor: &mut Cursor<'_>,
    batch: &mut StreamBatch,
    skip: &mut dyn FnMut(SkippedEvent),
) -> Result<(), DecodeError> {
    let ValueHead::Array(length) = cursor.head()? else {
        return Err(DecodeError::NotABatch);
    };
    // A header may claim an element per byte, and an event here is far larger than a byte. Only as
    // many as could be usable get room.
    let most = cursor.num_left() / EVENT_BYTES_MIN;
    batch.events.reserve_exact(length.min(most));
    for index in 0..length {
        match event(cursor, &mut batch.unknown_type)? {
            Ok(event) => batch.events.push(event),
            // An event that cannot be used ends nothing: its neighbours are still read.
            Err((reason, may_have_removed)) => {
                batch.damage.add(reason.label(), may_have_removed);
                skip(SkippedEvent { index, reason, may_have_removed });
            }
        }
    }
    Ok(())
}

/// An event, or the reason to skip it and whether it may have been a removal or a clear.
type EventResult = Result<CacheEvent, (SkipReason, bool)>;

/// `unknown_type` is where the first type goes that we do not know.
fn event(
    cursor: &mut Cursor<'_>,
    unknown_type: &mut Option<Box<str>>,
) -> Result<EventResult, CutOff> {
    let Some(fields) = EventFields::read(cursor)? else {
        // Anything of an unknown form may have been a removal, so the caller must doubt.
        return Ok(Err((SkipReason::NotAnEvent, true)));
    };
    Ok(match fields.tag() {
        Some("BlockStored") => {
            // A store that is left out makes the index miss blocks, and never makes blocks up.
            let stored = stored(&fields).map(CacheEvent::Stored);
            stored.map_err(|reason| (reason, false))
        }
        Some("BlockRemoved") => {
            // Where nothing is taken in, nothing goes.
            let left_out = [SkipReason::OtherGroup, SkipReason::UnknownTier];
            removed(&fields).map_err(|reason| (reason, !left_out.contains(&reason)))
        }
        Some("AllBlocksCleared") => Ok(CacheEvent::Cleared),
        Some(name) => {
            unknown_type.get_or_insert_with(|| in_short(name));
            // A newer engine's event may remove blocks under a name that we do not know.
            Err((SkipReason::UnknownTag, true))
        }
        None => Err((SkipReason::NotAnEvent, true)),
    })
}

/// A name from outside, fit for a log: its beginning, in printable ASCII.
fn in_short(name: &str) -> Box<str> {
    let mut characters = name.chars();
    let start = characters.by_ref().take(TYPE_CHARS_MAX);
    // Escaped because the name goes to a log: a hostile engine must not write lines of its own
    // there.
    let mut short: String = start.flat_map(char::escape_default).collect();
    if characters.next().is_some() {
        short += "...";
    }
    short.into()
}

fn stored(fields: &EventFields<'_>) -> Result<StoredBlocks, SkipReason> {
    let (mut group, may_be_sparse) = group(fields)?;
    let blocks = block_hashes(fields)?;
    if blocks.is_empty() {
        // A store of nothing would leave its tokens without a block to belong to.
        return Err(SkipReason::Invalid(EventField::BlockHashes.text()));
    }
    let parent = parent(fields)?;
    let mut tokens = required(fields, EventField::TokenIds, |value| value.array()?.numbers(token))?;
    let block_size = required(fields, EventField::BlockSize, unsigned_32)?;
    // Groups with a window, or of states, keep only some blocks of the prompt whose tokens they
    // send.
    if !fills(tokens.len(), blocks.len(), block_size)? {
        if !may_be_sparse {
            return Err(SkipReason::Length {
                tokens: tokens.len(),
                blocks: blocks.len(),
                block_size,
            });
        }
        // The tokens cannot be matched to the blocks, so another group's event has to bring them.
        tokens = Vec::new();
    }
    let adapter = extras::adapter(fields);
    // vLLM hashes the salt into the first block only. Later blocks inherit it through their parent.
    let salt = match parent {
        None => extras::salt(fields, adapter.as_deref()),
        Some(_) => Salt::default(),
    };
    let mut extras = extras::media(fields, blocks.len(), adapter.as_deref(), salt);
    group.lookahead = lookahead::add(fields, blocks.len(), !tokens.is_empty(), &mut extras)?;
    Ok(StoredBlocks {
        extras,
        salt: salt.text.map(Into::into),
        tier: tier(fields)?,
        group,
        blocks,
        parent,
        tokens,
        block_size,
        adapter,
    })
}

fn removed(fields: &EventFields<'_>) -> Result<CacheEvent, SkipReason> {
    Ok(CacheEvent::Removed {
        group: group_index(fields)?,
        tier: tier(fields)?,
        blocks: block_hashes(fields)?,
    })
}

fn block_hashes(fields: &EventFields<'_>) -> Result<Vec<BlockHash>, SkipReason> {
    required(fields, EventField::BlockHashes, |value| list(value, block_hash))
}

/// Nil is the start of a prompt, and the number 0 a hash like any other.
fn parent(fields: &EventFields<'_>) -> Result<Option<BlockHash>, SkipReason> {
    let Some(value) = fields.get(EventField::Parent) else {
        return Ok(None);
    };
    let hash = block_hash(value).ok_or(SkipReason::Invalid(EventField::Parent.text()))?;
    Ok(Some(hash))
}

fn required<'a, T>(
    fields: &EventFields<'a>,
    name: EventField,
    read: impl Fn(Value<'a>) -> Option<T>,
) -> Result<T, SkipReason> {
    let value = fields.get(name).ok_or(SkipReason::Missing(name.text()))?;
    read(value).ok_or(SkipReason::Invalid(name.text()))
}

/// Whether there are as many tokens as the blocks have; or none, as where the tier of known
/// blocks changes. Only there may the block size be 0.
fn fills(tokens: usize, blocks: usize, block_size: u32) -> Result<bool, SkipReason> {
    if tokens == 0 {
        return Ok(true);
    }
    if block_size == 0 {
        return Err(SkipReason::Invalid(EventField::BlockSize.text()));
    }
    // Widened: 32 bits of size times a count of blocks may exceed 32 bits.
    Ok(tokens as u64 == blocks as u64 * u64::from(block_size))
}

fn tier(fields: &EventFields<'_>) -> Result<Tier, SkipReason> {
    const NAMES: [(&str, Tier); 6] = [
        ("GPU", Tier::Device),
        ("CPU", Tier::Host),
        ("CPU_PINNED", Tier::Host),
        ("DISK", Tier::Disk),
        ("STORAGE", Tier::Disk),
        ("EXTERNAL", Tier::Remote),
    ];
    let Some(medium) = fields.get(EventField::Medium) else {
        // No medium means the device: older engines report no other tier.
        return Ok(Tier::Device);
    };
    let medium = medium.text().ok_or(SkipReason::Invalid(EventField::Medium.text()))?;
    let mut names = NAMES.iter();
    let found = names.find(|(name, _)| medium.eq_ignore_ascii_case(name));
    found.map(|&(_, tier)| tier).ok_or(SkipReason::UnknownTier)
}

fn group_index(fields: &EventFields<'_>) -> Result<u8, SkipReason> {
    // Engines with a single cache group name none.
    let Some(value) = fields.get(EventField::Group) else {
        return Ok(0);
    };
    let index = value.unsigned().ok_or(SkipReason::Invalid(EventField::Group.text()))?;
    u8::try_from(index).map_err(|_| SkipReason::OtherGroup)
}

/// The group, and whether it may keep only some of a prompt's blocks. What we do not know is
/// taken for full attention, which may miss a prefix but never makes one up.
fn group(fields: &EventFields<'_>) -> Result<(CacheGroup, bool), SkipReason> {
    let index = group_index(fields)?;
    let kind = fields.get(EventField::SpecKind).map(|kind| kind.text().unwrap_or_default());
    let window = || fields.get(EventField::SpecWindow).and_then(unsigned_32);
    let (attention, may_be_sparse) = match kind {
        Some("full_attention" | "mla_attention" | "sink_full_attention") => {
            (Attention::Full, false)
        }
        // An index above 0 means several groups, any of which may be sparse.
        None => (Attention::Full, index > 0),
        Some("sliding_window" | "sliding_window_mla") => match window() {
            Some(tokens @ 1..) => (Attention::Window { tokens }, true),
            // Without its length a window cannot be used for matching.
            _ => (Attention::Full, true),
        },
        Some("mamba") => (Attention::State, true),
        Some("encoder_only_attention" | "cross_attention") => {
            return Err(SkipReason::OtherAttention);
        }
        Some(_) => (Attention::Full, true),
    };
    let group = CacheGroup { index, attention, lookahead: 0 };
    Ok((group, may_be_sparse))
}
