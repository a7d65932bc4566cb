//! Selection of a tenant: by its tag, or by the `cache_salt` of its requests.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use headstart_core::TenantTag;

use crate::config::first_line;
use crate::exit::usage;

/// A tenant.
#[derive(Args, Debug)]
#[group(multiple = false)]
pub(crate) struct TenantSelector {
    /// Tenant by tag: 16 hexadecimal digits, as in `cache ls`
    #[arg(long, value_name = "TAG")]
    tenant: Option<String>,
    /// Tenant by the `cache_salt` of its requests
    ///
    /// Prefer --salt-file: other users can read the command line.
    #[arg(long, value_name = "TEXT")]
    salt: Option<String>,
    /// File whose first line is the `cache_salt`
    #[arg(long, value_name = "FILE")]
    salt_file: Option<PathBuf>,
    /// Tenant of requests without `cache_salt`
    #[arg(long)]
    no_salt: bool,
}

impl TenantSelector {
    /// The tenant, if one is named.
    ///
    /// # Errors
    /// When the given tag is not valid, or the file cannot be read.
    pub(crate) fn tag(&self) -> Result<Option<TenantTag>> {
        if let Some(text) = &self.tenant {
            return parse(text).map(Some);
        }
        let salt = match (&self.salt, &self.salt_file) {
            (Some(salt), _) => salt.clone(),
            (None, Some(file)) => first_line(file)?,
            // Without a salt all requests share the default tag.
            (None, None) => return Ok(self.no_salt.then(TenantTag::default)),
        };
        Ok(Some(TenantTag::of(Some(&salt))))
    }
}

fn parse(text: &str) -> Result<TenantTag> {
    let is_tag = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    // The length is checked apart: `from_str_radix` accepts a sign and short numbers.
    let tag = u64::from_str_radix(text, 16).ok().filter(|_| is_tag);
    // Not repeated: it may be a salt, which is a secret.
    let wrong = || {
        let message = "--tenant: expected a tag of 16 hexadecimal digits, as `cache ls` shows it; \
                       for the cache_salt of requests there are --salt and --salt-file";
        usage(message)
    };
    tag.map(TenantTag).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_one_spelling() {
        let tag = parse("00000000000000ff").expect("a tag");
        assert_eq!(tag, TenantTag(255));
        for text in ["", "ff", "00000000000000fg", "+0000000000000ff", "alice"] {
            let error = parse(text).expect_err("no tag");
            let error = error.to_string();
            assert!(error.contains("--salt"), "{error}");
            assert!(text.len() < 3 || !error.contains(text), "a secret: {error}");
        }
    }
}
