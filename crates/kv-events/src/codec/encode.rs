//! From events to bytes: the map form that vLLM writes since June 2026.

use headstart_core::block::without_lookahead;
use headstart_core::event::{Attention, CacheGroup, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Tier};

use super::extras::media_items;

/// Writes one payload: `timestamp_s` is seconds since 1970, `rank` the data-parallel rank.
#[must_use]
pub fn encode_batch(timestamp_s: f64, events: &[CacheEvent], rank: Option<u32>) -> Vec<u8> {
    let mut writer = PayloadWriter(Vec::with_capacity(capacity(events)));
    writer.array(3);
    writer.float(timestamp_s);
    writer.array(events.len());
    for event in events {
        writer.event(event);
    }
    match rank {
        Some(rank) => writer.number(u64::from(rank)),
        None => writer.nil(),
    }
    writer.0
}

/// About as many bytes as will be written: names and numbers at their longest.
fn capacity(events: &[CacheEvent]) -> usize {
    let bytes = |event: &CacheEvent| match event {
        CacheEvent::Stored(stored) => 256 + 18 * stored.blocks.len() + 5 * stored.tokens.len(),
        CacheEvent::Removed { blocks, .. } => 64 + 18 * blocks.len(),
        CacheEvent::Cleared => 32,
    };
    32 + events.iter().map(bytes).sum::<usize>()
}

/// A payload that grows.
struct PayloadWriter(Vec<u8>);

/// Of every result below.
const TAKEN: &str = "a vector takes every write";

impl PayloadWriter {
    fn event(&mut self, event: &CacheEvent) {
        match event {
            CacheEvent::Stored(stored) => self.stored(stored),
            CacheEvent::Removed { blocks, tier, group } => {
                // The group's field is written only where it is not 0, and the map's header must
                // count it.
                self.map(3 + usize::from(*group != 0));
                self.pair("type", "BlockRemoved");
                self.text("block_hashes");
                self.hashes(blocks);
                self.pair("medium", medium(*tier));
                if *group != 0 {
                    self.text("group_idx");
                    self.number(u64::from(*group));
                }
            }
            CacheEvent::Cleared => {
                self.map(1);
                self.pair("type", "AllBlocksCleared");
            }
        }
    }

    fn stored(&mut self, stored: &StoredBlocks) {
        let lookahead = stored.group.lookahead;
        // A header precedes its fields in MessagePack, so the count must agree with the writes
        // below.
        self.map(9 + num_group_fields(stored.group) + usize::from(lookahead > 0));
        self.pair("type", "BlockStored");
        self.text("block_hashes");
        self.hashes(&stored.blocks);
        self.text("parent_block_hash");
        match &stored.parent {
            Some(parent) => self.hash(parent),
            None => self.nil(),
        }
        self.text("token_ids");
        self.array(stored.tokens.len());
        for &token in &stored.tokens {
            self.number(u64::from(token));
        }
        self.text("block_size");
        self.number(u64::from(stored.block_size));
        // Our adapters have a name and no number.
        self.text("lora_id");
        self.nil();
        self.pair("medium", medium(stored.tier));
        self.text("lora_name");
        match stored.adapter.as_deref() {
            Some(name) => self.text(name),
            None => self.nil(),
        }
        self.text("extra_keys");
        self.extra_keys(stored);
        self.group(stored.group);
        if lookahead > 0 {
            self.text("lookahead_token_ids");
            self.lookahead(stored);
        }
    }

    /// The tokens behind each block that its name covers, of which its extra has them.
    fn lookahead(&mut self, stored: &StoredBlocks) {
        let num_tokens = stored.group.lookahead;
        self.array(stored.blocks.len());
        for index in 0..stored.blocks.len() {
            let extra = stored.extras.get(index).and_then(Option::as_deref);
            let extra = extra.unwrap_or_default();
            let media = without_lookahead(extra, num_tokens).len();
            let (tokens, _) = extra[media..].as_chunks::<4>();
            let tokens = tokens.iter().copied().map(u32::from_le_bytes);
            // A block without them cannot be named, and has other numbers than any token.
            let tokens = tokens.chain(std::iter::repeat(u32::MAX));
            self.array(num_tokens as usize);
            for token in tokens.take(num_tokens as usize) {
                self.number(u64::from(token));
            }
        }
    }

    /// Nothing where the group is the usual one.
    fn group(&mut self, group: CacheGroup) {
        if group == CacheGroup::default() {
            return;
        }
        self.text("group_idx");
        self.number(u64::from(group.index));
        let kind = match group.attention {
            Attention::Full => "full_attention",
            Attention::Window { .. } => "sliding_window",
            Attention::State => "mamba",
        };
        self.pair("kv_cache_spec_kind", kind);
        if let Attention::Window { tokens } = group.attention {
            self.text("kv_cache_spec_sliding_window");
            self.number(u64::from(tokens));
        }
    }

    /// One element per block: the adapter's name, what is in the block, and on the first block of
    /// a prompt the salt.
    fn extra_keys(&mut self, stored: &StoredBlocks) {
        // The salt belongs to the first block of a prompt, so an event with a parent sends none.
        let salt = stored.salt.as_deref().filter(|_| stored.parent.is_none());
        let adapter = stored.adapter.as_deref();
        if salt.is_none() && adapter.is_none() && stored.extras.is_empty() {
            return self.nil();
        }
        self.array(stored.blocks.len());
        for index in 0..stored.blocks.len() {
            let extra = stored.extras.get(index).and_then(Option::as_deref);
            let extra = without_lookahead(extra.unwrap_or_default(), stored.group.lookahead);
            let media = Media::of(extra);
            let salt = salt.filter(|_| index == 0);
            let length = usize::from(adapter.is_some()) + media.len() + usize::from(salt.is_some());
            if length == 0 {
                self.nil();
                continue;
            }
            self.array(length);
            adapter.into_iter().for_each(|name| self.text(name));
            self.media(&media);
            salt.into_iter().for_each(|salt| self.text(salt));
        }
    }

    fn media(&mut self, media: &Media<'_>) {
        match media {
            Media::Items(items) => {
                for (name, place) in items {
                    self.array(2);
                    // Identifiers of other engines may be bytes, and MessagePack's texts must be
                    // UTF-8.
                    match std::str::from_utf8(name) {
                        Ok(name) => self.text(name),
                        Err(_) => self.bytes(name),
                    }
                    rmp::encode::write_sint(&mut self.0, *place).expect(TAKEN);
                }
            }
            Media::Opaque(bytes) => self.bytes(bytes),
        }
    }

    fn hashes(&mut self, hashes: &[BlockHash]) {
        self.array(hashes.len());
        hashes.iter().for_each(|hash| self.hash(hash));
    }

    /// A number where 64 bits hold it, as engines with integer hashes send; bytes otherwise.
    fn hash(&mut self, hash: &BlockHash) {
        match u64::try_from(u128::from_be_bytes(hash.0)) {
            Ok(number) => self.number(number),
            Err(_) => self.bytes(&hash.0),
        }
    }

    fn pair(&mut self, name: &str, text: &str) {
        self.text(name);
        self.text(text);
    }

    fn text(&mut self, text: &str) {
        rmp::encode::write_str(&mut self.0, text).expect(TAKEN);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        rmp::encode::write_bin(&mut self.0, bytes).expect(TAKEN);
    }

    fn number(&mut self, number: u64) {
        rmp::encode::write_uint(&mut self.0, number).expect(TAKEN);
    }

    fn float(&mut self, number: f64) {
        rmp::encode::write_f64(&mut self.0, number).expect(TAKEN);
    }

    fn nil(&mut self) {
        rmp::encode::write_nil(&mut self.0).expect(TAKEN);
    }

    /// # Panics
    /// When `length` exceeds 32 bits, as [`Self::map`] does: no batch is that long.
    fn array(&mut self, length: usize) {
        let length = u32::try_from(length).expect("a batch fits into memory");
        rmp::encode::write_array_len(&mut self.0, length).expect(TAKEN);
    }

    fn map(&mut self, pairs: usize) {
        let pairs = u32::try_from(pairs).expect("an event has few fields");
        rmp::encode::write_map_len(&mut self.0, pairs).expect(TAKEN);
    }
}

/// Extra key of a block: media items, or opaque bytes that Headstart did not write.
enum Media<'a> {
    Items(Vec<(&'a [u8], i64)>),
    Opaque(&'a [u8]),
}

impl<'a> Media<'a> {
    fn of(extra: &'a [u8]) -> Self {
        media_items(extra).map_or(Self::Opaque(extra), Self::Items)
    }

    fn len(&self) -> usize {
        match self {
            Self::Items(items) => items.len(),
            Self::Opaque(_) => 1,
        }
    }
}

fn num_group_fields(group: CacheGroup) -> usize {
    match group.attention {
        Attention::Window { .. } => 3,
        Attention::Full | Attention::State if group == CacheGroup::default() => 0,
        Attention::Full | Attention::State => 2,
    }
}

fn medium(tier: Tier) -> &'static str {
    match tier {
        Tier::Device => "GPU",
        Tier::Host => "CPU",
        Tier::Disk => "STORAGE",
        Tier::Remote => "EXTERNAL",
    }
}
