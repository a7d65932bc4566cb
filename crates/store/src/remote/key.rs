//! Keys of objects: names that describe a record without reading it.
//!
//! ```text
//! {root}/v1/{tenant}/{xx}/{name}_{parent}_{tokens}_{expires}.kv
//! ```
//!
//! The tenant has 16 digits, `xx` is the name's first byte, so that folders stay small, and names
//! have 32 digits, all hexadecimal; no parent is `-`. Tokens and seconds are decimal, and 0 seconds
//! are no end. The names of packs end in `.pack`. So a listing alone says what is there, and all of
//! a tenant lies under one prefix. Invariant: each key has one spelling, and what is not spelled so
//! is not ours.

use headstart_core::{BlockHash, TenantTag};
use object_store::path::Path;

use crate::backend::ResidentRecord;
use crate::record::{Content, Meta};

/// Version of the format of keys and records. Other versions beside it are left alone.
const VERSION: &str = "v1";

/// Folder of quarantined records, beside [`VERSION`].
const QUARANTINE: &str = "quarantine";

/// Suffix of the names of units.
const UNIT: &str = ".kv";

/// Suffix of the names of packs; versions that do not know packs leave them alone.
const PACK: &str = ".pack";

/// A record, as its object's name has it. Ordered so that of two objects of one record the greater
/// one stays: the one that can be read for longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectKey {
    expires: Expires,
    pub(super) name: BlockHash,
    pub(super) parent: Option<BlockHash>,
    pub(super) tenant: TenantTag,
    pub(super) tokens: u32,
    pub(super) content: Content,
}

/// Seconds since 1970; never is after all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Expires {
    At(u64),
    Never,
}

impl ObjectKey {
    pub(super) fn of(meta: &Meta) -> Self {
        Self::of_resident(&ResidentRecord::of(meta, 0))
    }

    /// Of a record that was listed; its end must be the one that its object's name has.
    pub(super) fn of_resident(resident: &ResidentRecord) -> Self {
        Self {
            expires: Expires::of(resident.expires_s.unwrap_or(0)),
            name: resident.name,
            parent: resident.parent,
            tenant: resident.tenant,
            tokens: resident.tokens,
            content: resident.content,
        }
    }

    /// Returns the resident record of this key, `bytes` long.
    pub(super) fn resident(&self, bytes: u64) -> ResidentRecord {
        ResidentRecord {
            name: self.name,
            parent: self.parent,
            tenant: self.tenant,
            bytes,
            tokens: self.tokens,
            expires_s: self.expires_s(),
            content: self.content,
        }
    }

    /// From when on it must not be used, seconds since 1970.
    pub(super) fn expires_s(&self) -> Option<u64> {
        match self.expires {
            Expires::At(seconds) => Some(seconds),
            Expires::Never => None,
        }
    }

    fn file_name(&self) -> String {
        let Self { name, tokens, .. } = self;
        let parent = self.parent.map_or("-".to_owned(), |parent| format!("{parent:?}"));
        let expires = self.expires_s().unwrap_or(0);
        let ending = match self.content {
            Content::Unit => UNIT,
            Content::Pack => PACK,
        };
        format!("{name:?}_{parent}_{tokens}_{expires}{ending}")
    }

    fn parse(tenant: &str, file_name: &str) -> Option<Self> {
        let tenant = u64::from_str_radix(tenant, 16).ok()?;
        let (content, fields) = match file_name.strip_suffix(UNIT) {
            Some(fields) => (Content::Unit, fields),
            None => (Content::Pack, file_name.strip_suffix(PACK)?),
        };
        let mut fields = fields.split('_');
        let name = hash(fields.next()?)?;
        let parent = match fields.next()? {
            "-" => None,
            parent => Some(hash(parent)?),
        };
        let tokens = fields.next()?.parse().ok()?;
        let expires = Expires::of(fields.next()?.parse().ok()?);
        let tenant = TenantTag(tenant);
        fields.next().is_none().then_some(Self { expires, name, parent, tenant, tokens, content })
    }
}

impl Expires {
    fn of(seconds: u64) -> Self {
        match seconds {
            0 => Self::Never,
            seconds => Self::At(seconds),
        }
    }
}

fn hash(digits: &str) -> Option<BlockHash> {
    let number = u128::from_str_radix(digits, 16).ok()?;
    Some(BlockHash(number.to_be_bytes()))
}

/// Paths under one root.
#[derive(Clone, Debug)]
pub(super) struct ObjectLayout {
    root: Path,
}

impl ObjectLayout {
    pub(super) fn under(root: Path) -> Self {
        Self { root }
    }

    /// The folder of all records.
    pub(super) fn records(&self) -> Path {
        self.root.clone().join(VERSION)
    }

    /// The folders of all that belongs to `tenant`.
    pub(super) fn of_tenant(&self, tenant: TenantTag) -> [Path; 2] {
        let tenant = format!("{:016x}", tenant.0);
        [self.records(), self.quarantine()].map(|folder| folder.join(tenant.as_str()))
    }

    /// The folder of what was set aside.
    pub(super) fn quarantine(&self) -> Path {
        self.root.clone().join(QUARANTINE)
    }

    /// Nothing is ever there: asking for it says whether the store answers.
    pub(super) fn probe(&self) -> Path {
        self.root.clone().join("probe")
    }

    /// The object of a record.
    pub(super) fn object(&self, key: &ObjectKey) -> Path {
        let [records, _] = self.of_tenant(key.tenant);
        let shard = format!("{:02x}", key.name.0[0]);
        records.join(shard.as_str()).join(key.file_name().as_str())
    }

    /// Returns the path of a quarantined record.
    pub(super) fn set_aside(&self, key: &ObjectKey) -> Path {
        let [_, quarantine] = self.of_tenant(key.tenant);
        quarantine.join(key.file_name().as_str())
    }

    /// The record whose object this is.
    pub(super) fn parse(&self, object: &Path) -> Option<ObjectKey> {
        let records = self.records();
        let mut parts = object.prefix_match(&records)?;
        let tenant = parts.next()?;
        // The shard follows from the name, so the comparison below covers it.
        let (_shard, file_name) = (parts.next()?, parts.next()?);
        let key = ObjectKey::parse(tenant.as_ref(), file_name.as_ref())?;
        // Reading is more generous than writing: signs, leading zeros, capitals.
        (self.object(&key) == *object).then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    fn layout() -> ObjectLayout {
        ObjectLayout::under(Path::from("some/prefix"))
    }

    fn random_key(rng: &mut Rng) -> ObjectKey {
        let hash = |rng: &mut Rng| {
            let (high, low) = (u128::from(rng.next_u64()), u128::from(rng.next_u64()));
            let shift = rng.below(128);
            BlockHash((((high << 64) | low) >> shift).to_be_bytes())
        };
        ObjectKey {
            expires: Expires::of(rng.next_u64() >> rng.below(64)),
            name: hash(rng),
            parent: (rng.below(2) == 0).then(|| hash(rng)),
            tenant: TenantTag(rng.next_u64() >> rng.below(64)),
            tokens: (rng.next_u64() >> rng.below(64)) as u32,
            content: match rng.below(3) {
                0 => Content::Pack,
                _ => Content::Unit,
            },
        }
    }

    #[test]
    fn a_key_is_spelled_as_documented() {
        let mut key = ObjectKey {
            expires: Expires::At(1_700_000_000),
            name: BlockHash([0xab; 16]),
            parent: Some(BlockHash::from_u64(1)),
            tenant: TenantTag(0x1f),
            tokens: 256,
            content: Content::Unit,
        };
        let object = layout().object(&key);
        assert_eq!(
            object.as_ref(),
            "some/prefix/v1/000000000000001f/ab/abababababababababababababababab_\
             00000000000000000000000000000001_256_1700000000.kv"
        );
        key.parent = None;
        key.expires = Expires::Never;
        let aside = layout().set_aside(&key);
        assert_eq!(
            aside.as_ref(),
            "some/prefix/quarantine/000000000000001f/abababababababababababababababab_-_256_0.kv"
        );
        assert_eq!(layout().parse(&aside), None, "what is set aside is no record");
    }

    #[test]
    fn what_is_written_is_read_back_and_folders_contain_it() {
        let mut rng = Rng::new(1);
        for _ in 0..2_000 {
            let key = random_key(&mut rng);
            let object = layout().object(&key);
            assert_eq!(layout().parse(&object), Some(key));
            assert_eq!(ObjectLayout::under(Path::default()).parse(&object), None);
            let [records, quarantine] = layout().of_tenant(key.tenant);
            assert!(object.prefix_matches(&records));
            assert!(layout().set_aside(&key).prefix_matches(&quarantine));
        }
    }

    #[test]
    fn noise_is_nothing_and_each_key_has_one_spelling() {
        let mut rng = Rng::new(2);
        let letters = b"0123456789abcdefABCDEF_-+./kvx \xc3";
        for _ in 0..20_000 {
            let key = random_key(&mut rng);
            let mut text = layout().object(&key).as_ref().as_bytes().to_vec();
            for _ in 0..rng.below(4) {
                let at = rng.below(text.len());
                match rng.below(3) {
                    0 => text[at] = letters[rng.below(letters.len())],
                    1 => text.insert(at, letters[rng.below(letters.len())]),
                    _ => drop(text.remove(at)),
                }
            }
            let Ok(object) = Path::parse(String::from_utf8_lossy(&text)) else {
                continue;
            };
            if let Some(read) = layout().parse(&object) {
                assert_eq!(layout().object(&read), object);
            }
        }
    }

    #[test]
    fn what_lasts_longer_is_greater() {
        let mut key = random_key(&mut Rng::new(3));
        let mut with = |expires| {
            key.expires = expires;
            key
        };
        assert!(with(Expires::At(5)) < with(Expires::At(6)));
        assert!(with(Expires::At(u64::MAX)) < with(Expires::Never));
    }
}
