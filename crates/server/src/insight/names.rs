//! Names that tell nothing to those who do not know the secret.

use headstart_core::block::{Namespace, RouteHasher, RouteIdentity};
use headstart_core::{RouteKey, TokenId};

/// Block sizes that are told apart; an engine with another one is not listened to.
const SIZES: [u32; 8] = [1, 8, 16, 32, 64, 128, 256, 512];

/// Names blocks as the router's index does, and tenants by tags.
pub(super) struct Names {
    hashers: [RouteHasher; SIZES.len()],
    secret: [u8; 32],
    /// The number of the namespace that has no name: most requests are in it.
    unnamed: u64,
}

impl Names {
    /// The names of an index whose keys are made with `identity`.
    pub(super) fn new(identity: &str, secret: u64) -> Self {
        let hasher = |block_size| {
            RouteHasher::new(&RouteIdentity {
                model: identity,
                block_size,
            })
        };
        let secret = blake3::derive_key("headstart 2026 insight names v1", &secret.to_le_bytes());
        Self {
            hashers: SIZES.map(hasher),
            secret,
            unnamed: numbered(&secret, Namespace::default()),
        }
    }

    /// The key of a block behind `parent`; none where nobody has blocks of that size.
    pub(super) fn block(
        &self,
        parent: Option<RouteKey>,
        tokens: &[TokenId],
        extra: Option<&[u8]>,
        namespace: Namespace<'_>,
    ) -> Option<RouteKey> {
        let is_it = |hasher: &&RouteHasher| hasher.block_size() == tokens.len();
        let hasher = self.hashers.iter().find(is_it)?;
        let parent = parent.unwrap_or_else(|| hasher.root(namespace));
        Some(hasher.next_with(parent, tokens, extra))
    }

    /// A number that stands for a namespace.
    pub(super) fn namespace(&self, namespace: Namespace<'_>) -> u64 {
        match (namespace.adapter, namespace.salt) {
            (None, None) => self.unnamed,
            _ => numbered(&self.secret, namespace),
        }
    }

    /// A number that stands for models.
    pub(super) fn models(&self, models: &[String]) -> u64 {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        for model in models {
            hasher.update(&(model.len() as u64).to_le_bytes());
            hasher.update(model.as_bytes());
        }
        let hash = hasher.finalize();
        let first = hash.as_bytes().first_chunk();
        u64::from_le_bytes(*first.expect("a hash has 32 bytes"))
    }

    /// What a tenant is shown as: 12 digits that its salt cannot be told from.
    pub(super) fn tenant(&self, salt: &str) -> String {
        let namespace = Namespace {
            adapter: None,
            salt: Some(salt),
        };
        format!("{:012x}", self.namespace(namespace) >> 16)
    }
}

fn numbered(secret: &[u8; 32], namespace: Namespace<'_>) -> u64 {
    let mut hasher = blake3::Hasher::new_keyed(secret);
    for field in [namespace.adapter, namespace.salt] {
        let text = field.unwrap_or_default();
        hasher.update(&[u8::from(field.is_some())]);
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    let hash = hasher.finalize();
    let first = hash.as_bytes().first_chunk();
    u64::from_le_bytes(*first.expect("a hash has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_have_tags_of_their_own_and_another_secret_gives_others() {
        let names = Names::new("m", 1);
        let tag = names.tenant("acme");
        assert_eq!((tag.len(), &tag), (12, &names.tenant("acme")));
        assert_ne!(tag, names.tenant("emca"));
        assert_ne!(tag, Names::new("m", 2).tenant("acme"));
    }

    #[test]
    fn blocks_are_named_as_the_index_names_them() {
        let hasher = RouteHasher::new(&RouteIdentity {
            model: "m 5",
            block_size: 16,
        });
        let namespace = Namespace {
            adapter: None,
            salt: Some("s"),
        };
        let tokens: Vec<u32> = (0..32).collect();
        let chain = hasher.chain(namespace, &tokens);
        let names = Names::new("m 5", 0);
        let first = names.block(None, &tokens[..16], None, namespace);
        assert_eq!(first, Some(chain[0]));
        let second = names.block(first, &tokens[16..], None, Namespace::default());
        assert_eq!(second, Some(chain[1]));
        assert_eq!(names.block(None, &tokens[..3], None, namespace), None);
    }
}
