//! A decoded batch as the text that `tools/kv_events/golden.py` writes.

use std::fmt::Write;

use headstart_core::event::{Attention, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Tier};
use headstart_kv_events::decode_and_tell;

pub(crate) fn render(payload: &[u8]) -> String {
    let mut left_out = Vec::new();
    let batch = match decode_and_tell(payload, &mut |skipped| left_out.push(skipped)) {
        Ok(batch) => batch,
        Err(error) => return format!("error: {error}"),
    };
    let ts = batch.ts.map_or("-".to_owned(), |ts| format!("{ts:?}"));
    let rank = batch.rank.map_or("-".to_owned(), |rank| rank.to_string());
    let mut lines = vec![format!("ts {ts} rank {rank}")];
    lines.extend(batch.events.iter().map(event));
    for skipped in left_out {
        let doubt = if skipped.may_have_removed { ", may have removed" } else { "" };
        lines.push(format!("skipped {}: {}{doubt}", skipped.index, skipped.reason.label()));
    }
    lines.join("\n")
}

fn event(event: &CacheEvent) -> String {
    match event {
        CacheEvent::Stored(stored) => self::stored(stored),
        CacheEvent::Removed { blocks, tier, group } => {
            let names: Vec<_> = blocks.iter().map(handle).collect();
            let names = if names.is_empty() { "nothing".to_owned() } else { names.join(" ") };
            format!("removed from {} group {group}: {names}", name_of(*tier))
        }
        CacheEvent::Cleared => "cleared".to_owned(),
    }
}

fn stored(stored: &StoredBlocks) -> String {
    let attention = match stored.group.attention {
        Attention::Full => "full".to_owned(),
        Attention::Window { tokens } => format!("window {tokens}"),
        Attention::State => "state".to_owned(),
    };
    let text = |text: Option<&str>| text.map_or("-".to_owned(), |text| name(text.as_bytes()));
    let mut lines = format!(
        "stored {} in {} size {} group {} {attention} parent {} adapter {} salt {}",
        stored.blocks.len(),
        name_of(stored.tier),
        stored.block_size,
        stored.group.index,
        stored.parent.as_ref().map_or("-".to_owned(), handle),
        text(stored.adapter.as_deref()),
        text(stored.salt.as_deref()),
    );
    let size = stored.block_size as usize;
    for (index, block) in stored.blocks.iter().enumerate() {
        let tokens = stored.tokens.get(index * size..(index + 1) * size);
        let tokens: Vec<_> = tokens.into_iter().flatten().map(u32::to_string).collect();
        let tokens = if tokens.is_empty() { "no tokens".to_owned() } else { tokens.join(" ") };
        write!(lines, "\n  {}: {tokens}", handle(block)).expect("a text grows");
        let extra = stored.extras.get(index).and_then(Option::as_deref);
        if let Some(extra) = extra {
            write!(lines, " + {}", items(extra).join(", ")).expect("a text grows");
        }
    }
    lines
}

fn handle(hash: &BlockHash) -> String {
    format!("{:x}", u128::from_be_bytes(hash.0))
}

fn name_of(tier: Tier) -> &'static str {
    match tier {
        Tier::Device => "device",
        Tier::Host => "host",
        Tier::Disk => "disk",
        Tier::Remote => "remote",
    }
}

/// A name as it is, or its bytes where it is no printable ASCII.
fn name(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && bytes.iter().all(u8::is_ascii_graphic) => text.to_owned(),
        _ => bytes.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}")),
    }
}

/// The identifiers and places in what `headstart_core::block::media_extra` wrote.
fn items(mut extra: &[u8]) -> Vec<String> {
    let mut items = Vec::new();
    while let Some((length, rest)) = extra.split_first_chunk() {
        let (identifier, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
        let (place, rest) = rest.split_first_chunk().expect("a place");
        items.push(format!("{}@{}", name(identifier), i64::from_le_bytes(*place)));
        extra = rest;
    }
    items
}
