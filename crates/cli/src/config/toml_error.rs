//! Readable errors of TOML files. An unknown key is named with its section and the nearest known
//! key, without the list of all keys.

use crate::near::nearest;

/// Keys that an error may list when none of them is near.
const LISTED_MAX: usize = 8;

/// Describes the error in `text`; `hint` says where all keys are listed.
pub(crate) fn explained(text: &str, error: &toml::de::Error, hint: &str) -> String {
    // Only errors of unknown keys list all keys; other messages are short.
    let Some((name, known)) = unknown(error.message()) else {
        return error.to_string().trim_end().to_owned();
    };
    let at = error.span().map_or(0, |span| span.start);
    let before = text.get(..at).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let is_header = |line: &&str| line.trim_start().starts_with('[');
    // An unknown section is reported at its header, an unknown key below one.
    let here = text.lines().nth(line - 1).filter(is_header);
    let above = text.lines().take(line - 1).filter(is_header).last();
    let what = match (here, above) {
        (Some(_), _) => format!("unknown section [{name}]"),
        // A comment after the header is no part of it.
        (None, Some(header)) => {
            let header = header.trim().split('#').next().unwrap_or_default().trim_end();
            format!("unknown key `{name}` in {header}")
        }
        (None, None) => format!("unknown key `{name}`"),
    };
    let advice = match nearest(name, known.iter().copied()) {
        Some(meant) if here.is_some() => format!("did you mean [{meant}]?"),
        Some(meant) => format!("did you mean `{meant}`?"),
        None if known.len() <= LISTED_MAX => format!("known are {}", known.join(", ")),
        None => hint.to_owned(),
    };
    format!("line {line}: {what}; {advice}")
}

/// The key that is unknown, and those that are known, in serde's words.
fn unknown(message: &str) -> Option<(&str, Vec<&str>)> {
    // The form of serde's message is not promised: without a match the caller shows it as it is.
    let rest = message.strip_prefix("unknown field `")?;
    let (name, rest) = rest.split_once('`')?;
    // Names are in backquotes, so every second part is one.
    let known = rest.split('`').skip(1).step_by(2);
    Some((name, known.collect()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_unknown_key_is_named_with_its_section_and_the_nearest() {
        for (text, expected) in [
            (
                "[serve]\nreplicas = 2\npolcy = \"lru\"\n",
                "line 3: unknown key `polcy` in [serve]; did you mean `policy`?",
            ),
            (
                "[serve]\ntemperature = 2\n",
                "line 2: unknown key `temperature` in [serve]; `headstart config init -o -` \
                 prints all keys",
            ),
            ("[server]\n", "line 1: unknown section [server]; did you mean [serve]?"),
            (
                "replicas = 2\n",
                "line 1: unknown key `replicas`; known are serve, profiles, tenants",
            ),
            (
                "[tenants.acme] # a tenant\ncontext-cache-gb = 2.0\n",
                "line 2: unknown key `context-cache-gb` in [tenants.acme]; did you mean \
                 `context-cache-gib`?",
            ),
        ] {
            let error = crate::config::parse(text).expect_err(text);
            assert_eq!(error, expected);
        }
        let error = crate::config::parse("[serve]\nreplicas = \"two\"\n").expect_err("a number");
        assert!(error.contains("line 2") && error.contains("invalid type"), "{error}");
    }
}
