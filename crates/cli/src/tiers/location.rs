//! Locations of the context cache and of what eviction policies have learned.

use std::path::PathBuf;

use crate::config::ServeOptions;

/// Location of the context cache.
pub(super) enum ContextCacheLocation {
    /// A folder, which this process has for itself.
    Folder(PathBuf),
    /// An object store, which others may use as well.
    Store(String),
}

impl ContextCacheLocation {
    pub(super) fn of(place: &str) -> Self {
        // Every URL of an object store has a scheme.
        if place.contains("://") {
            Self::Store(place.to_owned())
        } else {
            Self::Folder(PathBuf::from(place))
        }
    }
}

/// The folder for the tables of eviction policies: the state folder, else that of the context
/// cache.
pub(crate) fn learned_tables(options: &ServeOptions) -> Option<PathBuf> {
    let state = options.state_dir.clone();
    state.or_else(|| match ContextCacheLocation::of(options.context_cache.as_deref()?) {
        ContextCacheLocation::Folder(folder) => Some(folder),
        ContextCacheLocation::Store(_) => None,
    })
}
