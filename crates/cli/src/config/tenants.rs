//! Limits of single tenants: `[tenants.SALT]` in `headstart.toml`.
//!
//! ```toml
//! [tenants.research]              # requests with "cache_salt": "research"
//! context-cache-gib = 2.0         # default --context-cache-tenant-gib
//! context-cache-hours = 1.0       # default --context-cache-hours
//! ```

use std::collections::BTreeMap;

use headstart_core::{TenantTag, UsageError};
use serde::Deserialize;

/// A tenant as it is written.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TenantTable {
    context_cache_gib: Option<f64>,
    context_cache_hours: Option<f64>,
}

/// Limits of one tenant in the context cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tenant {
    pub(crate) tag: TenantTag,
    /// Its share, GiB; `None`: that of everybody.
    pub(crate) gib: Option<f64>,
    /// Lifetime of its records, hours; `None`: the common lifetime.
    pub(crate) hours: Option<f64>,
}

/// The tenants that `tables` describe, by salt.
///
/// # Errors
/// When a share or a time is no positive number.
pub(super) fn tenants(tables: BTreeMap<String, TenantTable>) -> Result<Vec<Tenant>, UsageError> {
    let tenant = |(salt, table): (String, TenantTable)| {
        let positive = |name: &str, value: Option<f64>| match value {
            // The comparison fails for NaN as well.
            Some(value) if !(value > 0.0 && value < 1e9) => Err(UsageError(format!(
                "[tenants.{salt}]: {name} {value}: expected a number above 0"
            ))),
            value => Ok(value),
        };
        Ok(Tenant {
            // Records name a tenant by this tag and never by its salt.
            tag: TenantTag::of(Some(&salt)),
            gib: positive("context-cache-gib", table.context_cache_gib)?,
            hours: positive("context-cache-hours", table.context_cache_hours)?,
        })
    };
    tables.into_iter().map(tenant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Tenant>, UsageError> {
        tenants(toml::from_str(text).expect("tables"))
    }

    #[test]
    fn shares_and_times_are_by_salt() {
        let right = Tenant { tag: TenantTag::of(Some("a b")), gib: Some(2.5), hours: None };
        let found = read("['a b']\ncontext-cache-gib = 2.5\n").expect("well");
        assert_eq!(found, [right]);
        for wrong in ["0", "-1.0", "nan", "inf"] {
            let text = format!("[x]\ncontext-cache-hours = {wrong}\n");
            let error = read(&text).expect_err("no number of hours");
            assert!(error.0.contains("[tenants.x]: context-cache-hours"), "{}", error.0);
        }
    }
}
