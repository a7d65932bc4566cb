//! A batch of events, decoded, numbered and recognisable: from the codec to the stream.

use headstart_core::CacheEvent;
use headstart_core::event::StoredBlocks;

/// One message of a publisher, decoded by its receiver. Number and fingerprint are not part of the
/// payload: the receiver adds them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamBatch {
    /// Its number. `u64::MAX` marks the end of a replay on the wire and is never a batch's.
    pub seq: u64,
    /// When it was made, by the publisher's clock, in seconds since 1970. What is not finite or
    /// not above 0 counts as absent.
    pub ts: Option<f64>,
    /// Stands for the payload's bytes: equal payloads, equal fingerprints, and nearly only then.
    pub fingerprint: u128,
    /// The data-parallel rank that it names.
    pub rank: Option<u32>,
    /// Decoded events, in order.
    pub events: Vec<CacheEvent>,
    /// Parts of it that were not decoded.
    pub damage: Damage,
    /// The type of the first event whose type we do not know: printable ASCII, and short.
    pub unknown_type: Option<Box<str>>,
}

/// Loss of a batch that was not fully decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Damage {
    /// Nothing: all of it was understood.
    #[default]
    None,
    /// Some events were left out.
    Skipped {
        /// Why, in a word, and how many for that.
        reasons: Vec<(&'static str, u64)>,
        /// Whether a removal may be among them: then what is known to be held may be gone.
        may_have_removed: bool,
    },
    /// The payload as a whole: as good as lost, except that its number is known.
    Unreadable,
}

impl Damage {
    /// Takes note of an event that was left out, and of whether it may have been a removal.
    pub fn add(&mut self, reason: &'static str, is_removal: bool) {
        if *self == Self::None {
            *self = Self::Skipped { reasons: Vec::new(), may_have_removed: false };
        }
        let Self::Skipped { reasons, may_have_removed } = self else {
            return;
        };
        *may_have_removed |= is_removal;
        // A search in a list: there are fewer than ten reasons.
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => reasons.push((reason, 1)),
        }
    }
}

impl StreamBatch {
    /// Its timestamp, if it has one that can be one.
    pub(super) fn time(&self) -> Option<f64> {
        self.ts.filter(|ts| ts.is_finite() && *ts > 0.0)
    }

    /// Whether it comes after `other` of the same process, by number and timestamp. One that cannot
    /// be read says nothing that could be of the wrong process.
    pub(super) fn is_after(&self, other: &Self) -> bool {
        let is_unreadable = self.damage == Damage::Unreadable;
        // Without both timestamps nothing shows that it is newer.
        let is_newer = self.time().zip(other.time()).is_some_and(|(ts, other)| ts > other);
        self.seq > other.seq && (is_newer || is_unreadable)
    }

    /// Whether everything was gone at some point of it.
    pub(super) fn has_clear(&self) -> bool {
        self.events.iter().any(|event| matches!(event, CacheEvent::Cleared))
    }

    /// Memory while it is held, bytes, without what allocators add.
    pub(super) fn footprint(&self) -> usize {
        let events = self.events.iter().map(|event| {
            size_of::<CacheEvent>()
                + match event {
                    CacheEvent::Stored(stored) => stored_bytes(stored),
                    CacheEvent::Removed { blocks, .. } => size_of_val(&blocks[..]),
                    CacheEvent::Cleared => 0,
                }
        });
        size_of::<Self>() + events.sum::<usize>()
    }
}

fn stored_bytes(stored: &StoredBlocks) -> usize {
    let extras = stored.extras.iter().flatten().map(|extra| extra.len());
    let names = [&stored.salt, &stored.adapter].into_iter().flatten();
    size_of_val(&stored.blocks[..])
        + size_of_val(&stored.tokens[..])
        + size_of_val(&stored.extras[..])
        + extras.sum::<usize>()
        + names.map(|name| name.len()).sum::<usize>()
}
