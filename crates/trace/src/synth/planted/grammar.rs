//! Phrases with alternatives: `[could you|please] explain {topic}`.
//!
//! `[a|b|]` is one of its parts, each as likely, which may hold alternatives themselves; `{name}`
//! is what the caller puts there. The templates are ours and constant: what is not closed is
//! taken as it stands, and a test reads them all.

use headstart_core::Rng;

/// Appends one form of `template` to `out`; `slot` says what stands for a name.
pub(super) fn expand<'t>(
    template: &'t str,
    rng: &mut Rng,
    slot: &mut impl FnMut(&'t str, &mut Rng, &mut String),
    out: &mut String,
) {
    let mut rest = template;
    while let Some(at) = rest.find(['[', '{']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let Some(end) = closing(rest) else {
            break;
        };
        let inside = &rest[1..end];
        if rest.starts_with('{') {
            slot(inside, rng, out);
        } else {
            let count = parts(inside).count();
            let part = parts(inside).nth(rng.below(count)).unwrap_or("");
            expand(part, rng, slot, out);
        }
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
}

/// Returns the offset of the bracket that closes the one at the start of `text`, bytes.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.char_indices().find_map(|(at, sign)| {
        match sign {
            '[' | '{' => depth += 1,
            ']' | '}' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

/// The alternatives between two brackets; at least one, perhaps empty.
fn parts(inside: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    inside.split(move |sign| {
        match sign {
            '[' | '{' => depth += 1,
            ']' | '}' => depth -= 1,
            _ => {}
        }
        depth == 0 && sign == '|'
    })
}

/// `text` as a sentence: a capital first, single spaces, none before a comma or a full stop, and
/// `an` where a vowel follows.
pub(super) fn sentence(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 1);
    let mut is_article = false;
    for word in text.split_whitespace() {
        if is_article && has_vowel_sound(word) {
            // The article is already written, so `an` needs only its second letter.
            out.push('n');
        }
        if !out.is_empty() && !word.starts_with([',', '.', '?', '!', ';', ':']) {
            out.push(' ');
        }
        if out.is_empty() {
            let mut signs = word.chars();
            out.extend(signs.next().map(|sign| sign.to_ascii_uppercase()));
            out.push_str(signs.as_str());
        } else {
            out.push_str(word);
        }
        is_article = word.eq_ignore_ascii_case("a");
    }
    out
}

/// Whether `an` stands before it: by its letter, but for the words that we use and that sound
/// otherwise.
fn has_vowel_sound(word: &str) -> bool {
    let is_vowel = word.starts_with(['a', 'e', 'i', 'o', 'u']);
    let exceptions = ["one", "us", "uni", "eu"];
    is_vowel && !exceptions.iter().any(|start| word.starts_with(start))
}

/// Counts the forms of a template, its slots left open.
#[cfg(test)]
pub(super) fn forms(template: &str) -> u64 {
    let mut product = 1;
    let mut rest = template;
    while let Some(at) = rest.find('[') {
        rest = &rest[at..];
        let end = closing(rest).expect("a bracket closes");
        product *= parts(&rest[1..end]).map(forms).sum::<u64>();
        rest = &rest[end + 1..];
    }
    product
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn check(template: &str, expected: &[&str]) {
        let mut rng = Rng::new(3);
        let mut seen = BTreeSet::new();
        for _ in 0..400 {
            let mut out = String::new();
            let mut slot = |name: &str, _: &mut Rng, out: &mut String| {
                out.push('<');
                out.push_str(name);
                out.push('>');
            };
            expand(template, &mut rng, &mut slot, &mut out);
            seen.insert(sentence(&out));
        }
        let expected: BTreeSet<String> = expected.iter().map(|&form| form.to_owned()).collect();
        assert_eq!(seen, expected);
        assert_eq!(forms(template), expected.len() as u64);
    }

    #[test]
    fn every_alternative_is_met_and_counted() {
        check("as it stands.", &["As it stands."]);
        check(
            "[please|] do [a|the [one|other]] {x}",
            &[
                "Please do a <x>",
                "Please do the one <x>",
                "Please do the other <x>",
                "Do a <x>",
                "Do the one <x>",
                "Do the other <x>",
            ],
        );
        check("one [, two|] .", &["One, two.", "One."]);
        check("a [apple|useful {x}|one]", &["An apple", "A useful <x>", "A one"]);
    }
}
