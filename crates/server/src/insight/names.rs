//! Names that tell nothing to those who do not know the secret.

use headstart_core::block::Namespace;

/// Numbers namespaces and models, and names tenants by tags.
pub(super) struct NameHasher {
    secret: [u8; 32],
    /// The number of the namespace that has no name: most requests are in it.
    unnamed: u64,
}

impl NameHasher {
    /// Derives the names' key from `secret`.
    pub(super) fn new(secret: u64) -> Self {
        let secret = blake3::derive_key("headstart 2026 insight names v1", &secret.to_le_bytes());
        Self { secret, unnamed: numbered(&secret, Namespace::default()) }
    }

    /// A number that stands for a namespace.
    pub(super) fn namespace(&self, namespace: Namespace<'_>) -> u64 {
        match (namespace.adapter, namespace.salt) {
            // Most requests have neither an adapter nor a salt; their number is hashed once.
            (None, None) => self.unnamed,
            _ => numbered(&self.secret, namespace),
        }
    }

    /// A number that stands for models.
    pub(super) fn models(&self, models: &[String]) -> u64 {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        models.iter().for_each(|model| add(&mut hasher, model));
        number(&hasher)
    }

    /// Returns the tag that stands for a tenant: 12 hex digits that do not reveal its salt.
    pub(super) fn tenant(&self, salt: &str) -> String {
        let namespace = Namespace { adapter: None, salt: Some(salt) };
        // The upper 48 bits are 12 hex digits: few enough to read, and enough to tell tenants
        // apart.
        format!("{:012x}", self.namespace(namespace) >> 16)
    }
}

fn numbered(secret: &[u8; 32], namespace: Namespace<'_>) -> u64 {
    let mut hasher = blake3::Hasher::new_keyed(secret);
    for field in [namespace.adapter, namespace.salt] {
        let text = field.unwrap_or_default();
        // An empty salt is a salt. Without this byte it would share a number with no salt.
        hasher.update(&[u8::from(field.is_some())]);
        add(&mut hasher, text);
    }
    number(&hasher)
}

fn add(hasher: &mut blake3::Hasher, text: &str) {
    // The length in front keeps `ab`, `c` apart from `a`, `bc`.
    hasher.update(&(text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
}

fn number(hasher: &blake3::Hasher) -> u64 {
    let hash = hasher.finalize();
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_have_tags_of_their_own_and_another_secret_gives_others() {
        let names = NameHasher::new(1);
        let tag = names.tenant("acme");
        assert_eq!((tag.len(), &tag), (12, &names.tenant("acme")));
        assert_ne!(tag, names.tenant("emca"));
        assert_ne!(tag, NameHasher::new(2).tenant("acme"));
    }
}
